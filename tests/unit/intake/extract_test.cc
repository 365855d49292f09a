#include "intake/extract.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/time_text.h"

namespace dlo::intake {
namespace {

SourceConfig Of(const std::string& scheme) {
  SourceConfig source;
  source.name = "s";
  source.scheme = scheme;
  return source;
}

SourceConfig WithKey(const std::string& key) {
  auto source = Of("none");
  source.key = key;
  return source;
}

Extracted Extract(const SourceConfig& source, std::string_view body, std::vector<Header> headers = {}) {
  return OrThrow(Extractor::Compile(source)).Extract(headers, body);
}

std::string Nested(int depth, const std::string& innermost) {
  std::string text;
  for (int i = 1; i < depth; ++i) text += R"({"a":)";
  text += innermost;
  return text + std::string(static_cast<std::size_t>(depth - 1), '}');
}

TEST(Extract, StripeFacts) {
  const auto event =
      Extract(Of("stripe"), R"({"id":"evt_1","object":"event","account":"acct_1","api_version":"2026-01-01",
      "created":1700000000,"livemode":true,"pending_webhooks":1,"type":"invoice.paid",
      "data":{"object":{"id":"in_1","object":"invoice","customer":"cus_1","subscription":"sub_1"}}})");
  EXPECT_EQ(event.disposition, Disposition::dispatch) << event.reason;
  EXPECT_EQ(event.key, "evt_1");
  EXPECT_EQ(event.kind, "invoice.paid");
  EXPECT_EQ(event.subject, "sub_1");
  EXPECT_EQ(event.account, "acct_1");
  EXPECT_EQ(event.livemode, std::optional(true));
  EXPECT_EQ(event.occurred_at, std::optional(Time(std::chrono::seconds(1'700'000'000))));
}

// Order is kept by subject: whatever concerns one subscription must name it, in old and new API versions alike.
TEST(Extract, StripeEventsOfOneSubscriptionShareASubject) {
  struct Row {
    const char* what;
    std::string object;
    std::string subject;
  };
  const std::vector<Row> rows = {
      {"customer.subscription.updated", R"({"id":"sub_1","object":"subscription","customer":"cus_1"})", "sub_1"},
      {"invoice.paid before 2025-03-31",
       R"({"id":"in_1","object":"invoice","customer":"cus_1","subscription":"sub_1"})", "sub_1"},
      {"invoice.paid since",
       R"({"id":"in_1","object":"invoice","customer":"cus_1","parent":{"subscription_details":{"subscription":"sub_1"}}})",
       "sub_1"},
      {"invoice of no subscription",
       R"({"id":"in_2","object":"invoice","customer":"cus_1","subscription":null,"parent":null})", "cus_1"},
      {"checkout.session.completed",
       R"({"id":"cs_1","object":"checkout.session","customer":"cus_1","subscription":"sub_1"})", "sub_1"},
      {"subscription_schedule",
       R"({"id":"sub_sched_1","object":"subscription_schedule","customer":"cus_1","subscription":"sub_1"})", "sub_1"},
      {"charge", R"({"id":"ch_1","object":"charge","customer":"cus_1"})", "cus_1"},
      {"customer.updated", R"({"id":"cus_1","object":"customer"})", "cus_1"},
      {"customer expanded", R"({"id":"ch_1","object":"charge","customer":{"id":"cus_1"}})", "ch_1"},
      {"product", R"({"id":"prod_1","object":"product"})", "prod_1"},
      {"nothing", R"({})", ""},
  };
  for (const auto& row : rows) {
    const auto event = Extract(Of("stripe"), R"({"id":"evt_1","type":"t","data":{"object":)" + row.object + "}}");
    EXPECT_EQ(event.subject, row.subject) << row.what;
    EXPECT_EQ(event.disposition, Disposition::dispatch) << row.what;
  }
  EXPECT_EQ(Extract(Of("stripe"), R"({"id":"evt_2","related_object":{"id":"mtr_1"}})").subject, "mtr_1");
}

TEST(Extract, StandardWebhooksFacts) {
  const std::string body = R"({"type":"user.created","timestamp":"2026-11-30T13:23:29.5+01:00","data":{}})";
  auto event = Extract(Of("standard-webhooks"), body, {{"Webhook-Id", "msg_1"}});
  EXPECT_EQ(event.key, "msg_1");
  EXPECT_EQ(event.kind, "user.created");
  EXPECT_EQ(event.occurred_at, ParseTime("2026-11-30T12:23:29.5Z"));
  event = Extract(Of("standard-webhooks"), body, {{"svix-id", "msg_2"}});
  EXPECT_EQ(event.key, "msg_2");
  event = Extract(Of("standard-webhooks"), "not json", {{"webhook-id", "msg_3"}});
  EXPECT_EQ(event.key, "msg_3");
  EXPECT_EQ(event.kind, "");
  EXPECT_EQ(event.disposition, Disposition::dispatch);
}

TEST(Extract, GithubJoinsEventAndAction) {
  const std::vector<Header> headers = {{"X-GitHub-Event", "issues"}, {"X-GitHub-Delivery", "guid-1"}};
  auto event = Extract(Of("github"), R"({"action":"opened","repository":{"full_name":"o/r"}})", headers);
  EXPECT_EQ(event.key, "guid-1");
  EXPECT_EQ(event.kind, "issues.opened");
  EXPECT_EQ(event.subject, "o/r");
  event = Extract(Of("github"), "payload=%7B%7D", headers);
  EXPECT_EQ(event.kind, "issues");
  EXPECT_EQ(event.disposition, Disposition::dispatch);
  event = Extract(Of("github"), "{}", {});
  EXPECT_EQ(event.disposition, Disposition::invalid);
  EXPECT_EQ(event.reason, "no event key: nothing at header:X-GitHub-Delivery");
}

TEST(Extract, WithoutAKeyTheBodysDigestIsIt) {
  const auto event = Extract(Of("none"), "abc");
  EXPECT_EQ(event.key, "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(event.disposition, Disposition::dispatch);
  EXPECT_EQ(Extract(Of("none"), "").key, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

struct BodyRow {
  const char* what;
  std::string body;
  std::string key;     // empty: invalid, key is the digest
  std::string reason;  // a part of it
};

TEST(Extract, BodiesOfAllKinds) {
  const std::string big(std::size_t{1} << 20, 'x');
  const std::string max_u64 = "18446744073709551615", over_u64 = "18446744073709551616";
  const std::vector<BodyRow> rows = {
      {"empty", "", "", "the body is empty"},
      {"space", "  \r\n", "", "the body is not JSON"},
      {"NUL", std::string("\0", 1), "", "the body is not JSON"},
      {"NUL after", R"({"id":"a"})" + std::string("\0", 1), "", "the body is not JSON"},
      {"raw NUL in text", std::string("{\"id\":\"a\0b\"}", 12), "", "the body is not JSON"},
      {"escaped NUL", R"({"id":"a\u0000b"})", "", "has control characters"},
      {"control", R"({"id":"a\nb"})", "", "has control characters"},
      {"delete", "{\"id\":\"a\x7f\"}", "", "has control characters"},
      {"invalid UTF-8", "{\"id\":\"\xff\"}", "", "the body is not JSON"},
      {"invalid UTF-8 elsewhere", "{\"id\":\"a\",\"x\":\"\xc3\"}", "", "the body is not JSON"},
      {"unicode", "{\"id\":\"caf\xc3\xa9\"}", "caf\xc3\xa9", ""},
      {"escaped unicode", R"({"id":"caf\u00e9"})", "caf\xc3\xa9", ""},
      {"lone surrogate", R"({"id":"\ud800"})", "", "the body is not JSON"},
      {"byte order mark", "\xEF\xBB\xBF{\"id\":\"a\"}", "a", ""},
      {"mark alone", "\xEF\xBB\xBF", "", "the body is empty"},
      {"truncated", R"({"id":"a")", "", "the body is not JSON"},
      {"two values", R"({"id":"a"}{"id":"b"})", "", "the body is not JSON"},
      {"trailing space", "{\"id\":\"a\"} \n", "a", ""},
      {"comment", R"({"id":"a"/**/})", "", "the body is not JSON"},
      {"form", "id=a", "", "the body is not JSON"},
      {"array", R"([{"id":"a"}])", "", "nothing at /id"},
      {"scalar", R"("id")", "", "nothing at /id"},
      {"missing", R"({"Id":"a"})", "", "nothing at /id"},
      {"null", R"({"id":null})", "", "nothing at /id"},
      {"empty text", R"({"id":""})", "", "nothing at /id"},
      {"object", R"({"id":{"id":"a"}})", "", "nothing at /id"},
      {"repeated: the last counts", R"({"id":"first","x":1,"id":"last"})", "last", ""},
      {"boolean", R"({"id":true})", "true", ""},
      {"integer", R"({"id":42})", "42", ""},
      {"past doubles' precision", R"({"id":9007199254740993})", "9007199254740993", ""},
      {"smallest", R"({"id":-9223372036854775808})", "-9223372036854775808", ""},
      {"largest", "{\"id\":" + max_u64 + "}", max_u64, ""},
      {"one more", "{\"id\":" + over_u64 + "}", "", "binary floating point"},
      {"one less than the smallest", R"({"id":-9223372036854775809})", "", "binary floating point"},
      {"huge", R"({"id":1e400})", "", ""},
      {"decimal", R"({"id":1.5})", "", "binary floating point"},
      {"decimal that is whole", R"({"id":1.0})", "", "binary floating point"},
      {"exponent", R"({"id":1e3})", "", "binary floating point"},
      {"512 bytes", "{\"id\":\"" + std::string(512, 'k') + "\"}", std::string(512, 'k'), ""},
      {"513 bytes", "{\"id\":\"" + std::string(513, 'k') + "\"}", "", "longer than 512"},
      {"1 MiB", "{\"x\":\"" + big + "\",\"id\":\"a\"}", "a", ""},
      {"1 MiB not JSON", big, "", "the body is not JSON"},
      {"64 deep beside", R"({"id":"a","x":)" + Nested(63, "{}") + "}", "a", ""},
      {"65 deep beside", R"({"id":"a","x":)" + Nested(64, "{}") + "}", "", "nested deeper than 64"},
      {"100,000 open", std::string(100'000, '['), "", "nested deeper than 64"},
  };
  for (const auto& row : rows) {
    const auto event = Extract(WithKey("/id"), row.body);
    if (row.key.empty()) {
      EXPECT_EQ(event.disposition, Disposition::invalid) << row.what;
      EXPECT_EQ(event.key, DigestKey(row.body)) << row.what;
      EXPECT_NE(event.reason.find(row.reason), std::string::npos) << row.what << ": " << event.reason;
      EXPECT_FALSE(event.reason.empty()) << row.what;
    } else {
      EXPECT_EQ(event.disposition, Disposition::dispatch) << row.what << ": " << event.reason;
      EXPECT_EQ(event.key, row.key) << row.what;
    }
  }
}

TEST(Extract, SpecsOfAllKinds) {
  struct Row {
    std::string spec, key;
  };
  const std::string body = R"({"a":{"b/c":["x",{"m~n":"y"}],"":"empty name"},"n":null,"t":"T","u":"U"})";
  const std::vector<Header> headers = {{"X-Id", " h1 "}, {"x-id", "h2"}, {"X-Empty", ""}, {"X-Bad", "\xff"}};
  const std::vector<Row> rows = {
      {"/a/b~1c/0", "x"},
      {"/a/b~1c/1/m~0n", "y"},
      {"/a/", "empty name"},
      {"/a/b~1c/2", ""},
      {"/a/b~1c/00", ""},
      {"/a/b~1c/-", ""},
      {"/a/b~1c/18446744073709551616", ""},
      {"/t/x", ""},
      {"/n|/t", "T"},
      {"/missing | /t", "T"},
      {"/t|/u", "T"},
      {"header:x-ID", "h1"},
      {"header:X-Empty|/u", "U"},
      {"header:X-None|header:X-Id", "h1"},
      {"header:X-Bad", ""},
      {"/t?/u=U", "T"},
      {"/t?/u=V", ""},
      {"/t?/u=V|/u", "U"},
      {"/t?/missing=", ""},
      {"/t+/u", "T.U"},
      {"header:X-Id+/t", "h1.T"},
      {"/t+/missing", ""},
      {"/t+/missing|/u", "U"},
  };
  for (const auto& row : rows) {
    const auto event = Extract(WithKey(row.spec), body, headers);
    EXPECT_EQ(event.disposition == Disposition::dispatch ? event.key : "", row.key) << row.spec << ": " << event.reason;
  }
}

TEST(Extract, AnUnusableFieldMakesTheEventInvalidButKeepsItsKey) {
  struct Row {
    std::string body, reason;
  };
  auto source = WithKey("/id");
  source.kind = "/kind";
  source.subject = "/subject";
  source.account = "/account";
  const std::vector<Row> rows = {
      {R"({"id":"k","subject":1.5})", "subject is a number that is not an integer"},
      {R"({"id":"k","account":18446744073709551616})", "account is a number that is not an integer"},
      {R"({"id":"k","kind":"a\u0000"})", "kind has control characters"},
      {R"({"id":"k","kind":")" + std::string(513, 'x') + "\"}", "kind is longer than 512 bytes"},
  };
  for (const auto& row : rows) {
    const auto event = Extract(source, row.body);
    EXPECT_EQ(event.key, "k");
    EXPECT_EQ(event.disposition, Disposition::invalid);
    EXPECT_TRUE(event.reason.starts_with(row.reason)) << event.reason;
    EXPECT_EQ(event.kind + event.subject + event.account, "");
  }
  EXPECT_EQ(Extract(source, R"({"id":"k"})").disposition, Disposition::dispatch);
  EXPECT_EQ(Extract(source, R"({"id":"k","subject":9007199254740993})").subject, "9007199254740993");
}

TEST(Extract, TestEventsOnALiveSource) {
  struct Row {
    std::string livemode;
    std::optional<bool> value;
    Disposition disposition;
  };
  const std::vector<Row> rows = {
      {"true", true, Disposition::dispatch},
      {"false", false, Disposition::test_event},
      {R"("true")", true, Disposition::dispatch},
      {R"("false")", false, Disposition::test_event},
      {"null", std::nullopt, Disposition::dispatch},
      {"0", std::nullopt, Disposition::dispatch},
      {R"("no")", std::nullopt, Disposition::dispatch},
  };
  auto source = Of("stripe");
  for (const auto& row : rows) {
    const auto body = R"({"id":"evt_1","livemode":)" + row.livemode + "}";
    source.require_live = true;
    const auto event = Extract(source, body);
    EXPECT_EQ(event.livemode, row.value) << row.livemode;
    EXPECT_EQ(event.disposition, row.disposition) << row.livemode;
    source.require_live = false;
    EXPECT_EQ(Extract(source, body).disposition, Disposition::dispatch);
  }
  source.require_live = true;
  EXPECT_EQ(Extract(source, R"({"livemode":false})").disposition, Disposition::invalid) << "no key comes first";
}

TEST(Extract, OccurredAtIsReadOrLeftUnset) {
  struct Row {
    std::string json;
    std::optional<Time> value;
  };
  const std::vector<Row> rows = {
      {"0", Time{}},
      {"1700000000", Time(std::chrono::seconds(1'700'000'000))},
      {"\"1700000000\"", Time(std::chrono::seconds(1'700'000'000))},
      {"253402300799", Time(std::chrono::seconds(253'402'300'799))},
      {"253402300800", std::nullopt},
      {"18446744073709551615", std::nullopt},
      {"-1", std::nullopt},
      {"1.5", std::nullopt},
      {"\"2026-11-30T00:00:00Z\"", ParseTime("2026-11-30T00:00:00Z")},
      {"\"yesterday\"", std::nullopt},
      {"true", std::nullopt},
      {"null", std::nullopt},
  };
  auto source = Of("none");
  source.occurred_at = "/at";
  for (const auto& row : rows) {
    const auto event = Extract(source, "{\"at\":" + row.json + "}");
    EXPECT_EQ(event.occurred_at, row.value) << row.json;
    EXPECT_EQ(event.disposition, Disposition::dispatch) << row.json;
  }
}

TEST(Extract, ASourceOverridesItsSchemeFieldByField) {
  auto source = Of("stripe");
  source.key = "/data/object/id+/type";
  source.subject = "";
  const auto event = Extract(source, R"({"id":"evt_1","type":"invoice.paid","data":{"object":{"id":"in_1"}}})");
  EXPECT_EQ(event.key, "in_1.invoice.paid");
  EXPECT_EQ(event.kind, "invoice.paid");
  EXPECT_EQ(event.subject, "");
}

}  // namespace
}  // namespace dlo::intake
