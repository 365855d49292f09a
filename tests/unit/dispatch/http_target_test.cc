#include "dispatch/http_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fakes.h"

namespace dlo::dispatch {
namespace {

using std::chrono::hours;
using std::chrono::seconds;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr Time kNow = Time(seconds(784'111'777));  // Sun, 06 Nov 1994 08:49:37 GMT
constexpr char kSecret[] = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

Delivery Made() {
  auto receipt = std::make_shared<Receipt>();
  receipt->id = 42;
  receipt->source = "stripe";
  receipt->key = "evt_1";
  receipt->kind = "invoice.paid";
  receipt->received_at = kNow - seconds(90);
  receipt->verdict.verified = true;
  receipt->headers = {{"Content-Type", "application/json"}, {"Stripe-Signature", "t=1,v1=ab"}, {"Host", "dlo:8686"}};
  receipt->body = R"({"id":"evt_1"})";
  Delivery delivery;
  delivery.receipt = receipt;
  delivery.attempt = 3;
  delivery.age = seconds(90);
  return delivery;
}

Delivery WithHeaders(std::vector<Header> headers) {
  Delivery delivery = Made();
  auto receipt = std::make_shared<Receipt>(*delivery.receipt);
  receipt->headers = std::move(headers);
  delivery.receipt = receipt;
  return delivery;
}

TEST(BuildHeaders, OfALiveEvent) {
  EXPECT_THAT(BuildHeaders(Made(), nullptr, kNow),
              testing::ElementsAre("Content-Type: application/json", "Stripe-Signature: t=1,v1=ab", "Dlo-Event-Id: 42",
                                   "Dlo-Source: stripe", "Dlo-Event-Key: evt_1", "Dlo-Kind: invoice.paid",
                                   "Dlo-Attempt: 3", "Dlo-Replay: false", "Dlo-Received-At: 1994-11-06T08:48:07Z",
                                   "Dlo-Age-Seconds: 90", "Dlo-Signature-Verified: true",
                                   "Dlo-Suppress-Notifications: false", "Idempotency-Key: stripe:evt_1"));
}

TEST(BuildHeaders, OfAReplay) {
  Delivery delivery = Made();
  delivery.replay = true;
  delivery.replay_id = 7;
  delivery.suppress_notifications = true;
  const auto headers = BuildHeaders(delivery, nullptr, kNow);
  EXPECT_THAT(headers, Contains("Dlo-Replay: true"));
  EXPECT_THAT(headers, Contains("Dlo-Replay-Id: 7"));
  EXPECT_THAT(headers, Contains("Dlo-Suppress-Notifications: true"));
}

TEST(BuildHeaders, OfACorrectedPayload) {
  Delivery delivery = Made();
  EXPECT_THAT(BuildHeaders(delivery, nullptr, kNow), Not(Contains(testing::StartsWith("Dlo-Revision"))));
  delivery.revision = 3;
  const auto headers = BuildHeaders(delivery, nullptr, kNow);
  EXPECT_THAT(headers, Contains("Dlo-Revision: 3"));
  // The sender signed other bytes.
  EXPECT_THAT(headers, Contains("Dlo-Signature-Verified: revised"));
}

TEST(BuildHeaders, WhatBelongsToTheSendersConnectionStaysThere) {
  const auto headers = BuildHeaders(WithHeaders({{"Connection", "close, X-Hop ,  content-type"},
                                                 {"KEEP-ALIVE", "5"},
                                                 {"te", "trailers"},
                                                 {"Trailer", "X"},
                                                 {"Transfer-Encoding", "chunked"},
                                                 {"Upgrade", "h2c"},
                                                 {"Proxy-Authorization", "x"},
                                                 {"Proxy-Connection", "x"},
                                                 {"Host", "x"},
                                                 {"content-length", "5"},
                                                 {"Expect", "100-continue"},
                                                 {"Accept-Encoding", "br"},
                                                 {"X-Hop", "x"},
                                                 {"Content-Type", "a/b"},
                                                 {"X-Kept", " as it came "}}),
                                    nullptr, kNow);
  EXPECT_EQ(headers[0], "Content-Type: a/b");
  EXPECT_EQ(headers[1], "X-Kept:  as it came ");
  EXPECT_TRUE(headers[2].starts_with("Dlo-Event-Id"));
}

TEST(BuildHeaders, ASenderCannotSpeakInOurName) {
  const auto headers = BuildHeaders(
      WithHeaders({{"Dlo-Replay", "true"}, {"DLO-Anything", "x"}, {"idempotency-key", "forged"}}), nullptr, kNow);
  EXPECT_EQ(std::ranges::count_if(headers, [](const auto& h) { return h.find("forged") != std::string::npos; }), 0);
  EXPECT_THAT(headers, Not(Contains("Dlo-Replay: true")));
  EXPECT_THAT(headers, Not(Contains(HasSubstr("Anything"))));
}

TEST(BuildHeaders, NothingBreaksTheFraming) {
  const auto headers = BuildHeaders(WithHeaders({{"X-A", "a\r\nInjected: 1"},
                                                 {"X-B", std::string("a\0b", 3)},
                                                 {"X C", "x"},
                                                 {"", "x"},
                                                 {"X:D", "x"},
                                                 {"X-Utf8", "gr\xc3\xbc\xc3\x9f"}}),
                                    nullptr, kNow);
  EXPECT_EQ(headers[0], "X-A: a%0D%0AInjected: 1");
  EXPECT_EQ(headers[1], "X-B: a%00b");
  EXPECT_EQ(headers[2], "X-Utf8: gr\xc3\xbc\xc3\x9f");
  EXPECT_TRUE(headers[3].starts_with("Dlo-Event-Id"));
}

TEST(PercentEncode, IsExactWhenDecoded) {
  for (const auto& [raw, encoded] : std::vector<std::pair<std::string, std::string>>{
           {"", ""},
           {"evt_1:a/b c", "evt_1:a/b c"},
           {" a ", "%20a%20"},
           {" ", "%20"},
           {"50%", "50%25"},
           {"a\r\nb", "a%0D%0Ab"},
           {std::string("a\0b", 3), "a%00b"},
           {"\x7f\x1f", "%7F%1F"},
           {"gr\xc3\xbc", "gr%C3%BC"},
       }) {
    EXPECT_EQ(PercentEncode(raw), encoded);
  }
}

TEST(BuildHeaders, SignsInPlaceOfTheSender) {
  const auto signer = intake::Signer::Compile("standard-webhooks", {}, kSecret);
  ASSERT_TRUE(signer.has_value());
  const Delivery delivery =
      WithHeaders({{"webhook-id", "sender"}, {"Webhook-Timestamp", "1"}, {"webhook-signature", "v1,x"}});
  EXPECT_THAT(BuildHeaders(delivery, nullptr, kNow), Contains("webhook-id: sender")) << "kept when we do not sign";
  const auto headers = BuildHeaders(delivery, &*signer, kNow);
  EXPECT_THAT(headers, Contains("webhook-id: dlo_42"));
  EXPECT_THAT(headers, Contains("webhook-timestamp: 784111777"));
  // HMAC-SHA256 over `dlo_42.784111777.{"id":"evt_1"}` with the decoded key, computed apart.
  EXPECT_THAT(headers, Contains("webhook-signature: v1,pRdPpZzZQOgBryEOzlzq5otJ0YKXhHCjZxm8lxjNv4I="));
  EXPECT_EQ(std::ranges::count_if(headers,
                                  [](const auto& h) { return h.starts_with("webhook-") || h.starts_with("Webhook-"); }),
            3);
}

struct Row {
  const char* name;
  int status;
  std::vector<Header> headers;
  OutcomeKind kind;
  const char* code;
};

using enum OutcomeKind;

const Row kRows[] = {
    {"200", 200, {}, applied, "applied"},
    {"201", 201, {}, applied, "applied"},
    {"299", 299, {}, applied, "applied"},
    {"199", 199, {}, permanent, "http_199"},
    {"300", 300, {}, permanent, "http_300"},
    {"302", 302, {}, permanent, "http_302"},
    {"400", 400, {}, permanent, "http_400"},
    {"401", 401, {}, permanent, "http_401"},
    {"404", 404, {}, permanent, "http_404"},
    {"404 not_found", 404, {{"dlo-reason", "not_found"}}, gone, "not_found"},
    {"404 with another reason", 404, {{"Dlo-Reason", "no_route"}}, permanent, "no_route"},
    {"410", 410, {}, gone, "not_found"},
    {"408", 408, {}, retryable, "http_408"},
    {"409", 409, {}, already_applied, "already_applied"},
    {"422", 422, {}, permanent, "http_422"},
    {"422 with a code", 422, {{"Dlo-Reason", "schema_mismatch"}}, permanent, "schema_mismatch"},
    {"422 with a sentence", 422, {{"Dlo-Reason", "The plan is unknown"}}, permanent, "http_422"},
    {"424", 424, {}, permanent, "http_424"},
    {"425", 425, {}, retryable, "http_425"},
    {"426", 426, {}, permanent, "http_426"},
    {"428", 428, {}, permanent, "http_428"},
    {"429", 429, {}, retryable, "http_429"},
    {"430", 430, {}, permanent, "http_430"},
    {"499", 499, {}, permanent, "http_499"},
    {"500", 500, {}, retryable, "http_500"},
    {"503", 503, {}, retryable, "http_503"},
    {"599", 599, {}, retryable, "http_599"},
    {"200 already applied", 200, {{"Dlo-Outcome", "already-applied"}}, already_applied, "already_applied"},
    {"200 not applicable", 200, {{"Dlo-Outcome", "not-applicable"}}, not_applicable, "not_applicable"},
    {"200 retryable", 200, {{"Dlo-Outcome", "retryable"}}, retryable, "http_200"},
    {"200 permanent", 200, {{"Dlo-Outcome", "Permanent"}, {"Dlo-Reason", "bad_amount"}}, permanent, "bad_amount"},
    {"500 permanent", 500, {{"DLO-OUTCOME", "permanent"}}, permanent, "http_500"},
    {"500 applied", 500, {{"Dlo-Outcome", "applied"}}, applied, "applied"},
    {"410 permanent", 410, {{"Dlo-Outcome", "permanent"}}, permanent, "http_410"},
    {"unknown word is no word", 500, {{"Dlo-Outcome", "perhaps"}}, retryable, "http_500"},
    {"only we say crashed", 500, {{"Dlo-Outcome", "crashed"}}, retryable, "http_500"},
};

TEST(OutcomeOf, EveryAnswer) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    HttpResponse response;
    response.status = row.status;
    response.headers = row.headers;
    const auto outcome = OutcomeOf(response, kNow);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->kind, row.kind);
    EXPECT_EQ(outcome->code, row.code);
    EXPECT_EQ(outcome->http_status, row.status);
  }
}

