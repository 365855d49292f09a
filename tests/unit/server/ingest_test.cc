#include "server/ingest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "unit/deadletter/fake_store.h"
#include "unit/server/fake_sink.h"
#include "unit/server/raw_client.h"

namespace dlo::server {
namespace {

using testing::Ask;
using ::testing::HasSubstr;
using testing::RawClient;

class ScriptedInbox final : public store::Inbox {
 public:
  Result<std::vector<Accepted>> answer = std::vector<Accepted>{{.id = 7}};
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, store::AcceptDone done) override {
    accepted = std::move(batch);
    done(answer);
  }
  std::vector<std::shared_ptr<Receipt>> accepted;
};

std::vector<SourceConfig> Sources() {
  SourceConfig open{.name = "open", .scheme = "none", .target = "t"};
  open.max_body = 64;
  SourceConfig github{.name = "github", .scheme = "github", .target = "t"};
  github.secrets = {{"secrets[0]", "a-secret-of-more-than-24-bytes"}};
  return {open, github};
}

class IngestTest : public ::testing::Test {
 protected:
  RequestHead Head(const std::string& method, const std::string& target) {
    return {.method = method, .target = target, .headers = {{"Host", "a"}, {"X-One", "1"}}, .remote = "192.0.2.1"};
  }
  ManualClock clock{Time(std::chrono::seconds(1'800'000'000))};
  Metrics metrics;
  testing::FakeStore store;
  ScriptedInbox inbox;
  std::vector<SourceConfig> sources = Sources();
  intake::Receiver receiver{sources, inbox, store, clock, metrics};
  Ingest ingest{receiver, std::chrono::seconds(3)};
};

TEST_F(IngestTest, EachEndOfADeliveryHasItsAnswer) {
  using R = Result<std::vector<Accepted>>;
  const struct {
    R result;
    int status;
    std::string body;  // begins with
    bool retry_after;
  } rows[] = {
      {R({{AcceptStatus::stored, 7, 0}}), 200, R"({"status":"stored","id":7})", false},
      {R({{AcceptStatus::duplicate, 3, 0}}), 200, R"({"status":"duplicate","id":3})", false},
      {R({{AcceptStatus::conflict, 8, 3}}), 200, R"({"status":"stored","id":8,"conflict_with":3})", false},
      {R({{AcceptStatus::stored, 7, 0}, {AcceptStatus::duplicate, 3, 0}}), 200,
       R"({"status":"stored","events":[{"status":"stored","id":7},{"status":"duplicate","id":3}]})", false},
      {R(Fail(ErrorKind::unavailable, "disk_full", "full")), 503, R"({"type":"about:blank")", true},
      {R(Fail(ErrorKind::unavailable, "stopping", "stops")), 503, R"({"type":"about:blank")", true},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.body);
    inbox.answer = row.result;
    const Response response = Ask(ingest, Head("POST", "/in/open"), "{}");
    EXPECT_EQ(response.status, row.status);
    EXPECT_TRUE(response.body.starts_with(row.body)) << response.body;
    EXPECT_EQ(std::ranges::count(response.headers, std::string("Retry-After"), &Header::name), row.retry_after);
  }
}

TEST_F(IngestTest, AFullSourceIsToldToComeBackBeforeItsBodyIsRead) {
  Config config;
  config.sources = sources;
  for (SourceConfig& source : config.sources) source.max_waiting = 10;
  intake::Gate gate(config, metrics);
  Ingest limited(receiver, std::chrono::seconds(3), &gate);
  store::Figures figures;
  figures.free_bytes = UINT64_MAX;
  figures.counts = {{.source = "open", .state = State::waiting, .count = 10}};
  gate.Update(figures);
  const Response full = Ask(limited, Head("POST", "/in/open"), "{}");
  EXPECT_EQ(full.status, 429);
  const auto retry = std::ranges::find(full.headers, std::string("Retry-After"), &Header::name);
  ASSERT_NE(retry, full.headers.end());
  EXPECT_GE(std::stoi(retry->value), 5);
  EXPECT_LE(std::stoi(retry->value), 60);
  EXPECT_TRUE(inbox.accepted.empty());
  EXPECT_EQ(Ask(limited, Head("POST", "/in/github"), "{}").status, 401) << "another source goes on";
  figures.free_bytes = 0;
  gate.Update(figures);
  EXPECT_EQ(Ask(limited, Head("POST", "/in/github"), "{}").status, 503);
}

TEST_F(IngestTest, HeadersAndBodyReachTheStoreUntouched) {
  const std::string body("{\"a\":\0\xff}", 8);
  EXPECT_EQ(Ask(ingest, Head("POST", "/in/open"), body).status, 200);
  ASSERT_EQ(inbox.accepted.size(), 1U);
  EXPECT_EQ(inbox.accepted[0]->body, body);
  EXPECT_EQ(inbox.accepted[0]->headers, (std::vector<Header>{{"Host", "a"}, {"X-One", "1"}}));
}

TEST_F(IngestTest, WhatIsNoDeliveryIsRefusedBeforeItsBodyIsRead) {
  const struct {
    std::string method, target;
    int status;
  } rows[] = {{"POST", "/in/unknown", 404}, {"POST", "/in/", 404},       {"POST", "/in/open/", 404},
              {"POST", "/in/OPEN", 404},    {"GET", "/in/open", 405},    {"HEAD", "/in/open", 405},
              {"PUT", "/in/open", 405},     {"POST", "/in/%6fpen", 404}, {"POST", "/in/../v1/stats", 404}};
  for (const auto& row : rows) {
    RequestHead head = Head(row.method, row.target);
    const auto admission = ingest.Begin(head);
    ASSERT_FALSE(admission) << row.target;
    EXPECT_EQ(admission.error().status, row.status) << row.method << " " << row.target;
  }
  RequestHead head = Head("POST", "/in/open?x=1");
  const auto admission = ingest.Begin(head);
  ASSERT_TRUE(admission);
  EXPECT_EQ(admission->max_body, 64U);
  EXPECT_EQ(admission->answer_within, std::chrono::seconds(3));
}

TEST_F(IngestTest, ARejectionSaysNothingOfItsReason) {
  const Response response = Ask(ingest, Head("POST", "/in/github"), "{}");
  EXPECT_EQ(response.status, 401);
  EXPECT_EQ(response.body, R"({"status":"rejected"})");
  EXPECT_TRUE(inbox.accepted.empty());
}

TEST_F(IngestTest, ACodedBodyIsRefused) {
  RequestHead head = Head("POST", "/in/open");
  head.headers.push_back({"Content-Encoding", "gzip"});
  EXPECT_EQ(Ask(ingest, std::move(head), "{}").status, 415);
  EXPECT_TRUE(inbox.accepted.empty());
}

TEST(IngestOverTheWire, ACommitThatTakesTooLongIs503AndItsLateSuccessIsNotSent) {
  RealClock clock;
  Metrics metrics;
  testing::FakeStore store;
  store.answers = false;
  const std::vector<SourceConfig> sources = Sources();
  intake::Receiver receiver(sources, store, store, clock, metrics);
  Ingest ingest(receiver, std::chrono::milliseconds(50));
  HttpServer server({.threads = 1, .tick = std::chrono::milliseconds(5)}, clock);
  ASSERT_TRUE(server.Start("127.0.0.1:0", ingest));
  RawClient client(server.port());
  client.Send("POST /in/open HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}");
  client.ReadUntil("}");
  EXPECT_EQ(client.status(), 503);
  EXPECT_THAT(client.received(), HasSubstr("\r\nRetry-After: "));
  ASSERT_EQ(store.unanswered.size(), 1U);
  store.unanswered.front()(std::vector<Accepted>{{.id = 1}});
  client.Send("POST /in/nobody HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(testing::CountOf(client.ReadAll(), "HTTP/1.1 "), 2);
  EXPECT_THAT(client.received(), ::testing::Not(HasSubstr("\"stored\"")));
}

}  // namespace
}  // namespace dlo::server
