// The dispatcher over the real embedded store, with HTTP scripted and time by hand.
#include <gtest/gtest.h>

#include <filesystem>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/dispatcher.h"
#include "env/files.h"
#include "fakes.h"
#include "store/embedded/embedded_store.h"

namespace dlo::dispatch {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

class DispatcherStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "dlo-dispatch-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    TargetConfig& target = config.targets.emplace_back();
    target.name = "billing";
    target.url = "http://127.0.0.1:1/";
    target.jitter = 0;
    SourceConfig& source = config.sources.emplace_back();
    source.name = "stripe";
    source.target = "billing";
    Start();
  }
  void TearDown() override {
    dispatcher.reset();
    if (store) store->Close();
    store.reset();
    std::filesystem::remove_all(folder_);
  }
  void Start() {
    store::EmbeddedOptions options;
    options.database = folder_ + "/dlo.db";
    options.segment_bytes = std::int64_t{1} << 20;
    auto opened = store::OpenEmbedded(options, files, clock, points, metrics);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    store = std::move(*opened);
    http = std::make_unique<FakeHttp>();
    dispatcher =
        std::make_unique<Dispatcher>(config, DispatcherDeps{*store, *store, *http, clock, random, points, metrics});
  }
  /// As after kill -9, but for the lock: what runs is in nobody's hands any more.
  void Restart() {
    dispatcher.reset();
    store->Close();
    store.reset();
    Start();
  }
  EventId Accept(const std::string& key, const std::string& subject = {}) {
    auto receipt = std::make_shared<Receipt>();
    receipt->source = "stripe";
    receipt->key = key;
    receipt->kind = "invoice.paid";
    receipt->subject = subject;
    receipt->received_at = clock.Now();
    receipt->body = "{\"id\":\"" + key + "\"}";
    std::promise<EventId> id;
    store->Accept({receipt},
                  [&](Result<std::vector<Accepted>> accepted) { id.set_value(accepted ? accepted->front().id : 0); });
    return id.get_future().get();
  }
  /// Accepted is durable, and indexed a moment later; this waits for that.
  void WaitIndexed(std::int64_t receipts) {
    for (;;) {
      const auto figures = store->Read();
      ASSERT_TRUE(figures.has_value());
      if (figures->indexed >= receipts) return;
      std::this_thread::yield();
    }
  }
  void Settle() {
    for (int rounds = 0; rounds < 1000; ++rounds) {
      const auto next = dispatcher->RunOnce(clock.Now());
      ASSERT_TRUE(next.has_value()) << next.error().message;
      if (dispatcher->waits_for_store()) {
        --rounds;
        std::this_thread::yield();
      } else if (*next > clock.Now()) {
        return;
      }
    }
    FAIL() << "it never comes to rest";
  }
  void AdvanceAndSettle(Duration by) {
    clock.Advance(by);
    Settle();
  }
  Letter Show(EventId id) {
    const auto detail = store->Show(id);
    EXPECT_TRUE(detail.has_value());
    return detail ? detail->letter : Letter{};
  }
  std::string KeyOf(std::size_t call) {
    for (const std::string& header : http->calls.at(call).request.headers) {
      if (header.starts_with("Dlo-Event-Key: ")) return header.substr(15);
    }
    return {};
  }

  std::string folder_;
  Config config;
  RealFiles files;
  ManualClock clock{Time(seconds(1'800'000'000))};
  SeededRandom random{7};
  NoCrashPoints points;
  Metrics metrics;
  std::unique_ptr<store::Store> store;
  std::unique_ptr<FakeHttp> http;
  std::unique_ptr<Dispatcher> dispatcher;
};

TEST_F(DispatcherStoreTest, ATimeoutConsumesTheBudgetAndAnUnknownKindNone) {
  const EventId slow = Accept("evt_slow");
  const EventId unknown = Accept("evt_unknown");
  WaitIndexed(2);
  AdvanceAndSettle(seconds(5));
  ASSERT_EQ(http->calls.size(), 2U);
  EXPECT_EQ(KeyOf(0), "evt_slow");
  http->Fail(HttpFailure::timeout);
  http->Answer(422, {{"Dlo-Reason", "unknown_kind"}});
  Settle();
  EXPECT_EQ(Show(unknown).state, State::dead);
  EXPECT_EQ(Show(unknown).failure_class, FailureClass::permanent);
  EXPECT_EQ(Show(unknown).attempts, 1);
  EXPECT_EQ(Show(unknown).code, "unknown_kind");
  for (const Duration wait : {seconds(5), seconds(30), seconds(120), seconds(600), seconds(1800)}) {
    EXPECT_EQ(Show(slow).state, State::waiting);
    AdvanceAndSettle(wait);
    ASSERT_EQ(http->calls.size(), 1U);
    http->Fail(HttpFailure::timeout);
    Settle();
  }
  EXPECT_EQ(Show(slow).state, State::dead);
  EXPECT_EQ(Show(slow).failure_class, FailureClass::exhausted);
  EXPECT_EQ(Show(slow).attempts, 6);
  EXPECT_EQ(http->started, 7);
  AdvanceAndSettle(std::chrono::hours(5));
  EXPECT_EQ(http->started, 7);
}

TEST_F(DispatcherStoreTest, ASubjectKeepsItsOrderAndStopsNoOther) {
  Accept("a1", "sub_a");
  Accept("a2", "sub_a");
  Accept("b1", "sub_b");
  WaitIndexed(3);
  AdvanceAndSettle(seconds(5));
  ASSERT_EQ(http->calls.size(), 2U) << "a2 is behind a1";
  EXPECT_EQ(KeyOf(0), "a1");
  EXPECT_EQ(KeyOf(1), "b1");
  http->Answer(503);
  http->Answer(200);
  Settle();
  EXPECT_TRUE(http->calls.empty()) << "a2 waits while a1 is retrying";
  AdvanceAndSettle(seconds(5));
  ASSERT_EQ(http->calls.size(), 1U);
  EXPECT_EQ(KeyOf(0), "a1");
  http->Answer(200);
  Settle();
  ASSERT_EQ(http->calls.size(), 1U);
  EXPECT_EQ(KeyOf(0), "a2");
}

TEST_F(DispatcherStoreTest, ReplaysUseTheSamePathAndEndAsReplayed) {
  const EventId id = Accept("evt_1");
  WaitIndexed(1);
  AdvanceAndSettle(seconds(5));
  http->Answer(422);
  Settle();
  const std::vector<store::TriageAct> acts = {{.id = id, .act = Act::replay}};
  const auto done = store->Triage(acts, {"ann", "operator", "fixed"}, clock.Now());
  ASSERT_TRUE(done.has_value() && done->front().has_value());
  Settle();
  ASSERT_EQ(http->calls.size(), 1U);
  http->Answer(409);
  Settle();
  EXPECT_EQ(Show(id).state, State::replayed);
  const auto attempts = store->Attempts(id);
  ASSERT_TRUE(attempts.has_value());
  ASSERT_EQ(attempts->size(), 2U);
  EXPECT_EQ(attempts->front().outcome, OutcomeKind::already_applied) << "seen to be a no-op";
}

TEST_F(DispatcherStoreTest, ThreeDeadWorkersParkAnEventAsCrashed) {
  const EventId id = Accept("evt_1");
  WaitIndexed(1);
  AdvanceAndSettle(seconds(5));
  for (int crash = 1; crash <= 3; ++crash) {
    SCOPED_TRACE(crash);
    EXPECT_EQ(Show(id).state, State::running);
    EXPECT_EQ(Show(id).attempts, crash);
    Restart();
    Settle();
    AdvanceAndSettle(seconds(2));
    AdvanceAndSettle(minutes(10));
  }
  EXPECT_EQ(Show(id).state, State::dead);
  EXPECT_EQ(Show(id).failure_class, FailureClass::crashed);
  EXPECT_EQ(Show(id).crashes, 3);
}

TEST_F(DispatcherStoreTest, HandedBackAttemptsAreNotCounted) {
  const EventId id = Accept("evt_1");
  WaitIndexed(1);
  AdvanceAndSettle(seconds(5));
  EXPECT_EQ(dispatcher->running(), 1);
  dispatcher->Drain(std::chrono::milliseconds(10));
  EXPECT_EQ(Show(id).state, State::waiting);
  EXPECT_EQ(Show(id).attempts, 0);
  Restart();
  Settle();
  ASSERT_EQ(http->calls.size(), 1U);
  http->Answer(200);
  Settle();
  EXPECT_EQ(Show(id).state, State::succeeded);
  EXPECT_EQ(Show(id).attempts, 1);
  const auto figures = store->Read();
  ASSERT_TRUE(figures.has_value());
  EXPECT_EQ(figures->accounting_difference, 0);
}

TEST_F(DispatcherStoreTest, RetriesOverTheBudgetComeBackLaterAlsoAfterARestart) {
  config.targets[0].retry = {seconds(5)};
  config.targets[0].retry_budget_percent = 0;
  config.targets[0].retry_budget_min = 0.05;  // 3 a minute
  Restart();
  std::vector<EventId> ids;
  for (int i = 0; i < 8; ++i) ids.push_back(Accept("evt_" + std::to_string(i), "sub_" + std::to_string(i)));
  WaitIndexed(8);
  const auto answer_all = [&] {  // of the event, not of the target: no breaker opens
    while (!http->calls.empty()) http->Answer(422, {{"Dlo-Outcome", "retryable"}});
    Settle();
  };
  AdvanceAndSettle(seconds(5));
  answer_all();
  AdvanceAndSettle(seconds(5));
  EXPECT_EQ(http->calls.size(), 3U);
  answer_all();
  EXPECT_EQ(http->started, 11);
  const auto attempts = store->Attempts(ids.back());
  ASSERT_TRUE(attempts.has_value());
  EXPECT_EQ(attempts->at(0).code, "deferred");
  EXPECT_EQ(Show(ids.back()).attempts, 1);
  Restart();  // the promises are forgotten, the times are not
  Settle();
  EXPECT_TRUE(http->calls.empty());
  int calls = 0;
  for (int i = 0; i < 60 * 5; ++i) {
    AdvanceAndSettle(seconds(1));
    calls += static_cast<int>(http->calls.size());
    answer_all();
  }
  EXPECT_EQ(calls, 5);
  for (const EventId id : ids) {
    EXPECT_EQ(Show(id).state, State::dead);
    EXPECT_EQ(Show(id).failure_class, FailureClass::exhausted);
    EXPECT_EQ(Show(id).attempts, 2) << "putting off used no attempt";
  }
  EXPECT_EQ(store->Read()->accounting_difference, 0);
}

TEST_F(DispatcherStoreTest, APauseIsStoredAndOutlivesARestart) {
  for (int i = 0; i < 60; ++i) Accept("evt_" + std::to_string(i));
  WaitIndexed(60);
  clock.Advance(seconds(5));
  for (int i = 0; i < 20; ++i) {
    Settle();
    http->AnswerAll(422);
  }
  Settle();
  EXPECT_GE(http->started, 50);
  EXPECT_LT(http->started, 60);
  ASSERT_EQ(store->Pauses()->size(), 1U);
  Restart();
  Settle();
  EXPECT_EQ(http->calls.size(), 1U) << "only a probe";
  http->Answer(200);
  Settle();
  EXPECT_TRUE(store->Pauses()->empty());
  EXPECT_GT(http->calls.size(), 0U);
  const auto audit = store->Audit(0, 0, 10);
  ASSERT_TRUE(audit.has_value());
  ASSERT_EQ(audit->size(), 2U);
  for (const AuditRecord& record : *audit) EXPECT_EQ(record.actor, "system");
}

}  // namespace
}  // namespace dlo::dispatch