TEST(OutcomeOf, EveryFailureIsRetryable) {
  for (const auto& [failure, code] : std::vector<std::pair<HttpFailure, std::string>>{
           {HttpFailure::blocked_address, "blocked_address"},
           {HttpFailure::resolve, "resolve"},
           {HttpFailure::connect, "connect"},
           {HttpFailure::tls, "tls"},
           {HttpFailure::timeout, "timeout"},
           {HttpFailure::reset, "reset"},
           {HttpFailure::answer_too_large, "answer_too_large"},
           {HttpFailure::invalid_url, "invalid_url"},
       }) {
    HttpResponse response;
    response.failure = failure;
    response.failure_message = "why";
    response.status = 200;  // the headers had come; the answer had not
    const auto outcome = OutcomeOf(response, kNow);
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->kind, retryable) << code;
    EXPECT_EQ(outcome->code, code);
    EXPECT_EQ(outcome->message, "why");
  }
  HttpResponse stopped;
  stopped.failure = HttpFailure::stopped;
  EXPECT_FALSE(OutcomeOf(stopped, kNow).has_value()) << "never judged: handed back";
}

TEST(OutcomeOf, RecordsWhatTheHandlerSays) {
  HttpResponse response;
  response.status = 200;
  response.headers = {{"Dlo-Handler-Version", "v7"}, {"Dlo-Effect", "ledger:9"}};
  response.body = "fine";
  auto outcome = OutcomeOf(response, kNow);
  EXPECT_EQ(outcome->handler_version, "v7");
  EXPECT_EQ(outcome->effect, "ledger:9");
  EXPECT_EQ(outcome->detail, "");
  response.headers = {{"Dlo-Outcome", "not-applicable"}, {"Dlo-Reason", "test account"}};
  EXPECT_EQ(OutcomeOf(response, kNow)->message, "test account");
}

