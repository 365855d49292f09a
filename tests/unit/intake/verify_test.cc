#include "intake/verify.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/encoding.h"
#include "env/random.h"
#include "intake/sign.h"

namespace dlo::intake {
namespace {

using std::chrono::seconds;

const Time kNow = Time(seconds(1'700'000'000));
const std::string kSecret = "whsec_0123456789abcdefghijklmnop";
const std::string kWhsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const std::string kBody = R"({"id":"evt_1","type":"invoice.paid","amount":1000})";

HmacSettings Timestamped() {
  HmacSettings s;
  s.signature_header = "X-Signature";
  s.timestamp_header = "X-Timestamp";
  s.id_header = "X-Id";
  s.signed_template = "v0:{id}:{timestamp}:{body}";
  s.hash = "sha512";
  s.encoding = "base64";
  s.prefix = "v0=";
  return s;
}

SourceConfig Source(std::string scheme, std::vector<std::string> secrets, HmacSettings hmac = {}) {
  SourceConfig source;
  source.name = "s";
  source.scheme = std::move(scheme);
  source.hmac = std::move(hmac);
  for (std::size_t i = 0; i < secrets.size(); ++i) {
    source.secrets.push_back({"secrets[" + std::to_string(i) + "]", secrets[i]});
  }
  return source;
}

Verifier Make(const SourceConfig& source) {
  return OrThrow(Verifier::Compile(source));
}
Signer MakeSigner(const SourceConfig& source, const std::string& secret) {
  return OrThrow(Signer::Compile(source.scheme, source.hmac, secret));
}
std::vector<Header> Sign(const SourceConfig& source, const std::string& secret, Time at,
                         std::string_view body = kBody) {
  return MakeSigner(source, secret).Sign(body, at, "msg_1");
}

// "ok", or the name of the reason.
std::string Judge(const SourceConfig& source, const std::vector<Header>& headers, std::string_view body = kBody,
                  Time now = kNow) {
  const auto verdict = Make(source).Verify(headers, body, now);
  return verdict ? "ok" : std::string(Name(verdict.error()));
}

struct Case {
  SourceConfig source;
  std::string secret;
};

std::vector<Case> AllSchemes() {
  HmacSettings pairs;
  pairs.signature_header = "Paddle-Signature";
  pairs.signature_format = "pairs";
  pairs.pair_separator = ";";
  pairs.timestamp_name = "ts";
  pairs.signature_name = "h1";
  pairs.signed_template = "{timestamp}:{body}";
  pairs.timestamp_unit = "ms";
  HmacSettings list;
  list.signature_header = "X-Signature";
  list.signature_format = "list";
  list.prefix = "sha1=";
  list.hash = "sha1";
  list.key_decoding = "hex";
  return {{Source("stripe", {kSecret}), kSecret},
          {Source("standard-webhooks", {kWhsec}), kWhsec},
          {Source("github", {kSecret}), kSecret},
          {Source("hmac", {kSecret}, Timestamped()), kSecret},
          {Source("hmac", {kSecret}, pairs), kSecret},
          {Source("hmac", {"00112233445566778899aAbBcCdDeEfF"}, list), "00112233445566778899aabbccddeeff"}};
}

TEST(Verify, AcceptsWhatTheSignerOfTheSameSchemeMade) {
  for (const auto& [source, secret] : AllSchemes()) {
    SCOPED_TRACE(source.scheme + " " + source.hmac.signature_header);
    const auto verdict = Make(source).Verify(Sign(source, secret, kNow), kBody, kNow);
    ASSERT_TRUE(verdict) << Name(verdict.error());
    EXPECT_TRUE(verdict->verified);
    EXPECT_EQ(verdict->scheme, source.scheme);
    EXPECT_EQ(verdict->secret_id, "secrets[0]");
    const bool timed = source.scheme != "github" && source.hmac.hash != "sha1";
    EXPECT_EQ(verdict->signed_at, timed ? std::optional(kNow) : std::nullopt);
  }
}

TEST(Verify, NoneAcceptsAnythingAndSaysUnverified) {
  const auto verdict = Make(Source("none", {})).Verify({}, "\0\xff", kNow);
  ASSERT_TRUE(verdict);
  EXPECT_FALSE(verdict->verified);
  EXPECT_EQ(verdict->scheme, "none");
}

TEST(Verify, AnyChangedBitOfTheBodyIsRejected) {
  for (const auto& [source, secret] : AllSchemes()) {
    const auto headers = Sign(source, secret, kNow);
    const auto verifier = Make(source);
    for (std::size_t i = 0; i < kBody.size(); ++i) {
      auto body = kBody;
      body[i] = static_cast<char>(body[i] ^ (1 << (i % 8)));
      const auto verdict = verifier.Verify(headers, body, kNow);
      ASSERT_FALSE(verdict) << source.scheme << " byte " << i;
      EXPECT_EQ(verdict.error(), RejectReason::no_match);
    }
    EXPECT_FALSE(verifier.Verify(headers, kBody + " ", kNow));
    EXPECT_FALSE(verifier.Verify(headers, kBody.substr(1), kNow));
    EXPECT_FALSE(verifier.Verify(headers, "", kNow));
  }
}

// Flips every byte of every header the signature rests on. Hex may change case, and so bit 5 is not flipped.
TEST(Verify, AnyChangedByteOfASignedHeaderIsRejected) {
  for (const auto& [source, secret] : AllSchemes()) {
    const auto headers = Sign(source, secret, kNow);
    const auto verifier = Make(source);
    for (std::size_t h = 0; h < headers.size(); ++h) {
      for (std::size_t i = 0; i < headers[h].value.size(); ++i) {
        for (const int bit : {0, 1, 2, 3, 4, 6, 7}) {
          auto changed = headers;
          changed[h].value[i] = static_cast<char>(changed[h].value[i] ^ (1 << bit));
          EXPECT_FALSE(verifier.Verify(changed, kBody, kNow))
              << source.scheme << " " << changed[h].name << ": " << changed[h].value;
        }
      }
    }
  }
}

TEST(Verify, NoRandomHeaderOrBodyIsEverAccepted) {
  constexpr std::uint64_t kSeed = 20261130;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  SeededRandom random(kSeed);
  const std::string alphabet = "t=v10,; .sha256=abcdefABCDEF0123456789+/=\x01\xff";
  for (const auto& [source, secret] : AllSchemes()) {
    const auto verifier = Make(source);
    const auto good = Sign(source, secret, kNow);
    for (int round = 0; round < 2'000; ++round) {
      auto headers = good;
      auto& value = headers[random.Next() % headers.size()].value;
      const auto original = value;
      value.clear();
      const auto length = random.Next() % 100;
      for (std::size_t i = 0; i < length; ++i) value += alphabet[random.Next() % alphabet.size()];
      if (Trimmed(value) == original) continue;
      EXPECT_FALSE(verifier.Verify(headers, kBody, kNow)) << value;
    }
  }
}

struct HostileRow {
  std::string scheme;
  std::vector<Header> headers;
  std::string expected;
};

TEST(Verify, HostileHeadersGetTheirReason) {
  const std::string hex(64, 'a');
  const std::string t = "1700000000";
  const std::string b64 = Base64Encode(std::string(32, 'x'));
  const auto std_headers = [](std::string id, std::string ts, std::string signature) {
    return std::vector<Header>{{"webhook-id", std::move(id)},
                               {"webhook-timestamp", std::move(ts)},
                               {"webhook-signature", std::move(signature)}};
  };
  const std::string stripe = "Stripe-Signature";
  const std::string github = "X-Hub-Signature-256";
  const std::vector<HostileRow> rows = {
      {"stripe", {}, "missing_header"},
      {"stripe", {{"X-Stripe-Signature", "t=1,v1=" + hex}}, "missing_header"},
      {"stripe", {{stripe, ""}}, "malformed"},
      {"stripe", {{stripe, std::string(100'000, ',')}}, "malformed"},
      {"stripe", {{stripe, "v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=" + t}}, "malformed"},
      {"stripe", {{stripe, "t=" + t + ",v1="}}, "malformed"},
      {"stripe", {{stripe, "t=" + t + ",v0=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=" + t + ",V1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=" + t + ",t=" + t + ",v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=+1700000000,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=-1,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=1700000000.5,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=NaN,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=0x10,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=253402300800,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=253402300799,v1=" + hex}}, "no_match"},
      {"stripe", {{stripe, "t=9223372036854775808,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=18446744073709551616,v1=" + hex}}, "malformed"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex.substr(1)}}, "bad_encoding"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex + "aa"}}, "bad_encoding"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex.substr(2) + "zz"}}, "bad_encoding"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex}}, "no_match"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex}, {stripe, "t=" + t + ",v1=" + hex}}, "duplicate_header"},
      {"stripe", {{stripe, "t=" + t + ",v1=" + hex}, {"stripe-signature", ""}}, "duplicate_header"},
      {"github", {{"X-Hub-Signature", "sha1=" + hex.substr(24)}}, "missing_header"},
      {"github", {{github, hex}}, "malformed"},
      {"github", {{github, "sha256="}}, "malformed"},
      {"github", {{github, "sha1=" + hex.substr(24)}}, "malformed"},
      {"github", {{github, "sha256=" + hex + "," + hex}}, "bad_encoding"},
      {"github", {{github, "sha256=" + hex}}, "no_match"},
      {"standard-webhooks", {{"webhook-id", "m"}, {"webhook-timestamp", t}}, "missing_header"},
      {"standard-webhooks", {{"webhook-id", "m"}, {"webhook-signature", "v1," + b64}}, "missing_header"},
      {"standard-webhooks", {{"webhook-timestamp", t}, {"webhook-signature", "v1," + b64}}, "missing_header"},
      {"standard-webhooks", std_headers("", t, "v1," + b64), "malformed"},
      {"standard-webhooks", std_headers("a\x01", t, "v1," + b64), "malformed"},
      {"standard-webhooks", std_headers("a.1.{\"x\":\"y", t, "v1," + b64), "malformed"},
      {"standard-webhooks", std_headers("m", t, "v2," + b64), "malformed"},
      {"standard-webhooks", std_headers("m", t, "v1a," + b64), "unknown_key"},
      {"standard-webhooks", std_headers("m", t, "v1=" + b64), "malformed"},
      {"standard-webhooks", std_headers("m", t, "v1,"), "malformed"},
      {"standard-webhooks", std_headers("m", t, "v1," + b64.substr(0, 43)), "bad_encoding"},
      {"standard-webhooks", std_headers("m", t, "v1," + b64 + "\n"), "bad_encoding"},
      {"standard-webhooks", std_headers("m", t, "v1," + b64), "no_match"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.scheme + " " + (row.headers.empty() ? "" : row.headers.back().value.substr(0, 120)));
    EXPECT_EQ(Judge(Source(row.scheme, {kWhsec}), row.headers), row.expected);
  }
}

