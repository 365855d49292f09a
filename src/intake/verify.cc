#include "intake/verify.h"

#include <algorithm>
#include <utility>

#include "base/encoding.h"

namespace dlo::intake {
namespace {

constexpr std::size_t kMaxSignatures = 32;

struct Found {
  std::string_view value;
  std::optional<RejectReason> reason;
};

// One value for one role, whatever its spelling. Two different values are refused even in two spellings: the key of the
// event is later read by name, and must be the very id that was signed.
Found FindHeader(std::span<const Header> headers, const std::vector<std::string>& names) {
  Found found;
  const std::string* by = nullptr;
  for (const auto& header : headers) {
    for (const auto& name : names) {
      if (!EqualIgnoringCase(header.name, name)) continue;
      const auto value = Trimmed(header.value);
      if (by != nullptr && (by == &name || value != found.value)) return {{}, RejectReason::duplicate_header};
      by = &name;
      found.value = value;
    }
  }
  if (by == nullptr) found.reason = RejectReason::missing_header;
  return found;
}

// In "{id}.{timestamp}.{body}" the dots do not say which of them separate. An id that swallowed the beginning of a
// signed body would hold JSON punctuation, so an id with any is refused.
bool IsPlainId(std::string_view id) {
  return !id.empty() && std::ranges::all_of(id, [](char c) {
    return c > 0x20 && c < 0x7f && std::string_view("{}[]\"<>\\").find(c) == std::string_view::npos;
  });
}

// Calls `each` with every piece between separators, trimmed; stops at the first reason.
template <typename Each>
std::optional<RejectReason> Split(std::string_view text, char separator, Each each) {
  while (true) {
    const auto end = text.find(separator);
    if (auto reason = each(Trimmed(text.substr(0, end)))) return reason;
    if (end == std::string_view::npos) return std::nullopt;
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::string_view Name(RejectReason reason) {
  switch (reason) {
    case RejectReason::missing_header:
      return "missing_header";
    case RejectReason::malformed:
      return "malformed";
    case RejectReason::no_match:
      return "no_match";
    case RejectReason::too_old:
      return "too_old";
    case RejectReason::too_far_ahead:
      return "too_far_ahead";
    case RejectReason::duplicate_header:
      return "duplicate_header";
    case RejectReason::unknown_key:
      return "unknown_key";
    case RejectReason::bad_encoding:
      return "bad_encoding";
  }
  return "unknown";
}

struct Verifier::Parsed {
  struct Signature {
    std::string bytes;
    bool ed25519 = false;
  };
  std::string_view timestamp_text, id;
  std::int64_t timestamp = 0;
  std::vector<Signature> signatures;  // those of the right form and length
  std::size_t seen = 0;               // of a kind we have a key for, whatever their form

  // Keeps a signature that can be compared. One that cannot is no reason to refuse its neighbours.
  std::optional<RejectReason> Add(std::string_view text, Encoding encoding, std::size_t size, bool ed25519) {
    if (++seen > kMaxSignatures) return RejectReason::malformed;
    auto bytes = encoding == Encoding::hex ? HexDecode(text) : Base64Decode(text);
    if (!bytes || bytes->size() != size) return std::nullopt;
    // A base64 text whose unused last bits are set says the same bytes in other words; one signature has one spelling.
    if (encoding == Encoding::base64 && Base64Encode(*bytes) != text) return std::nullopt;
    signatures.push_back({std::move(*bytes), ed25519});
    return std::nullopt;
  }
};

Result<Verifier> Verifier::Compile(const SourceConfig& source) {
  auto scheme = CompileScheme(source.scheme, source.hmac);
  if (!scheme) return std::unexpected(scheme.error());
  Verifier made;
  made.scheme_ = std::move(*scheme);
  made.tolerance_past_ = source.tolerance_past;
  made.tolerance_future_ = source.tolerance_future;
  if (!made.scheme_.signs) return made;
  if (source.secrets.empty()) {
    return Fail(ErrorKind::invalid, "no_secret",
                "secrets must name at least one secret (or set scheme = \"none\" to accept unsigned deliveries)");
  }
  for (std::size_t i = 0; i < source.secrets.size(); ++i) {
    const auto& secret = source.secrets[i];
    const std::string name = "secrets[" + std::to_string(i) + "]";
    auto key = CompileKey(made.scheme_, secret.value, KeyUse::verify);
    if (!key) return Fail(ErrorKind::invalid, key.error().code, name + " " + key.error().message);
    if (const auto* hmac = std::get_if<HmacKey>(&*key)) {
      made.has_hmac_ = true;
      made.mac_bytes_ = hmac->size();
    } else {
      made.has_ed25519_ = true;
    }
    made.keys_.push_back({secret.id.empty() ? name : secret.id, std::move(*key)});
  }
  return made;
}

std::expected<Verdict, RejectReason> Verifier::Verify(std::span<const Header> headers, std::string_view body,
                                                      Time now) const {
  Verdict verdict;
  verdict.scheme = scheme_.name;
  if (!scheme_.signs) return verdict;
  Parsed parsed;
  if (const auto reason = Parse(headers, parsed)) return std::unexpected(*reason);
  const auto key = Match(parsed, body);
  if (!key) return std::unexpected(key.error());
  if (scheme_.signed_bytes.uses_timestamp()) {
    if (const auto reason = JudgeAge(parsed.timestamp, now)) return std::unexpected(*reason);
    const auto micros = scheme_.milliseconds ? Duration(std::chrono::milliseconds(parsed.timestamp))
                                             : Duration(std::chrono::seconds(parsed.timestamp));
    verdict.signed_at = Time(micros);
  }
  verdict.verified = true;
  verdict.secret_id = (*key)->id;
  return verdict;
}

std::optional<RejectReason> Verifier::Parse(std::span<const Header> headers, Parsed& parsed) const {
  const auto signature = FindHeader(headers, scheme_.signature_headers);
  if (signature.reason) return signature.reason;
  if (!scheme_.timestamp_headers.empty()) {
    const auto timestamp = FindHeader(headers, scheme_.timestamp_headers);
    if (timestamp.reason) return timestamp.reason;
    parsed.timestamp_text = timestamp.value;
  }
  if (!scheme_.id_headers.empty()) {
    const auto id = FindHeader(headers, scheme_.id_headers);
    if (id.reason) return id.reason;
    if (!IsPlainId(id.value)) return RejectReason::malformed;
    parsed.id = id.value;
  }
  if (const auto reason = ParseSignatures(signature.value, parsed)) return reason;
  if (scheme_.signed_bytes.uses_timestamp()) {
    const auto timestamp = ParseDigits(parsed.timestamp_text);
    if (!timestamp || !TimeFromSeconds(scheme_.milliseconds ? *timestamp / 1000 : *timestamp)) {
      return RejectReason::malformed;
    }
    parsed.timestamp = *timestamp;
  }
  if (parsed.signatures.empty()) return RejectReason::bad_encoding;
  return std::nullopt;
}

// Leaves `signatures` empty where every one of them is of a wrong encoding; a wrong structure is a reason.
std::optional<RejectReason> Verifier::ParseSignatures(std::string_view value, Parsed& parsed) const {
  const auto add = [&](std::string_view text) -> std::optional<RejectReason> {
    if (!text.starts_with(scheme_.prefix)) return std::nullopt;
    text.remove_prefix(scheme_.prefix.size());
    if (text.empty()) return std::nullopt;
    return parsed.Add(text, scheme_.encoding, mac_bytes_, false);
  };
  std::optional<RejectReason> reason;
  switch (scheme_.format) {
    case SignatureFormat::plain:
      reason = add(value);
      break;
    case SignatureFormat::list:
      reason = Split(value, ',', add);
      break;
    case SignatureFormat::pairs:
      reason = ParsePairs(value, parsed);
      break;
    case SignatureFormat::versioned:
      reason = ParseVersioned(value, parsed);
      break;
  }
  if (reason) return reason;
  if (parsed.seen == 0) return RejectReason::malformed;
  return std::nullopt;
}

// Pairs of other names are skipped: that is how Stripe's v0, a decoy of its test mode, is never accepted.
std::optional<RejectReason> Verifier::ParsePairs(std::string_view value, Parsed& parsed) const {
  bool has_timestamp = false;
  const bool wants_timestamp = scheme_.signed_bytes.uses_timestamp() && scheme_.timestamp_headers.empty();
  const auto reason = Split(value, scheme_.pair_separator, [&](std::string_view pair) -> std::optional<RejectReason> {
    const auto equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const auto name = pair.substr(0, equals);
    const auto text = pair.substr(equals + 1);
    if (wants_timestamp && name == scheme_.timestamp_name) {
      if (has_timestamp) return RejectReason::malformed;
      has_timestamp = true;
      parsed.timestamp_text = text;
    } else if (name == scheme_.signature_name && !text.empty()) {
      return parsed.Add(text, scheme_.encoding, mac_bytes_, false);
    }
    return std::nullopt;
  });
  if (reason) return reason;
  if (wants_timestamp && !has_timestamp) return RejectReason::malformed;
  return std::nullopt;
}

std::optional<RejectReason> Verifier::ParseVersioned(std::string_view value, Parsed& parsed) const {
  bool other_kind = false;
  const auto reason = Split(value, ' ', [&](std::string_view item) -> std::optional<RejectReason> {
    const auto comma = item.find(',');
    if (comma == std::string_view::npos || comma + 1 == item.size()) return std::nullopt;
    const auto version = item.substr(0, comma);
    const bool ed25519 = version == "v1a";
    if (!ed25519 && version != "v1") return std::nullopt;
    if (ed25519 ? !has_ed25519_ : !has_hmac_) {
      other_kind = true;
      return std::nullopt;
    }
    return parsed.Add(item.substr(comma + 1), Encoding::base64, ed25519 ? Ed25519Key::kSignatureBytes : mac_bytes_,
                      ed25519);
  });
  if (reason) return reason;
  if (parsed.seen == 0 && other_kind) return RejectReason::unknown_key;
  return std::nullopt;
}

std::expected<const Verifier::NamedKey*, RejectReason> Verifier::Match(const Parsed& parsed,
                                                                       std::string_view body) const {
  const auto joined = scheme_.signed_bytes.Fill(
      {.timestamp = parsed.timestamp_text, .id = parsed.id, .body = body, .url = scheme_.url});
  const auto any = [&](bool ed25519, auto matches) {
    return std::ranges::any_of(parsed.signatures,
                               [&](const auto& s) { return s.ed25519 == ed25519 && matches(s.bytes); });
  };
  const bool needs_hmac = any(false, [](const std::string&) { return true; });
  const bool needs_text = any(true, [](const std::string&) { return true; });
  const std::string text = needs_text ? joined.Text() : std::string();  // Ed25519 takes its message in one piece
  for (const auto& named : keys_) {
    bool matched = false;
    if (const auto* hmac = std::get_if<HmacKey>(&named.key)) {
      if (!needs_hmac) continue;
      const auto mac = hmac->Compute(joined.span());
      matched = any(false, [&](const std::string& bytes) { return ConstantTimeEqual(bytes, mac.view()); });
    } else {
      const auto& key = std::get<Ed25519Key>(named.key);
      matched = any(true, [&](const std::string& bytes) { return key.Verify(text, bytes); });
    }
    if (matched) return &named;
  }
  return std::unexpected(RejectReason::no_match);
}

std::optional<RejectReason> Verifier::JudgeAge(std::int64_t timestamp, Time now) const {
  // In the sender's unit: a time that it cut to whole seconds must not be late by the part that was cut.
  const auto at =
      scheme_.milliseconds ? Duration(std::chrono::milliseconds(timestamp)) : Duration(std::chrono::seconds(timestamp));
  const Duration here = scheme_.milliseconds
                            ? Duration(std::chrono::floor<std::chrono::milliseconds>(now.time_since_epoch()))
                            : Duration(std::chrono::floor<std::chrono::seconds>(now.time_since_epoch()));
  if (tolerance_past_ > Duration::zero() && here - at > tolerance_past_) return RejectReason::too_old;
  if (tolerance_future_ > Duration::zero() && at - here > tolerance_future_) return RejectReason::too_far_ahead;
  return std::nullopt;
}

}  // namespace dlo::intake