TEST(OutcomeOf, TheMessageIsASentenceForPeople) {
  struct Message {
    const char* body;
    const char* reason;
    const char* message;
  };
  for (const Message& row : {Message{"", "", "HTTP 422"},
                             {"no such plan\nat line 3", "", "HTTP 422: no such plan"},
                             {R"({"error":{"code":"x","message":"No such plan"}})", "", "HTTP 422: No such plan"},
                             {R"({"error":"No such plan"})", "", "HTTP 422: No such plan"},
                             {R"({"message":"No such plan","error":"Bad"})", "", "HTTP 422: No such plan"},
                             {R"({"detail":"No such plan"})", "", "HTTP 422: No such plan"},
                             {R"({"a":1})", "", R"(HTTP 422: {"a":1})"},
                             {R"({"a":)", "", R"(HTTP 422: {"a":)"},
                             {"body", "the plan is unknown", "HTTP 422: the plan is unknown"},
                             {"body", "unknown_plan", "HTTP 422: body"},
                             {"", "unknown_plan", "HTTP 422: unknown_plan"}}) {
    HttpResponse response;
    response.status = 422;
    response.body = row.body;
    if (*row.reason != '\0') response.headers = {{"Dlo-Reason", row.reason}};
    const auto outcome = OutcomeOf(response, kNow);
    EXPECT_EQ(outcome->message, row.message);
    EXPECT_EQ(outcome->detail, row.body);
  }
}

