#include "model/fingerprint.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>

#include "base/encoding.h"

namespace dlo {
namespace {

// Messages can be as long as a response body. What decides is at the start; the rest is never looked at.
constexpr std::size_t kReadBytes = 2'048;
constexpr std::size_t kKeptBytes = 200;
constexpr std::size_t kMaxQuoted = 500;
// Stands for whatever differs between two failures of one cause.
constexpr char kAny = '*';

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLower(char c) {
  return c >= 'a' && c <= 'z';
}
bool IsUpper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool IsHex(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool IsSpace(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
// Bytes of characters beyond ASCII count as letters; the quotation marks among them are looked at before.
bool IsWord(char c) {
  return IsDigit(c) || IsLower(c) || IsUpper(c) || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}

bool All(std::string_view text, bool (*is)(char)) {
  return std::all_of(text.begin(), text.end(), is);
}
bool Any(std::string_view text, bool (*is)(char)) {
  return std::any_of(text.begin(), text.end(), is);
}

std::size_t RunLength(std::string_view text, std::size_t i, bool (*is)(char)) {
  std::size_t n = 0;
  while (i + n < text.size() && is(text[i + n])) ++n;
  return n;
}

/// Matches 'd' = digit, 'h' = hex digit, anything else itself.
bool Matches(std::string_view text, std::size_t i, std::string_view pattern) {
  if (text.size() - i < pattern.size()) return false;
  for (std::size_t k = 0; k < pattern.size(); ++k) {
    const char c = text[i + k];
    const bool ok = pattern[k] == 'd' ? IsDigit(c) : pattern[k] == 'h' ? IsHex(c) : c == pattern[k];
    if (!ok) return false;
  }
  return true;
}

std::size_t UuidLength(std::string_view text, std::size_t i) {
  constexpr std::string_view kUuid = "hhhhhhhh-hhhh-hhhh-hhhh-hhhhhhhhhhhh";
  const bool whole = Matches(text, i, kUuid) && (i + kUuid.size() == text.size() || !IsWord(text[i + kUuid.size()]));
  return whole ? kUuid.size() : 0;
}

/// A date, with a time and an offset where they follow.
std::size_t TimeLength(std::string_view text, std::size_t i) {
  if (!Matches(text, i, "dddd-dd-dd")) return 0;
  std::size_t n = 10;
  if (Matches(text, i + n, "Tdd:dd") || Matches(text, i + n, " dd:dd")) {
    n += 6;
    if (Matches(text, i + n, ":dd")) n += 3;
    if (Matches(text, i + n, ".d")) n += 1 + RunLength(text, i + n + 1, IsDigit);
    if (Matches(text, i + n, "Z")) {
      n += 1;
    } else if (Matches(text, i + n, "+dd:dd") || Matches(text, i + n, "-dd:dd")) {
      n += 6;
    } else if (Matches(text, i + n, "+dd") || Matches(text, i + n, "-dd")) {
      n += 3;
    }
  }
  return n;
}

std::size_t EmailLength(std::string_view text, std::size_t i) {
  const auto local = [](char c) { return IsWord(c) || c == '.' || c == '+' || c == '-' || c == '%'; };
  const auto domain = [](char c) { return IsWord(c) || c == '.' || c == '-'; };
  const std::size_t n = RunLength(text, i, local);
  if (n == 0 || i + n >= text.size() || text[i + n] != '@') return 0;
  std::size_t m = RunLength(text, i + n + 1, domain);
  while (m > 0 && !IsWord(text[i + n + m])) --m;  // a full stop ends the sentence, not the address
  return m == 0 ? 0 : n + 1 + m;
}

/// Groups of hex digits with at least two colons: an IPv6 address, a MAC address, a time of day.
std::size_t ColonGroupsLength(std::string_view text, std::size_t i) {
  std::size_t n = RunLength(text, i, [](char c) { return IsHex(c) || c == ':'; });
  while (n > 0 && text[i + n - 1] == ':') --n;
  const std::string_view run = text.substr(i, n);
  const bool ok = std::count(run.begin(), run.end(), ':') >= 2 && Any(run, IsDigit) &&
                  (i + n == text.size() || !IsWord(text[i + n]));
  return ok ? n : 0;
}

/// 12 · 1,234.56 · 10.0.0.1:5432 · 50/100
std::size_t NumberLength(std::string_view text, std::size_t i) {
  std::size_t n = RunLength(text, i, IsDigit);
  if (n == 0) return 0;
  while (i + n + 1 < text.size() && std::string_view(".,:/").find(text[i + n]) != std::string_view::npos &&
         IsDigit(text[i + n + 1])) {
    n += 1 + RunLength(text, i + n + 1, IsDigit);
  }
  return i + n < text.size() && IsWord(text[i + n]) ? 0 : n;
}

/// "Mon, 30 Nov 2026": names of days and months beside a number are part of a date.
std::size_t DateWordLength(std::string_view text, std::size_t i, bool after_number) {
  constexpr std::array<std::string_view, 19> kNames = {"Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun",
                                                       "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul",
                                                       "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::string_view name = text.substr(i, 3);
  if (std::find(kNames.begin(), kNames.end(), name) == kNames.end()) return 0;
  if (i + 3 < text.size() && IsWord(text[i + 3])) return 0;
  const bool before_number = Matches(text, i + 3, " d") || Matches(text, i + 3, ", d");
  return after_number || before_number ? 3 : 0;
}

bool LooksLikeId(std::string_view word) {
  return word.size() >= 10 && Any(word, IsUpper) && Any(word, IsLower) && !Any(word, [](char c) { return c == '_'; });
}

/// One word: what is stable of it, then kAny where something was left out.
std::string NormaliseWord(std::string_view word) {
  if (word.size() >= 8 && All(word, IsHex) && (Any(word, IsDigit) || word.size() >= 16)) return {kAny};
  if (const std::size_t underscore = word.find('_'); underscore != std::string_view::npos) {
    // "sub_1Nxyz", "pi_3N_secret_x": the segments before the first one that is no word name the kind of id.
    std::size_t start = 0;
    while (start < word.size()) {
      const std::size_t end = std::min(word.find('_', start), word.size());
      const std::string_view segment = word.substr(start, end - start);
      if (Any(segment, IsDigit) || (start > 0 && LooksLikeId(segment)))
        return std::string(word.substr(0, start)) + kAny;
      start = end + 1;
    }
    return std::string(word);
  }
  if (!Any(word, IsDigit)) return std::string(word);
  const std::size_t letters = RunLength(word, 0, [](char c) { return !IsDigit(c); });
  const std::string_view prefix = word.substr(0, letters);
  const bool plain = letters > 0 && All(word.substr(letters), IsDigit) && !(word[0] == '0') &&
                     (!Any(prefix.substr(1), IsUpper) || !Any(prefix, IsLower));
  return plain ? std::string(prefix) + kAny : std::string{kAny};
}

struct Quote {
  std::string_view open, close;
};
constexpr std::array<Quote, 6> kQuotes = {
    {{"\"", "\""}, {"'", "'"}, {"`", "`"}, {"\u201C", "\u201D"}, {"\u2018", "\u2019"}, {"\u00AB", "\u00BB"}}};

/// Quoted text is a value, except a bare identifier: a constraint or a field is named like that, and it is the cause.
bool TakeQuoted(std::string_view text, std::size_t& i, std::string& out) {
  for (const Quote& q : kQuotes) {
    if (text.substr(i, q.open.size()) != q.open) continue;
    if (i > 0 && IsWord(text[i - 1]) && q.open.size() == 1) return false;  // an apostrophe: "don't"
    const std::size_t start = i + q.open.size();
    std::size_t end = text.find(q.close, start);
    while (q.close == "'" && end != std::string_view::npos && end + 1 < text.size() && IsWord(text[end + 1])) {
      end = text.find(q.close, end + 1);
    }
    if (end == std::string_view::npos || end - start > kMaxQuoted) return false;
    const std::string_view inner = text.substr(start, end - start);
    const bool identifier = !inner.empty() && All(inner, [](char c) { return IsLower(c) || c == '_'; });
    out += q.open;
    out += identifier ? inner : std::string_view(&kAny, inner.empty() ? 0 : 1);
    out += q.close;
    i = end + q.close.size();
    return true;
  }
  return false;
}

/// "1, 2, 3" and "ab+12/cd" become one kAny: how many there were is chance.
void AddAny(std::string& out) {
  const auto ends_with_any = [&](std::size_t separator) {
    return out.size() > separator && out[out.size() - separator - 1] == kAny;
  };
  if (ends_with_any(0)) return;
  if (ends_with_any(1) && std::string_view("+/=-.:,").find(out.back()) != std::string_view::npos) {
    out.pop_back();
  } else if (ends_with_any(2) && out.ends_with(", ")) {
    out.resize(out.size() - 2);
  } else {
    out += kAny;
  }
}

void CutAtCharacter(std::string& text, std::size_t max_bytes) {
  if (text.size() <= max_bytes) return;
  while (max_bytes > 0 && (static_cast<unsigned char>(text[max_bytes]) & 0xC0) == 0x80) --max_bytes;
  text.resize(max_bytes);
}

}  // namespace

std::string NormaliseMessage(std::string_view message) {
  const std::string text = CleanText(message.substr(0, kReadBytes), kReadBytes);
  std::string out;
  std::size_t i = 0;
  while (i < text.size() && out.size() < kKeptBytes + kMaxQuoted) {
    const char c = text[i];
    if (IsSpace(c)) {
      if (!out.empty() && out.back() != ' ') out += ' ';
      ++i;
      continue;
    }
    if (TakeQuoted(text, i, out)) continue;
    const bool starts = i == 0 || IsSpace(text[i - 1]);
    if (starts && (c == '-' || c == '+') && i + 1 < text.size() && IsDigit(text[i + 1])) {
      ++i;  // a sign belongs to its number
      continue;
    }
    if (!IsWord(c)) {
      out += c;
      ++i;
      continue;
    }
    std::size_t n = EmailLength(text, i);
    if (n == 0) n = UuidLength(text, i);
    if (n == 0) n = TimeLength(text, i);
    if (n == 0) n = ColonGroupsLength(text, i);
    if (n == 0) n = NumberLength(text, i);
    if (n == 0) n = DateWordLength(text, i, out.ends_with("* "));
    if (n > 0) {
      AddAny(out);
      i += n;
      continue;
    }
    n = RunLength(text, i, IsWord);
    const std::string word = NormaliseWord(std::string_view(text).substr(i, n));
    if (word.size() == 1 && word[0] == kAny) {
      AddAny(out);
    } else {
      out += word;
    }
    i += n;
  }
  CutAtCharacter(out, kKeptBytes);
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string Fingerprint(FailureClass failure_class, std::string_view code, std::string_view message,
                        std::string_view kind) {
  // A failure that has no class yet is on its way to `exhausted`.
  const FailureClass counted = failure_class == FailureClass::none ? FailureClass::exhausted : failure_class;
  const std::string normalised = NormaliseMessage(message);
  std::string text(Name(counted));
  for (const std::string_view part : {code, std::string_view(normalised), kind}) {
    text += '\0';
    text += part;
  }
  const Sha256Digest digest = Sha256(text);
  return HexEncode(std::span(digest).first(8));
}

std::optional<std::int64_t> FingerprintNumber(std::string_view hex) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (hex.size() != 16 || error != std::errc() || end != hex.data() + hex.size()) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace dlo
