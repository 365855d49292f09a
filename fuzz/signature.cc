// Headers and body as a stranger sends them, against every form of scheme. Nothing may crash, and nothing unsigned may
// pass.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "intake/verify.h"

namespace {

using namespace dlo;

intake::Verifier Make(const std::string& scheme, const std::string& secret, const HmacSettings& hmac = {}) {
  SourceConfig source;
  source.name = "fuzz";
  source.scheme = scheme;
  source.hmac = hmac;
  source.secrets = {{"secrets[0]", secret}};
  if (scheme == "standard-webhooks") {
    source.secrets.push_back({"secrets[1]", "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="});
  }
  return OrThrow(intake::Verifier::Compile(source));
}

HmacSettings List() {
  HmacSettings s;
  s.signature_header = "Stripe-Signature";
  s.signature_format = "list";
  s.prefix = "v1=";
  s.timestamp_header = "webhook-timestamp";
  s.id_header = "webhook-id";
  s.signed_template = "{id}{timestamp}{body}";
  s.timestamp_unit = "ms";
  s.encoding = "base64";
  return s;
}

// The next line of the input; the rest is the body.
std::string Line(std::string_view& input) {
  const auto end = input.find('\n');
  std::string line(input.substr(0, end));
  input.remove_prefix(end == std::string_view::npos ? input.size() : end + 1);
  return line;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::string kSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
  static const std::vector<intake::Verifier> kVerifiers = {Make("stripe", kSecret), Make("standard-webhooks", kSecret),
                                                           Make("github", kSecret), Make("hmac", kSecret, List())};
  std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::string signature = Line(input);
  const std::vector<Header> headers = {{"Stripe-Signature", signature},
                                       {"X-Hub-Signature-256", signature},
                                       {"webhook-signature", signature},
                                       {"webhook-timestamp", Line(input)},
                                       {"webhook-id", Line(input)}};
  for (const auto& verifier : kVerifiers) {
    const auto verdict = verifier.Verify(headers, input, Time(std::chrono::seconds(1'614'265'330)));
    if (verdict) std::abort();  // a forged MAC: the fuzzer does not know the secret
  }
  return 0;
}