TEST(ParseRetryAfter, SecondsAndDates) {
  struct Case {
    const char* text;
    std::optional<Duration> wait;
  };
  for (const Case& row : {Case{"0", seconds(0)},
                          {"120", seconds(120)},
                          {"999999999", seconds(999'999'999)},
                          {"99999999999999999999999999", seconds(999'999'999)},
                          {"", std::nullopt},
                          {"-5", std::nullopt},
                          {"1.5", std::nullopt},
                          {"5 ", std::nullopt},
                          {"soon", std::nullopt},
                          {"Sun, 06 Nov 1994 08:49:37 GMT", seconds(0)},
                          {"Sun, 06 Nov 1994 08:50:07 GMT", seconds(30)},
                          {"Sun, 06 Nov 1994 08:49:07 GMT", seconds(-30)},
                          {"Mon, 29 Feb 1996 00:00:00 GMT", Time(seconds(825'552'000)) - kNow},
                          {"Sun, 29 Feb 1995 00:00:00 GMT", std::nullopt},
                          {"Sun, 06 Nov 1994 24:49:37 GMT", std::nullopt},
                          {"Sun, 06 Nov 1994 08:60:37 GMT", std::nullopt},
                          {"Sun, 06 Foo 1994 08:49:37 GMT", std::nullopt},
                          {"Sun, -6 Nov 1994 08:49:37 GMT", std::nullopt},
                          {"Sun, 06 Nov 1994 08:49:37 UTC", std::nullopt},
                          {"Sunday, 06-Nov-94 08:49:37 GMT", std::nullopt}}) {
    EXPECT_EQ(ParseRetryAfter(row.text, kNow), row.wait) << row.text;
  }
}

