#include "observe/heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/time_text.h"
#include "env/memory_files.h"
#include "env/random.h"

namespace dlo::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FakeAccess final : public store::Access {
 public:
  std::optional<Error> broken;
  store::EvidenceHead head{.seq = 7, .hash = std::string(64, 'a')};
  Result<store::EvidenceHead> Head() override {
    if (broken) return std::unexpected(*broken);
    return head;
  }
  Result<store::Token> CreateToken(const std::string&, const std::string&, const std::string&, const Actor&,
                                   Time) override {
    return store::Token{};
  }
  Result<store::Token> RevokeToken(const std::string&, const Actor&, Time) override { return store::Token{}; }
  Result<std::vector<store::Token>> Tokens() override { return std::vector<store::Token>{}; }
  Result<std::vector<AuditRecord>> Audit(const store::AuditFilter&, std::int64_t, int) override {
    return std::vector<AuditRecord>{};
  }
};

class FakeHttp final : public HttpClient {
 public:
  HttpResponse answer{.status = 204};
  bool silent = false;
  std::vector<HttpRequest> requests;
  std::vector<std::string> bodies;
  void Start(HttpRequest request, Done done) override {
    bodies.emplace_back(request.body);
    requests.push_back(std::move(request));
    if (!silent) done(answer);
  }
};

class HeadsTest : public ::testing::Test {
 protected:
  HeadKeeper Make(EvidenceConfig config) { return {config, {store, files, http, clock, metrics}}; }
  /// Runs it whenever it wants to be run, for `length`.
  void Run(HeadKeeper& keeper, Duration length) {
    for (const Time end = clock.Now() + length; clock.Now() < end;) {
      const Time next = keeper.RunOnce(clock.Now());
      ASSERT_GT(next, clock.Now()) << "it would spin";
      clock.Advance(std::min(next, end) - clock.Now());
    }
  }
  FakeAccess store;
  MemoryFiles files;
  FakeHttp http;
  ManualClock clock{*ParseTime("2026-11-30T12:00:00Z")};
  Metrics metrics;
};

TEST_F(HeadsTest, AppendsALineAtTheStartAndThenEachHour) {
  HeadKeeper keeper = Make({.head_file = "evidence/heads"});
  Run(keeper, std::chrono::minutes(150));
  const std::string line = store::HeadToJson(store.head) + "\n";
  EXPECT_EQ(files.Contents("evidence/heads"), line + line + line);
  EXPECT_THAT(metrics.Render(), HasSubstr(R"(dlo_audit_heads_total{to="file",outcome="kept"} 3)"));
}

TEST_F(HeadsTest, AKeptLineSurvivesAPowerCut) {
  HeadKeeper keeper = Make({.head_file = "evidence/heads"});
  Run(keeper, std::chrono::seconds(5));
  SeededRandom random(1);
  files.PowerCut(random);
  EXPECT_EQ(files.Contents("evidence/heads"), store::HeadToJson(store.head) + "\n");
}

TEST_F(HeadsTest, ALineThatWasCutDoesNotSpoilTheNext) {
  files.SetContents("heads", "{\"seq\":1,\"ha");
  HeadKeeper keeper = Make({.head_file = "heads"});
  Run(keeper, std::chrono::seconds(5));
  EXPECT_THAT(files.Contents("heads"), testing::EndsWith("\"ha\n" + store::HeadToJson(store.head) + "\n"));
}

TEST_F(HeadsTest, PostsItWithASignatureThatOurOwnVerifierTakes) {
  HeadKeeper keeper = Make({.head_url = "https://evidence.example/heads",
                            .signing_secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="});
  Run(keeper, std::chrono::seconds(5));
  ASSERT_EQ(http.requests.size(), 1U);
  EXPECT_EQ(http.bodies[0], store::HeadToJson(store.head));
  const auto expected =
      OrThrow(intake::Signer::Compile("standard-webhooks", {}, "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))
          .Sign(http.bodies[0], *ParseTime("2026-11-30T12:00:00Z"),
                "head_7_" + std::to_string(ToMicros(*ParseTime("2026-11-30T12:00:00Z"))));
  for (const Header& header : expected) {
    EXPECT_THAT(http.requests[0].headers, testing::Contains(header.name + ": " + header.value));
  }
}

TEST_F(HeadsTest, WhatFailsIsTriedAgainEverLaterWithTheNewestHead) {
  http.answer.status = 503;
  HeadKeeper keeper = Make({.head_url = "https://evidence.example/heads"});
  Run(keeper, std::chrono::minutes(16));  // at 0, 0:30, 1:30, 3:30, 7:30, 15:30
  EXPECT_EQ(http.requests.size(), 6U);
  http.answer.status = 200;
  store.head.seq = 9;
  Run(keeper, std::chrono::minutes(20));
  EXPECT_EQ(http.requests.size(), 7U);
  EXPECT_THAT(http.bodies.back(), HasSubstr("\"seq\":9"));
  EXPECT_THAT(metrics.Render(), HasSubstr(R"(dlo_audit_heads_total{to="url",outcome="failed"} 6)"));
  Run(keeper, std::chrono::minutes(40));  // an hour after the one that went through
  EXPECT_EQ(http.requests.size(), 7U);
}

TEST_F(HeadsTest, AServerThatIsSilentHoldsNothingUp) {
  http.silent = true;
  HeadKeeper keeper = Make({.head_file = "heads", .head_url = "https://evidence.example/heads"});
  Run(keeper, std::chrono::minutes(61));
  EXPECT_EQ(http.requests.size(), 1U) << "one at a time";
  EXPECT_EQ(std::ranges::count(files.Contents("heads"), '\n'), 2);
}

TEST_F(HeadsTest, AFullDiskAndAStoreThatCannotBeReadAreCountedAndEnd) {
  files.SetCapacity(10);
  HeadKeeper keeper = Make({.head_file = "heads"});
  Run(keeper, std::chrono::seconds(40));
  files.SetCapacity(1 << 20);
  store.broken = Error{ErrorKind::unavailable, "io", "broken"};
  Run(keeper, std::chrono::minutes(1));
  EXPECT_THAT(metrics.Render(), HasSubstr(R"(dlo_audit_heads_total{to="file",outcome="failed"} 3)"));
  store.broken.reset();
  Run(keeper, std::chrono::minutes(5));
  EXPECT_THAT(metrics.Render(), HasSubstr(R"(dlo_audit_heads_total{to="file",outcome="kept"} 1)"));
  EXPECT_THAT(files.Contents("heads"), testing::EndsWith("\n" + store::HeadToJson(store.head) + "\n"));
}

}  // namespace
}  // namespace dlo::observe
