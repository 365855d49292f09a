#include "intake/sign.h"

#include <cassert>
#include <utility>

#include "base/encoding.h"

namespace dlo::intake {

Result<Signer> Signer::Compile(std::string_view scheme, const HmacSettings& hmac, std::string_view secret) {
  auto compiled = CompileScheme(scheme, hmac);
  if (!compiled) return std::unexpected(compiled.error());
  Signer made;
  made.scheme_ = std::move(*compiled);
  if (!made.scheme_.signs) return made;
  auto key = CompileKey(made.scheme_, secret, KeyUse::sign);
  if (!key) return Fail(ErrorKind::invalid, key.error().code, "the secret " + key.error().message);
  made.key_ = std::move(*key);
  return made;
}

std::vector<Header> Signer::Sign(std::string_view body, Time now, std::string_view id) const {
  std::vector<Header> headers;
  if (!scheme_.signs) return headers;
  const auto since = now.time_since_epoch();
  const auto unit = scheme_.milliseconds ? std::chrono::floor<std::chrono::milliseconds>(since).count()
                                         : std::chrono::floor<std::chrono::seconds>(since).count();
  const std::string timestamp = std::to_string(unit);
  const auto joined = scheme_.signed_bytes.Fill({.timestamp = timestamp, .id = id, .body = body, .url = scheme_.url});
  const auto* hmac = std::get_if<HmacKey>(&key_);
  std::string signature;
  if (hmac != nullptr) {
    const auto mac = hmac->Compute(joined.span());
    signature = scheme_.encoding == Encoding::hex ? HexEncode(mac.view()) : Base64Encode(mac.view());
  } else {
    signature = Base64Encode(std::get<Ed25519Key>(key_).Sign(joined.Text()));
  }

  if (!scheme_.id_headers.empty()) headers.push_back({scheme_.id_headers.front(), std::string(id)});
  if (!scheme_.timestamp_headers.empty()) headers.push_back({scheme_.timestamp_headers.front(), timestamp});
  std::string value;
  switch (scheme_.format) {
    case SignatureFormat::plain:
    case SignatureFormat::list:
      value = scheme_.prefix + signature;
      break;
    case SignatureFormat::pairs:
      if (scheme_.signed_bytes.uses_timestamp() && scheme_.timestamp_headers.empty()) {
        value = scheme_.timestamp_name + "=" + timestamp + scheme_.pair_separator;
      }
      value += scheme_.signature_name + "=" + signature;
      break;
    case SignatureFormat::versioned:
      value = (hmac != nullptr ? "v1," : "v1a,") + signature;
      break;
  }
  headers.push_back({scheme_.signature_headers.front(), std::move(value)});
  return headers;
}

}  // namespace dlo::intake
