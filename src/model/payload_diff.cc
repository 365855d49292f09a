#include "model/payload_diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>

#include "base/encoding.h"

namespace dlo {
namespace {

/// Leaves of a JSON text by their JSON pointers, as the tokens that stand there. The text is known to be valid.
class Leaves {
 public:
  explicit Leaves(std::string_view text) : text_(text) {
    Skip();
    Value({});
  }
  /// Of the same path twice, the last: as readers of JSON take it.
  std::map<std::string, std::string> found;

 private:
  void Skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").contains(text_[at_])) ++at_;
  }
  std::string_view String() {
    const std::size_t begin = at_++;
    while (text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    return text_.substr(begin, ++at_ - begin);
  }
  /// A member's name as a step of a pointer: decoded, then "~" and "/" escaped.
  static std::string Step(std::string_view token) {
    const boost::json::value name = boost::json::parse({token.data(), token.size()});
    std::string step;
    for (const char c : name.as_string()) step += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
    return step;
  }
  void Value(const std::string& path) {
    const char c = text_[at_];
    if (c == '{' || c == '[') return Members(path, c == '{');
    const std::size_t begin = at_;
    if (c == '"') {
      String();
    } else {
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
    }
    found[path] = text_.substr(begin, at_ - begin);
  }
  void Members(const std::string& path, bool object) {
    const char end = object ? '}' : ']';
    ++at_;
    Skip();
    if (text_[at_] == end) found[path] = object ? "{}" : "[]";
    for (int i = 0; text_[at_] != end; ++i) {
      std::string step = fmt::format("{}", i);
      if (object) {
        step = Step(String());
        Skip();
        ++at_;  // ':'
        Skip();
      }
      Value(path + "/" + step);
      Skip();
      if (text_[at_] == ',') ++at_;
      Skip();
    }
    ++at_;
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

bool IsJson(std::string_view text) {
  boost::system::error_code error;
  (void)boost::json::parse({text.data(), text.size()}, error);
  return !error;
}

bool IsText(std::string_view bytes) {
  return !bytes.contains('\0');
}

std::string Shown(std::string_view text) {
  return CleanText(text, kShownBytes);
}

bool Add(PayloadDiff& diff, PathChange change) {
  if (diff.changes.size() >= kMaxChanges) {
    diff.cut = true;
    return false;
  }
  diff.changes.push_back(std::move(change));
  return true;
}

void DiffJson(std::string_view before, std::string_view after, PayloadDiff& diff) {
  const std::map<std::string, std::string> old = Leaves(before).found, now = Leaves(after).found;
  for (auto a = old.begin(), b = now.begin(); a != old.end() || b != now.end();) {
    PathChange change;
    if (b == now.end() || (a != old.end() && a->first < b->first)) {
      change = {.path = a->first, .before = Shown(a->second), .removed = true};
      ++a;
    } else if (a == old.end() || b->first < a->first) {
      change = {.path = b->first, .after = Shown(b->second), .added = true};
      ++b;
    } else {
      const bool same = a->second == b->second;
      change = {.path = a->first, .before = Shown(a->second), .after = Shown(b->second)};
      ++a;
      ++b;
      if (same) continue;
    }
    if (!Add(diff, std::move(change))) return;
  }
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// What stands between the lines that both have at the beginning and at the end.
void DiffText(std::string_view before, std::string_view after, PayloadDiff& diff) {
  const std::vector<std::string_view> old = Lines(before), now = Lines(after);
  std::size_t head = 0, tail = 0;
  const std::size_t shorter = std::min(old.size(), now.size());
  while (head < shorter && old[head] == now[head]) ++head;
  while (tail < shorter - head && old[old.size() - 1 - tail] == now[now.size() - 1 - tail]) ++tail;
  for (std::size_t i = head; i < std::max(old.size(), now.size()) - tail; ++i) {
    const bool in_old = i < old.size() - tail, in_new = i < now.size() - tail;
    if (in_old && in_new && old[i] == now[i]) continue;
    if (!Add(diff, {.path = fmt::format("line {}", i + 1),
                    .before = in_old ? Shown(old[i]) : "",
                    .after = in_new ? Shown(now[i]) : "",
                    .added = !in_old,
                    .removed = !in_new})) {
      return;
    }
  }
  // Only a line end at the end of it all differs.
  if (diff.changes.empty())
    Add(diff, {.path = "end",
               .before = "",
               .after = "",
               .added = after.size() > before.size(),
               .removed = after.size() < before.size()});
}

}  // namespace

PayloadDiff DiffPayloads(std::string_view before, std::string_view after) {
  PayloadDiff diff;
  if (IsJson(before) && IsJson(after)) {
    diff.kind = "json";
    DiffJson(before, after, diff);
    return diff;
  }
  diff.kind = IsText(before) && IsText(after) ? "text" : "binary";
  if (before == after) return diff;
  if (diff.kind == "text") {
    DiffText(before, after, diff);
    return diff;
  }
  const auto [a, b] = std::ranges::mismatch(before, after);
  diff.changes.push_back({.path = fmt::format("byte {}", a - before.begin()),
                          .before = fmt::format("{} bytes", before.size()),
                          .after = fmt::format("{} bytes", after.size())});
  return diff;
}

}  // namespace dlo
