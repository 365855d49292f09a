#include "intake/check_source.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/encoding.h"
#include "intake/extract.h"
#include "intake/verify.h"

namespace dlo::intake {
namespace {

bool IsSourceName(const std::string& name) {
  const auto first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= 64 && first(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return first(c) || c == '_' || c == '-'; });
}

}  // namespace

std::string WeakSecret(const Scheme& scheme, std::string_view value) {
  const bool standard = scheme.format == SignatureFormat::versioned;
  if (standard && (value.starts_with("whpk_") || value.starts_with("whsk_"))) return {};
  const auto visible = std::ranges::count_if(value, [](unsigned char c) { return c > ' '; });
  if (visible == 0) return "is blank: use the provider's secret";
  const auto bytes = scheme.key_decoding == KeyDecoding::text
                         ? static_cast<std::size_t>(visible)
                         : DecodeSecret(scheme.key_decoding, value).value_or(std::string()).size();
  if (standard && (bytes < 24 || bytes > 64)) return "must be 24 to 64 bytes once decoded (Standard Webhooks)";
  if (bytes < kMinSecretBytes) return "is shorter than 16 bytes: use the provider's secret, or a longer one";
  return {};
}

Result<void> CheckSource(const SourceConfig& source) {
  const auto broken = [&](const std::string& rule) {
    return Fail(ErrorKind::invalid, "bad_source", "source \"" + CleanText(source.name, 64) + "\": " + rule);
  };
  if (!IsSourceName(source.name)) {
    return broken("name must be 1 to 64 of a-z, 0-9, '_' and '-', beginning with a letter or a digit");
  }
  const auto verifier = Verifier::Compile(source);
  if (!verifier) return broken(verifier.error().message);
  const auto scheme = CompileScheme(source.scheme, source.hmac);
  if (!scheme) return broken(scheme.error().message);
  if (scheme->signs) {
    for (std::size_t i = 0; i < source.secrets.size(); ++i) {
      const auto rule = WeakSecret(*scheme, source.secrets[i].value);
      if (!rule.empty()) return broken("secrets[" + std::to_string(i) + "] " + rule);
    }
  } else if (!source.secrets.empty()) {
    return broken("scheme = \"none\" verifies nothing, yet secrets are set: name a scheme, or remove them");
  }
  if (source.tolerance_past < Duration::zero() || source.tolerance_future < Duration::zero()) {
    return broken("tolerance must not be negative (0 = no age check)");
  }
  if (source.max_body == 0 || source.max_body > kMaxBodyCeiling) return broken("max_body must be 1 byte to 32 MiB");
  const auto extractor = Extractor::Compile(source);
  if (!extractor) return broken(extractor.error().message);
  if (source.require_live && FieldTextsFor(source).livemode.empty()) {
    return broken("livemode = true takes live events only, but nothing says where an event's mode is");
  }
  return {};
}

}  // namespace dlo::intake
