#include "intake/check_source.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace dlo::intake {
namespace {

SourceConfig Good() {
  SourceConfig source;
  source.name = "stripe";
  source.scheme = "stripe";
  source.secrets = {{"secrets[0]", "whsec_0123456789abcdef"}};
  return source;
}

SourceConfig GoodHmac() {
  auto source = Good();
  source.scheme = "hmac";
  source.hmac.signature_header = "X-Signature";
  return source;
}

std::string Broken(const SourceConfig& source) {
  const auto checked = CheckSource(source);
  return checked ? "ok" : checked.error().message;
}

using Change = std::function<void(SourceConfig&)>;
struct Row {
  Change change;
  std::string expected;  // "ok", or a part of the message
};

void CheckRows(const std::function<SourceConfig()>& base, const std::vector<Row>& rows) {
  for (const auto& row : rows) {
    auto source = base();
    row.change(source);
    const auto message = Broken(source);
    if (row.expected == "ok") {
      EXPECT_EQ(message, "ok");
    } else {
      EXPECT_NE(message.find(row.expected), std::string::npos) << "wanted: " << row.expected << "\ngot: " << message;
      EXPECT_TRUE(message.starts_with("source \"")) << message;
    }
    for (const auto& secret : source.secrets) {
      const bool quoted = secret.value.size() > 3 && message.find(secret.value) != std::string::npos;
      EXPECT_FALSE(quoted) << message;
    }
  }
}

TEST(CheckSource, NamesAndLimits) {
  CheckRows(Good, {
                      {[](auto&) {}, "ok"},
                      {[](auto& s) { s.name = "a"; }, "ok"},
                      {[](auto& s) { s.name = "0-_z"; }, "ok"},
                      {[](auto& s) { s.name = std::string(64, 'a'); }, "ok"},
                      {[](auto& s) { s.name = std::string(65, 'a'); }, "name must be"},
                      {[](auto& s) { s.name = ""; }, "name must be"},
                      {[](auto& s) { s.name = "-a"; }, "name must be"},
                      {[](auto& s) { s.name = "A"; }, "name must be"},
                      {[](auto& s) { s.name = "a/b"; }, "name must be"},
                      {[](auto& s) { s.name = "a\n"; }, "name must be"},
                      {[](auto& s) { s.max_body = 0; }, "max_body"},
                      {[](auto& s) { s.max_body = 1; }, "ok"},
                      {[](auto& s) { s.max_body = std::size_t{32} << 20; }, "ok"},
                      {[](auto& s) { s.max_body = (std::size_t{32} << 20) + 1; }, "max_body"},
                      {[](auto& s) { s.tolerance_past = Duration(-1); }, "tolerance"},
                      {[](auto& s) { s.tolerance_future = Duration(-1); }, "tolerance"},
                      {[](auto& s) { s.tolerance_past = Duration(0); }, "ok"},
                  });
}

TEST(CheckSource, SchemesAndSecrets) {
  CheckRows(Good,
            {
                {[](auto& s) { s.scheme = ""; }, "scheme must be set"},
                {[](auto& s) { s.scheme = "Stripe"; }, "is not known"},
                {[](auto& s) { s.secrets.clear(); }, "at least one secret"},
                {[](auto& s) { s.secrets[0].value = ""; }, "secrets[0] is empty"},
                {[](auto& s) { s.secrets.push_back({"secrets[1]", ""}); }, "secrets[1] is empty"},
                {[](auto& s) { s.secrets[0].value = "123456789012345"; }, "secrets[0] is shorter than 16"},
                {[](auto& s) { s.secrets[0].value = "1234567890123456"; }, "ok"},
                {[](auto& s) { s.secrets[0].value = std::string(40, ' '); }, "secrets[0] is blank"},
                {[](auto& s) { s.secrets[0].value = "\t\r\n\v\f" + std::string(40, '\0'); }, "is blank"},
                {[](auto& s) { s.secrets[0].value = "12345678" + std::string(40, ' '); }, "is shorter than 16"},
                {[](auto& s) { s.secrets[0].value = "1234 5678 9012 3456"; }, "ok"},
                {[](auto& s) { s.secrets.push_back({"secrets[1]", std::string(40, ' ')}); }, "secrets[1] is blank"},
                {[](auto& s) { s.scheme = "none"; }, "verifies nothing"},
                {[](auto& s) { s.scheme = "none", s.secrets.clear(); }, "ok"},
                {[](auto& s) { s.scheme = "github"; }, "ok"},
            });
  const auto standard = [] {
    auto source = Good();
    source.scheme = "standard-webhooks";
    return source;
  };
  const auto secret = [](std::string value) {
    return Change([value](SourceConfig& s) { s.secrets[0].value = value; });
  };
  CheckRows(standard, {
                          {secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "ok"},  // 24 bytes
                          {secret("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"), "ok"},
                          {secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaQ="), "24 to 64"},  // 23
                          {secret("whsec_" + std::string(84, 'A') + "AA=="), "ok"},        // 64
                          {secret("whsec_" + std::string(84, 'A') + "AAA="), "24 to 64"},  // 65
                          {secret("whsec_"), "secrets[0] is empty once decoded"},
                          {secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS"), "secrets[0] is not base64"},
                          {secret("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="), "ok"},
                          {secret("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOig=="), "32 bytes"},
                          {secret("whpk_!"), "not base64 after its prefix"},
                      });
}

TEST(CheckSource, HmacSettingsMustFitTogether) {
  CheckRows(GoodHmac,
            {
                {[](auto&) {}, "ok"},
                {[](auto& s) { s.hmac.signature_header = ""; }, "signature_header must be set"},
                {[](auto& s) { s.hmac.signature_header = "X Signature"; }, "signature_header is not a header name"},
                {[](auto& s) { s.hmac.signature_format = "json"; }, "signature_format"},
                {[](auto& s) { s.hmac.hash = "md5"; }, "hash must be"},
                {[](auto& s) { s.hmac.encoding = "base32"; }, "encoding must be"},
                {[](auto& s) { s.hmac.key_decoding = "rot13"; }, "key_decoding must be"},
                {[](auto& s) { s.hmac.key_decoding = "hex"; }, "secrets[0] is not hex"},
                {[](auto& s) { s.hmac.timestamp_unit = "us"; }, "timestamp_unit"},
                {[](auto& s) { s.hmac.signed_template = ""; }, "must contain {body}"},
                {[](auto& s) { s.hmac.signed_template = "{url}"; }, "must contain {body}"},
                {[](auto& s) { s.hmac.signed_template = "{nonce}{body}"; }, "signed_template knows"},
                {[](auto& s) { s.hmac.signed_template = "{body"; }, "signed_template knows"},
                {[](auto& s) { s.hmac.signed_template = "{timestamp}.{body}"; }, "set timestamp_header"},
                {[](auto& s) { s.hmac.timestamp_header = "X-Time"; }, "unsigned time"},
                {[](auto& s) { s.hmac.signed_template = "{id}{body}"; }, "set id_header"},
                {[](auto& s) { s.hmac.id_header = "X-Id"; }, "no {id}"},
                {[](auto& s) { s.hmac.signed_template = "{url}{body}"; }, "set url"},
                {[](auto& s) { s.hmac.signed_template = "{url}{body}", s.hmac.url = "https://a.example/in"; }, "ok"},
                {[](auto& s) { s.hmac.signature_format = "pairs", s.hmac.prefix = "x"; }, "prefix goes with"},
                {[](auto& s) { s.hmac.signature_format = "pairs", s.hmac.pair_separator = "=="; }, "pair_separator"},
                {[](auto& s) { s.hmac.signature_format = "pairs", s.hmac.pair_separator = "="; }, "pair_separator"},
                {[](auto& s) { s.hmac.signature_format = "pairs", s.hmac.signature_name = "t"; }, "signature_name"},
                {[](auto& s) { s.hmac.signature_format = "pairs"; }, "ok"},
            });
}

TEST(CheckSource, FieldsMustBeWellFormed) {
  CheckRows(Good, {
                      {[](auto& s) { s.key = ""; }, "ok"},
                      {[](auto& s) { s.key = "header:X-Id|/id"; }, "ok"},
                      {[](auto& s) { s.key = "id"; }, "key: \"id\": a JSON pointer begins"},
                      {[](auto& s) { s.key = "/a~2b"; }, "key: "},
                      {[](auto& s) { s.kind = "/a|"; }, "kind: "},
                      {[](auto& s) { s.subject = "header:"; }, "subject: "},
                      {[](auto& s) { s.subject = "/a?/b"; }, "a condition is written"},
                      {[](auto& s) { s.account = "/a+"; }, "account: "},
                      {[](auto& s) { s.occurred_at = "created"; }, "occurred_at: "},
                      {[](auto& s) { s.volatile_fields = {"attempt"}; }, "volatile_fields: "},
                      {[](auto& s) { s.volatile_fields = {"/attempt_number", "/a/0/b~1c"}; }, "ok"},
                      {[](auto& s) { s.require_live = true; }, "ok"},
                      {[](auto& s) { s.require_live = true, s.livemode = ""; }, "where an event's mode is"},
                  });
}

}  // namespace
}  // namespace dlo::intake