TEST(Verify, SignaturesOverTheBoundAreMalformedAndAtTheBoundAreTried) {
  const auto source = Source("stripe", {kSecret});
  auto headers = Sign(source, kSecret, kNow);
  const std::string wrong = ",v1=" + std::string(64, '0');
  const auto filled = [&](int n) {
    std::string value = "t=1700000000";
    for (int i = 0; i < n; ++i) value += wrong;
    return value + headers[0].value.substr(headers[0].value.find(','));
  };
  EXPECT_EQ(Judge(source, {{"Stripe-Signature", filled(31)}}), "ok");
  EXPECT_EQ(Judge(source, {{"Stripe-Signature", filled(32)}}), "malformed");
}

TEST(Verify, HeaderNamesAreMatchedWithoutCaseAndHexInEither) {
  const auto source = Source("github", {kSecret});
  auto headers = Sign(source, kSecret, kNow);
  headers[0].name = "x-hUB-sIGNATURE-256";
  for (std::size_t i = 7; i < headers[0].value.size(); ++i) {
    auto& c = headers[0].value[i];
    if (c >= 'a') c = static_cast<char>(c - 'a' + 'A');
  }
  EXPECT_EQ(Judge(source, headers), "ok");
}

// Otherwise a captured delivery could be stored again under an id of the attacker's choice: the key is read by name.
TEST(Verify, AnIdInTwoSpellingsMustBeOne) {
  const auto source = Source("standard-webhooks", {kWhsec});
  auto headers = Sign(source, kWhsec, kNow);
  for (auto& header : headers) header.name.replace(0, 7, "svix");
  EXPECT_EQ(Judge(source, headers), "ok");
  headers.push_back({"webhook-id", "msg_1"});
  EXPECT_EQ(Judge(source, headers), "ok");
  headers.back().value = "msg_2";
  EXPECT_EQ(Judge(source, headers), "duplicate_header");
}

