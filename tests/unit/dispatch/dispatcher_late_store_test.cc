// The dispatcher beside a store that does not make it wait: what happens between a question and its answer.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "dispatch/dispatcher.h"
#include "env/crash_points.h"
#include "env/random.h"
#include "fakes.h"

namespace dlo::dispatch {
namespace {

using std::chrono::seconds;

constexpr Time kStart{seconds(1'800'000'000)};

class LateStoreTest : public testing::Test {
 protected:
  LateStoreTest() {
    TargetConfig& target = config.targets.emplace_back();
    target.name = "billing";
    target.url = "http://127.0.0.1:1/billing";
    target.jitter = 0;
    SourceConfig& source = config.sources.emplace_back();
    source.name = "stripe";
    source.target = "billing";
    dispatcher =
        std::make_unique<Dispatcher>(config, DispatcherDeps{queue, queue, http, clock, random, points, metrics});
  }
  void Settle() {
    for (int i = 0; i < 100; ++i) {
      const auto next = dispatcher->RunOnce(clock.Now());
      ASSERT_TRUE(next.has_value()) << next.error().message;
      if (*next > clock.Now()) return;
    }
    FAIL() << "it never comes to rest";
  }
  void AnswerAndSettle() {
    queue.Answer();
    Settle();
  }

  Config config;
  FakeQueue queue;
  FakeHttp http;
  ManualClock clock{kStart};
  SeededRandom random{7};
  NoCrashPoints points;
  Metrics metrics;
  std::unique_ptr<Dispatcher> dispatcher;
};

TEST_F(LateStoreTest, AnswersAreJudgedMeanwhileAndAppliedWithTheNextBatch) {
  queue.late = true;
  queue.AddMany("stripe", 2, kStart);
  Settle();
  ASSERT_TRUE(queue.asked());
  EXPECT_TRUE(dispatcher->waits_for_store());
  EXPECT_TRUE(http.calls.empty()) << "nothing is called before its claim is committed";
  AnswerAndSettle();
  ASSERT_EQ(http.calls.size(), 2U);
  http.Answer(200);
  Settle();
  ASSERT_TRUE(queue.asked());
  const int exchanges = queue.exchanges;
  http.Answer(200);  // while the store has the first one
  Settle();
  EXPECT_EQ(queue.exchanges, exchanges) << "one batch at a time";
  while (queue.asked()) AnswerAndSettle();
  EXPECT_EQ(queue.Count(State::succeeded), 2);
}

TEST_F(LateStoreTest, WorkThatRingsAfterTheClaimsIsStillAskedFor) {
  queue.late = true;
  Settle();
  ASSERT_TRUE(queue.asked());
  queue.Add("stripe", kStart);  // the batch under way has not seen it
  Settle();
  AnswerAndSettle();
  ASSERT_TRUE(queue.asked()) << "asked again";
  AnswerAndSettle();
  EXPECT_EQ(http.calls.size(), 1U);
}

TEST_F(LateStoreTest, ABatchThatFailsIsAppliedLater) {
  queue.Add("stripe", kStart);
  Settle();
  queue.late = queue.failing = true;
  http.Answer(200);
  ASSERT_TRUE(dispatcher->RunOnce(clock.Now()).has_value());
  queue.failing = queue.late = false;
  queue.Answer();
  EXPECT_FALSE(dispatcher->RunOnce(clock.Now()).has_value()) << "it is told once";
  Settle();
  EXPECT_EQ(queue.Count(State::succeeded), 1);
}

TEST_F(LateStoreTest, AClaimWhoseLeaseRanOutIsHandedBackAndNotStarted) {
  queue.late = true;
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  ASSERT_TRUE(queue.asked());
  clock.Advance(seconds(61));
  queue.late = false;
  queue.Answer();
  ASSERT_TRUE(dispatcher->RunOnce(clock.Now()).has_value());
  EXPECT_TRUE(http.calls.empty());
  Settle();
  EXPECT_TRUE(queue.handed_back.contains(id) || queue.rows[id].run.crashes == 1);
}

TEST_F(LateStoreTest, AReceiptThatCannotBeReadWaitsForAMinuteUncounted) {
  const EventId id = queue.Add("stripe", kStart);
  queue.unreadable = {id};
  Settle();
  EXPECT_TRUE(http.calls.empty());
  EXPECT_TRUE(queue.handed_back.contains(id));
  EXPECT_EQ(queue.rows[id].due, kStart + store::kUnreadableWait);
  EXPECT_EQ(queue.rows[id].run.tries, 0);
  EXPECT_EQ(dispatcher->running(), 0);
  queue.unreadable.clear();
  clock.Advance(store::kUnreadableWait);
  Settle();
  EXPECT_EQ(http.calls.size(), 1U);
}

TEST_F(LateStoreTest, AFailureHasOneFingerprintWhetherItsReceiptWasInMemoryOrNot) {
  queue.Add("stripe", kStart);
  Settle();
  http.Answer(422, {{"Dlo-Reason", "no_plan"}});
  queue.cold = true;
  queue.Add("stripe", kStart);
  Settle();
  http.Answer(422, {{"Dlo-Reason", "no_plan"}});
  Settle();
  ASSERT_EQ(queue.transitions.size(), 2U);
  EXPECT_FALSE(queue.transitions[0].fingerprint.empty());
  EXPECT_EQ(queue.transitions[0].fingerprint, queue.transitions[1].fingerprint);
}

TEST_F(LateStoreTest, ADrainWaitsForTheBatchUnderWayAndHandsItsClaimsBack) {
  queue.late = true;
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  ASSERT_TRUE(queue.asked());
  std::thread store([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    queue.late = false;
    queue.Answer();
  });
  dispatcher->Drain(seconds(10));
  store.join();
  EXPECT_TRUE(http.calls.empty());
  EXPECT_TRUE(queue.handed_back.contains(id));
  EXPECT_EQ(queue.Count(State::running), 0);
}

}  // namespace
}  // namespace dlo::dispatch
