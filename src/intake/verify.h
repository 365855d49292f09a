// Is this delivery genuine? Judged once, at receipt, over the exact bytes, before anything is parsed.
#pragma once

#include <expected>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "intake/scheme.h"

namespace dlo::intake {

/// Counted per source and kept with the quarantined delivery; the sender is told nothing but "rejected".
enum class RejectReason : unsigned char {
  missing_header,    // the signature, timestamp or id header is not there
  malformed,         // there, but not of the scheme's form: no prefix, no timestamp, a timestamp that is not digits
  no_match,          // well formed, and no secret made any of the signatures
  too_old,           // genuine, but signed more than the tolerance ago
  too_far_ahead,     // genuine, but signed more than the tolerance ahead of our clock
  duplicate_header,  // a header that the judgement rests on came twice, or in two spellings that differ
  unknown_key,       // signed with a kind of key (v1, v1a) of which this source has none
  bad_encoding,      // no signature is hex or base64 of the right length
};
inline constexpr int kRejectReasonCount = 8;
[[nodiscard]] std::string_view Name(RejectReason reason);

/// One source's scheme and secrets, decoded. Thread-safe.
///
/// Every secret is tried against every signature, and the first secret that made any of them is named in the verdict.
/// Age is judged after the signature, so that too_old and too_far_ahead speak of a sender's clock and not of a forger.
/// Bounds are inclusive and compared in the timestamp's own unit; a tolerance of 0 means no check on that side. More
/// than 32 signatures in one header are malformed: the work of one request is bounded.
class Verifier {
 public:
  /// Error invalid names the field and the rule. Takes secrets of any length; CheckSource refuses short ones.
  static Result<Verifier> Compile(const SourceConfig& source);

  [[nodiscard]] std::expected<Verdict, RejectReason> Verify(std::span<const Header> headers, std::string_view body,
                                                            Time now) const;

 private:
  struct NamedKey {
    std::string id;
    Key key;
  };
  struct Parsed;
  [[nodiscard]] std::optional<RejectReason> Parse(std::span<const Header> headers, Parsed& parsed) const;
  [[nodiscard]] std::optional<RejectReason> ParseSignatures(std::string_view value, Parsed& parsed) const;
  [[nodiscard]] std::optional<RejectReason> ParsePairs(std::string_view value, Parsed& parsed) const;
  [[nodiscard]] std::optional<RejectReason> ParseVersioned(std::string_view value, Parsed& parsed) const;
  [[nodiscard]] std::expected<const NamedKey*, RejectReason> Match(const Parsed& parsed, std::string_view body) const;
  [[nodiscard]] std::optional<RejectReason> JudgeAge(std::int64_t timestamp, Time now) const;

  Scheme scheme_;
  std::vector<NamedKey> keys_;
  std::size_t mac_bytes_ = 0;
  bool has_hmac_ = false, has_ed25519_ = false;
  Duration tolerance_past_{}, tolerance_future_{};
};

}  // namespace dlo::intake