TEST(Verify, StripeNeverTakesV0EvenWhenItsBytesAreRight) {
  const auto source = Source("stripe", {kSecret});
  auto headers = Sign(source, kSecret, kNow);
  auto& value = headers[0].value;
  value.replace(value.find("v1="), 3, "v0=");
  EXPECT_EQ(Judge(source, headers), "malformed");
  EXPECT_EQ(Judge(source, {{"Stripe-Signature", value + ",v1=" + std::string(64, '0')}}), "no_match");
}

TEST(Verify, StripeUsesTheSecretAsItIsWritten) {
  const auto source = Source("stripe", {kWhsec});
  HmacSettings decoded;
  decoded.signature_header = "Stripe-Signature";
  decoded.signature_format = "pairs";
  decoded.signed_template = "{timestamp}.{body}";
  EXPECT_EQ(Judge(source, Sign(Source("hmac", {}, decoded), kWhsec, kNow)), "ok");
  decoded.key_decoding = "whsec";
  EXPECT_EQ(Judge(source, Sign(Source("hmac", {}, decoded), kWhsec, kNow)), "no_match");
}

TEST(Verify, RotationTriesEverySecretAgainstEverySignatureAndNamesTheOneThatMatched) {
  const std::string old_secret = "old_secret_0123456789", new_secret = "new_secret_0123456789",
                    other = "other_secret_0123456";
  const auto source = Source("stripe", {new_secret, old_secret});
  const auto by = [&](const std::string& secret) { return Sign(source, secret, kNow)[0].value; };
  const auto both = [&](const std::string& a, const std::string& b) {
    const auto second = by(b);
    return std::vector<Header>{{"Stripe-Signature", by(a) + second.substr(second.find(','))}};
  };
  struct Row {
    std::vector<Header> headers;
    std::string matched;
  };
  const std::vector<Row> rows = {{{{"Stripe-Signature", by(new_secret)}}, "secrets[0]"},
                                 {{{"Stripe-Signature", by(old_secret)}}, "secrets[1]"},
                                 {both(old_secret, new_secret), "secrets[0]"},
                                 {both(other, old_secret), "secrets[1]"},
                                 {both(other, other), ""},
                                 {{{"Stripe-Signature", by(other)}}, ""}};
  for (const auto& row : rows) {
    const auto verdict = Make(source).Verify(row.headers, kBody, kNow);
    EXPECT_EQ(verdict ? verdict->secret_id : "", row.matched);
  }
}