TEST(OutcomeOf, RetryAfterCountsForRetryableAnswersOnly) {
  HttpResponse response;
  response.headers = {{"retry-after", "7"}};
  for (const auto& [status, wait] : std::vector<std::pair<int, std::optional<Duration>>>{
           {503, seconds(7)}, {429, seconds(7)}, {422, {}}, {200, {}}}) {
    response.status = status;
    EXPECT_EQ(OutcomeOf(response, kNow)->retry_after, wait) << status;
  }
}

TEST(HttpTarget, SendsTheBodyWithoutACopyUnderItsSettings) {
  TargetConfig config;
  config.name = "billing";
  config.url = "http://127.0.0.1:3000/webhooks";
  config.allow_private = true;
  config.timeout = seconds(11);
  config.connect_timeout = seconds(2);
  config.max_answer_header_bytes = 2'000;
  config.max_answer_body_bytes = 5'000;
  FakeHttp http;
  ManualClock clock(kNow);
  std::optional<Ended> ended;
  const Delivery delivery = Made();
  {
    HttpTarget target(config, http, clock);
    target.Start(delivery, [&](Ended e) { ended = std::move(e); });
  }
  ASSERT_EQ(http.calls.size(), 1U);
  const HttpRequest& request = http.calls.front().request;
  EXPECT_EQ(request.body.data(), delivery.receipt->body.data());
  EXPECT_EQ(request.url, config.url);
  EXPECT_EQ(request.method, "POST");
  EXPECT_TRUE(request.allow_private);
  EXPECT_EQ(request.timeout, seconds(11));
  EXPECT_EQ(request.connect_timeout, seconds(2));
  EXPECT_EQ(request.max_header_bytes, 2'000U);
  EXPECT_EQ(request.max_body_bytes, 5'000U);
  EXPECT_EQ(delivery.receipt.use_count(), 2) << "held until the answer";
  http.Answer(200);  // after the target is gone
  ASSERT_TRUE(ended && ended->outcome);
  EXPECT_EQ(ended->outcome->kind, applied);
  EXPECT_EQ(ended->at, kNow);
}

TEST(HttpTarget, DoesNotSendUnsignedWhatShouldBeSigned) {
  TargetConfig config;
  config.signing_secret = "whsec_not base64!";
  FakeHttp http;
  ManualClock clock(kNow);
  HttpTarget target(config, http, clock);
  std::optional<Ended> ended;
  target.Start(Made(), [&](Ended e) { ended = std::move(e); });
  EXPECT_TRUE(http.calls.empty());
  ASSERT_TRUE(ended && ended->outcome);
  EXPECT_EQ(ended->outcome->kind, retryable) << "a wrong setting of ours costs no events";
  EXPECT_EQ(ended->outcome->code, "signing_secret_invalid");
}

TEST(Tidy, BoundsAndCleansWhatIsKept) {
  Outcome outcome = Outcome::Permanent(std::string(500, 'c'), "two\nlines \x01 and \xff");
  outcome.detail = std::string(10'000, 'd');
  outcome.effect = std::string(10'000, 'e');
  const Outcome tidy = Tidy(outcome);
  EXPECT_LE(tidy.code.size(), 100U);
  EXPECT_EQ(tidy.message, "two lines   and \xef\xbf\xbd");
  EXPECT_LE(tidy.detail.size(), 4096U);
  EXPECT_LE(tidy.effect.size(), 200U);
  for (const OutcomeKind kind : {crashed, corrupt, static_cast<OutcomeKind>(99)}) {
    outcome.kind = kind;
    EXPECT_EQ(Tidy(outcome).kind, permanent);
    EXPECT_EQ(Tidy(outcome).code, "bad_outcome");
  }
}

}  // namespace
}  // namespace dlo::dispatch
