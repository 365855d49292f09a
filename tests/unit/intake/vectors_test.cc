// Every known request of tests/vectors/signatures.json, by the engine that the server uses.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "intake/verify.h"

namespace dlo::intake {
namespace {

namespace json = boost::json;

std::string Text(const json::value& value) {
  return json::value_to<std::string>(value);
}

json::value Load() {
  std::ifstream file(DLO_SOURCE_DIR "/tests/vectors/signatures.json");
  std::stringstream text;
  text << file.rdbuf();
  return json::parse(text.str());
}

SourceConfig SourceOf(const json::object& settings, const json::object& vector) {
  SourceConfig source;
  source.name = "vector";
  source.scheme = "hmac";
  HmacSettings& h = source.hmac;
  const std::map<std::string, std::string*> fields = {{"scheme", &source.scheme},
                                                      {"signature_header", &h.signature_header},
                                                      {"signature_format", &h.signature_format},
                                                      {"prefix", &h.prefix},
                                                      {"pair_separator", &h.pair_separator},
                                                      {"timestamp_name", &h.timestamp_name},
                                                      {"signature_name", &h.signature_name},
                                                      {"timestamp_header", &h.timestamp_header},
                                                      {"signed_template", &h.signed_template},
                                                      {"hash", &h.hash},
                                                      {"encoding", &h.encoding},
                                                      {"key_decoding", &h.key_decoding}};
  for (const auto& [name, value] : settings) *fields.at(std::string(name)) = Text(value);
  if (const auto* url = vector.if_contains("notification_url")) h.url = Text(*url);
  if (const auto* tolerance = vector.if_contains("tolerance_s")) {
    source.tolerance_past = source.tolerance_future = std::chrono::seconds(tolerance->as_int64());
  }
  const auto& secret = vector.at("secret");
  if (secret.is_string()) {
    source.secrets.push_back({"secrets[0]", Text(secret)});
  } else {
    for (const auto& one : secret.as_array()) {
      source.secrets.push_back({"secrets[" + std::to_string(source.secrets.size()) + "]", Text(one)});
    }
  }
  return source;
}

TEST(SignatureVectors, EachIsJudgedAsPublishedAndForTheRightReason) {
  const auto file = Load();
  const auto& settings = file.at("settings").as_object();
  int valid = 0, invalid = 0;
  for (const auto& entry : file.at("vectors").as_array()) {
    const auto& vector = entry.as_object();
    const auto* note = vector.if_contains("note");
    SCOPED_TRACE(Text(vector.at("id")) + ": " + (note != nullptr ? Text(*note) : ""));
    const auto source = SourceOf(settings.at(Text(vector.at("use"))).as_object(), vector);
    const auto verifier = Verifier::Compile(source);
    ASSERT_TRUE(verifier) << verifier.error().message;
    std::vector<Header> headers;
    for (const auto& [name, value] : vector.at("headers").as_object()) headers.push_back({name, Text(value)});
    const auto body = Base64Decode(Text(vector.at("body_base64")));
    ASSERT_TRUE(body);
    const auto* now = vector.if_contains("now");
    const auto verdict =
        verifier->Verify(headers, *body, Time(std::chrono::seconds(now != nullptr ? now->as_int64() : 0)));
    if (vector.at("expected").as_string() == "valid") {
      ++valid;
      EXPECT_TRUE(verdict) << Name(verdict.error());
    } else {
      ++invalid;
      ASSERT_FALSE(verdict);
      EXPECT_EQ(Name(verdict.error()), Text(vector.at("reason")));
    }
  }
  EXPECT_EQ(valid, 57);
  EXPECT_EQ(invalid, 37);
}

}  // namespace
}  // namespace dlo::intake