TEST(Verify, ToleranceIsTwoSidedAndInclusive) {
  struct Row {
    int past, future, age;  // seconds; age > 0: signed in the past
    std::string expected;
  };
  const std::vector<Row> rows = {{300, 300, 299, "ok"},
                                 {300, 300, 300, "ok"},
                                 {300, 300, 301, "too_old"},
                                 {300, 300, -299, "ok"},
                                 {300, 300, -300, "ok"},
                                 {300, 300, -301, "too_far_ahead"},
                                 {0, 300, 100'000'000, "ok"},
                                 {0, 300, -301, "too_far_ahead"},
                                 {300, 0, -100'000'000, "ok"},
                                 {300, 0, 301, "too_old"},
                                 {1, 1, 0, "ok"},
                                 {1, 1, 2, "too_old"},
                                 {1, 1, -2, "too_far_ahead"}};
  for (auto& [scheme, secret] : AllSchemes()) {
    if (scheme.scheme == "github" || scheme.hmac.hash == "sha1") continue;
    auto source = scheme;
    for (const auto& row : rows) {
      SCOPED_TRACE(source.scheme + " age " + std::to_string(row.age));
      source.tolerance_past = seconds(row.past);
      source.tolerance_future = seconds(row.future);
      EXPECT_EQ(Judge(source, Sign(source, secret, kNow - seconds(row.age)), kBody), row.expected);
    }
  }
}

