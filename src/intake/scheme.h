// The one scheme engine. A scheme says where the signatures, the timestamp and the id of a delivery are, which bytes
// were signed, and how keys and signatures are written; verifying (verify.h) and signing (sign.h) both read it. A
// provider is a row of settings, never code.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "intake/keys.h"

namespace dlo::intake {

enum class SignatureFormat : unsigned char {
  plain,      // prefix + signature
  list,       // comma-separated, each prefix + signature
  pairs,      // "t=..,v1=..[,v1=..]"
  versioned,  // Standard Webhooks: space-separated "v1,<base64>" and "v1a,<base64>"
};

enum class Encoding : unsigned char { hex, base64 };
enum class KeyDecoding : unsigned char { text, hex, base64, whsec };

/// The signed bytes: literals and fields in order.
class Template {
 public:
  static constexpr std::size_t kMaxParts = 16;
  struct Fields {
    std::string_view timestamp, id, body, url;
  };
  struct Joined {
    std::array<std::string_view, kMaxParts> parts;
    std::size_t count = 0;
    [[nodiscard]] std::span<const std::string_view> span() const { return {parts.data(), count}; }
    [[nodiscard]] std::string Text() const;  // a copy, for signatures that cannot be computed part by part
  };

  static Result<Template> Parse(std::string_view text);
  /// Views into this template and into `fields`; nothing is copied.
  [[nodiscard]] Joined Fill(const Fields& fields) const;
  [[nodiscard]] bool uses_timestamp() const { return Uses(Part::timestamp); }
  [[nodiscard]] bool uses_id() const { return Uses(Part::id); }
  [[nodiscard]] bool uses_body() const { return Uses(Part::body); }
  [[nodiscard]] bool uses_url() const { return Uses(Part::url); }

 private:
  enum class Part : unsigned char { literal, timestamp, id, body, url };
  struct Piece {
    Part part = Part::literal;
    std::string literal;
  };
  [[nodiscard]] bool Uses(Part part) const;
  std::vector<Piece> pieces_;
};

/// Settings, checked and compiled. Header names come in lists: a scheme may have two spellings of one header
/// (webhook-id, svix-id); the first is the one we write.
struct Scheme {
  std::string name;
  bool signs = true;  // false: scheme "none"
  SignatureFormat format = SignatureFormat::plain;
  std::vector<std::string> signature_headers, timestamp_headers, id_headers;
  std::string prefix, timestamp_name, signature_name, url;
  char pair_separator = ',';
  Template signed_bytes;
  std::string hash;
  Encoding encoding = Encoding::hex;
  KeyDecoding key_decoding = KeyDecoding::text;
  bool milliseconds = false;
};

/// `name`: stripe | standard-webhooks | github | hmac | none. `hmac` is read for "hmac" only. Error invalid names the
/// setting and the rule it broke.
Result<Scheme> CompileScheme(std::string_view name, const HmacSettings& hmac);
[[nodiscard]] std::span<const std::string_view> SchemeNames();

enum class KeyUse : unsigned char { verify, sign };
using Key = std::variant<HmacKey, Ed25519Key>;

/// The bytes of a secret under a scheme's key decoding; nullopt when it is not written that way.
[[nodiscard]] std::optional<std::string> DecodeSecret(KeyDecoding decoding, std::string_view secret);
/// Never empty, nor undecodable; its length is CheckSource's business. With standard-webhooks, "whpk_" (verify) and
/// "whsk_" (sign, or verify) make an Ed25519 key. The error never quotes the secret.
Result<Key> CompileKey(const Scheme& scheme, std::string_view secret, KeyUse use);

[[nodiscard]] bool EqualIgnoringCase(std::string_view a, std::string_view b);
/// Without spaces and tabs at both ends.
[[nodiscard]] std::string_view Trimmed(std::string_view text);
/// Digits only, no sign, no overflow; nullopt otherwise.
[[nodiscard]] std::optional<std::int64_t> ParseDigits(std::string_view text);
/// Of a unix time in seconds; nullopt after the year 9999.
[[nodiscard]] std::optional<Time> TimeFromSeconds(std::int64_t seconds);

}  // namespace dlo::intake
