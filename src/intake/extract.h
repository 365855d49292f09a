// Where the facts of an event are: its key, kind, subject, account, mode and time, read from headers and JSON.
//
// A field is described by a text (config.h): alternatives separated by '|', the first that is present wins:
//   /data/object/id              a JSON pointer; null, an object, an array and "" count as absent
//   header:X-Event-Id            a header, name without case; of one that came twice the first
//   /a/id?/a/object=invoice      only where the second pointer holds exactly that text
//   header:X-Event+/action       terms joined with "."; later ones are left out when absent (in a key every one must be
//                                there)
// The characters | ? + cannot be part of a name here. "" = no such field; a source without a key uses the body's
// digest.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "intake/json_pointer.h"

namespace dlo::intake {

/// Longest key, kind, subject or account, in bytes.
inline constexpr std::size_t kMaxFieldBytes = 512;

struct Extracted {
  std::string key;  // never empty
  std::string kind, subject, account;
  std::optional<bool> livemode;
  std::optional<Time> occurred_at;
  Disposition disposition = Disposition::dispatch;
  std::string reason;  // why not dispatch: names the field
};

/// One term of a field: a header, or a pointer that may have a condition.
struct FieldTerm {
  std::string header;  // empty: a pointer
  JsonPath pointer;
  JsonPath condition;  // empty: none
  std::string condition_text;
};
/// Alternatives, each a list of terms to be joined.
using FieldSpec = std::vector<std::vector<FieldTerm>>;
Result<FieldSpec> ParseFieldSpec(std::string_view text);

/// The defaults of a scheme, overlaid by what the source sets.
struct FieldTexts {
  std::string key, kind, subject, account, livemode, occurred_at;
  std::vector<std::string> volatile_fields;
};
[[nodiscard]] FieldTexts FieldTextsFor(const SourceConfig& source);

/// "sha256:" and the digest of the body in hex: the key of an event that has none.
[[nodiscard]] std::string DigestKey(std::string_view body);

/// One source's fields, compiled. Thread-safe.
///
/// A body is parsed at most once, and only where a pointer needs it. Of a repeated JSON key the last counts. Text is
/// taken as it is, booleans as true and false, integers of 64 bits exactly; any other number would have passed through
/// binary floating point, so an event whose key, kind, subject or account is one is `invalid`. So is an event whose key
/// is configured and absent, or whose key, kind, subject or account is over 512 bytes, not UTF-8 or has control
/// characters; a field that cannot be used is left empty, and a key is then the body's digest: nothing genuine is ever
/// turned away. livemode reads booleans and "true"/"false"; occurred_at integers (unix seconds) and RFC 3339; anything
/// else is unset.
class Extractor {
 public:
  static Result<Extractor> Compile(const SourceConfig& source);
  [[nodiscard]] Extracted Extract(std::span<const Header> headers, std::string_view body) const;
  [[nodiscard]] std::span<const JsonPath> volatile_fields() const { return volatile_fields_; }

 private:
  FieldSpec key_, kind_, subject_, account_, livemode_, occurred_at_;
  std::string key_text_;  // as configured, for messages
  std::vector<JsonPath> volatile_fields_;
  bool needs_json_ = false;
  bool require_live_ = false;
};

}  // namespace dlo::intake