TEST(Verify, ATimeInWholeSecondsIsJudgedInWholeSeconds) {
  const auto source = Source("stripe", {kSecret});
  const auto headers = Sign(source, kSecret, kNow);
  EXPECT_EQ(Judge(source, headers, kBody, kNow + seconds(300) + std::chrono::milliseconds(999)), "ok");
  EXPECT_EQ(Judge(source, headers, kBody, kNow + seconds(301)), "too_old");
}

TEST(Verify, AForgeryIsNoMatchHoweverOldItSaysItIs) {
  const auto source = Source("stripe", {kSecret});
  EXPECT_EQ(Judge(source, {{"Stripe-Signature", "t=5,v1=" + std::string(64, 'a')}}), "no_match");
}

TEST(Verify, Ed25519AndHmacSignaturesLiveSideBySide) {
  // The seed of RFC 8032's first example, as a Standard Webhooks key pair.
  const std::string seed = *HexDecode("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60");
  const std::string pub = *HexDecode("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a");
  const std::string whsk = "whsk_" + Base64Encode(seed + pub), whpk = "whpk_" + Base64Encode(pub);
  const auto asymmetric = Source("standard-webhooks", {whpk});
  const auto both = Source("standard-webhooks", {kWhsec, whpk});
  const auto signed_v1a = Sign(asymmetric, whsk, kNow);
  EXPECT_TRUE(signed_v1a.back().value.starts_with("v1a,"));
  EXPECT_EQ(Judge(asymmetric, signed_v1a), "ok");
  const auto verdict = Make(both).Verify(signed_v1a, kBody, kNow);
  ASSERT_TRUE(verdict);
  EXPECT_EQ(verdict->secret_id, "secrets[1]");
  EXPECT_EQ(Judge(asymmetric, signed_v1a, kBody + " "), "no_match");
  const auto signed_v1 = Sign(both, kWhsec, kNow);
  EXPECT_EQ(Judge(both, signed_v1), "ok");
  EXPECT_EQ(Judge(asymmetric, signed_v1), "unknown_key");
  auto mixed = signed_v1;
  mixed.back().value += " " + signed_v1a.back().value;
  EXPECT_EQ(Judge(asymmetric, mixed), "ok");
}

TEST(Sign, ErrorsNameTheRuleAndNeverTheSecret) {
  const auto secret_of = [](const char* scheme, const std::string& secret) {
    const auto signer = Signer::Compile(scheme, {}, secret);
    return signer ? std::string("ok") : signer.error().message;
  };
  EXPECT_EQ(secret_of("stripe", ""), "the secret is empty");
  EXPECT_EQ(secret_of("standard-webhooks", "whsec_not*base64"),
            "the secret is not base64 with padding, as the scheme's key decoding demands");
  EXPECT_EQ(secret_of("standard-webhooks", "whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4="),
            "the secret is a public key (whpk_); signing needs the secret one (whsk_)");
  EXPECT_EQ(secret_of("none", ""), "ok");
  EXPECT_NE(secret_of("nonsense", "x").find("not known"), std::string::npos);
}

}  // namespace
}  // namespace dlo::intake
