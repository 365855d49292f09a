// What keeps a target, and the house, from too much at once: the retry budget and the total of running attempts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dispatch/dispatcher.h"
#include "fakes.h"

namespace dlo::dispatch {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr Time kStart = Time(seconds(1'800'000'000));

class DispatcherLimitsTest : public testing::Test {
 protected:
  TargetConfig& AddTarget(const std::string& name, int concurrency) {
    TargetConfig& target = config.targets.emplace_back();
    target.name = name;
    target.url = "http://127.0.0.1:1/" + name;
    target.concurrency = concurrency;
    target.jitter = 0;
    SourceConfig& source = config.sources.emplace_back();
    source.name = "to-" + name;
    source.target = name;
    return target;
  }
  void Make() {
    dispatcher =
        std::make_unique<Dispatcher>(config, DispatcherDeps{queue, queue, http, clock, random, points, metrics});
  }
  void Settle() {
    for (int i = 0; i < 2'000; ++i) {
      const auto next = dispatcher->RunOnce(clock.Now());
      ASSERT_TRUE(next.has_value()) << next.error().message;
      if (*next > clock.Now()) return;
    }
    FAIL() << "it never comes to rest";
  }
  EventId IdOf(const FakeHttp::Call& call) {
    for (const std::string& header : call.request.headers) {
      if (header.starts_with("Dlo-Event-Id: ")) return std::stoll(header.substr(14));
    }
    return 0;
  }
  /// Answers until nothing is left to do now. What fails says so of the event, not of the target, so that no breaker
  /// opens.
  void Serve() {
    for (Settle(); !http.calls.empty(); Settle()) {
      while (!http.calls.empty()) {
        const EventId id = IdOf(http.calls.front());
        if (calls_of[id]++ > 0) retries.push_back(clock.Now());
        if (failing.contains(id)) {
          http.Answer(422, {{"Dlo-Outcome", "retryable"}});
        } else {
          http.Answer(200);
        }
      }
    }
  }
  int CallsTo(const std::string& target) {
    return static_cast<int>(std::ranges::count(http.calls, "http://127.0.0.1:1/" + target,
                                               [](const FakeHttp::Call& call) { return call.request.url; }));
  }

  Config config;
  FakeQueue queue;
  FakeHttp http;
  ManualClock clock{kStart};
  SeededRandom random{1};
  NoCrashPoints points;
  Metrics metrics;
  std::unique_ptr<Dispatcher> dispatcher;
  std::set<EventId> failing;
  std::map<EventId, int> calls_of;
  std::vector<Time> retries;
};

TEST_F(DispatcherLimitsTest, AThousandFailingEventsAreNoStormAndFirstCallsGoOn) {
  AddTarget("billing", 8).retry = {seconds(5)};
  Make();
  for (int i = 0; i < 1'000; ++i) failing.insert(queue.Add("to-billing", kStart));
  Serve();
  EXPECT_EQ(calls_of.size(), 1'000U) << "first calls have no budget";
  EXPECT_TRUE(retries.empty());

  clock.Advance(seconds(5));  // all retries fall due at once
  queue.AddMany("to-billing", 200, clock.Now());
  const int before = queue.exchanges;
  Serve();
  EXPECT_EQ(queue.Count(State::succeeded), 200) << "fresh events do not wait for the put-off ones";
  EXPECT_LT(queue.exchanges - before, 400) << "each retry is looked at once";
  EXPECT_GE(retries.size(), 100U);
  EXPECT_LE(retries.size(), 120U) << "10 % of the first calls";
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_retries_deferred_total{target=\"billing\"} "));
  EXPECT_THAT(metrics.Render(), testing::Not(HasSubstr("dlo_retries_deferred_total{target=\"billing\"} 0")));

  while (queue.Count(State::dead) < 1'000 && clock.Now() < kStart + minutes(30)) {
    clock.Advance(milliseconds(500));
    Serve();
  }
  EXPECT_EQ(queue.Count(State::dead), 1'000) << "put off, not forgotten";
  EXPECT_LT(clock.Now(), kStart + minutes(18)) << "about one a second";
  EXPECT_EQ(retries.size(), 1'000U) << "one each: putting off used no attempt";
  for (const EventId id : failing) EXPECT_EQ(queue.rows[id].run.tries, 2);
  for (std::size_t i = 0; i + 120 < retries.size(); ++i) {
    EXPECT_GT(retries[i + 120] - retries[i], minutes(1) - seconds(2)) << i;
  }
}

TEST_F(DispatcherLimitsTest, WithoutABudgetAllRetriesGo) {
  TargetConfig& target = AddTarget("billing", 8);
  target.retry = {seconds(5)};
  target.retry_budget_percent = target.retry_budget_min = 0;
  Make();
  for (int i = 0; i < 500; ++i) failing.insert(queue.Add("to-billing", kStart));
  Serve();
  clock.Advance(seconds(5));
  Serve();
  EXPECT_EQ(retries.size(), 500U);
}

TEST_F(DispatcherLimitsTest, AReplayIsNoRetry) {
  TargetConfig& target = AddTarget("billing", 8);
  target.retry = {seconds(5)};
  target.retry_budget_min = 0.05;  // 3 a minute
  Make();
  for (int i = 0; i < 20; ++i) failing.insert(queue.Add("to-billing", kStart));
  Serve();
  failing.clear();
  for (const auto& [id, calls] : calls_of) queue.Replay(id, clock.Now());
  Serve();
  EXPECT_EQ(queue.Count(State::replayed), 20);
}

TEST_F(DispatcherLimitsTest, ABreakersProbeIsNotPutOff) {
  TargetConfig& target = AddTarget("billing", 10);
  target.retry_budget_percent = 0;
  target.retry_budget_min = 0.01;  // one a minute
  Make();
  queue.AddMany("to-billing", 10, kStart);
  Settle();
  http.AnswerAll(503);
  Settle();
  ASSERT_EQ(dispatcher->Breakers().at(0).state, "open");
  for (int probe = 1; probe <= 3; ++probe) {
    clock.Advance(*dispatcher->Breakers().at(0).retry_at - clock.Now());
    Settle();
    EXPECT_EQ(http.calls.size(), 1U) << probe;
    http.AnswerAll(503);
    Settle();
  }
  EXPECT_TRUE(queue.handed_back.empty());
}

TEST_F(DispatcherLimitsTest, AStoreThatFailsMeanwhileLosesNoPutOffRetry) {
  TargetConfig& target = AddTarget("billing", 8);
  target.retry = {seconds(5)};
  target.retry_budget_percent = 0;
  target.retry_budget_min = 0.02;  // one a minute
  Make();
  failing = {queue.Add("to-billing", kStart), queue.Add("to-billing", kStart)};
  Serve();
  clock.Advance(seconds(5));
  ASSERT_TRUE(dispatcher->RunOnce(clock.Now()).has_value());  // claims both; one is over the budget
  EXPECT_EQ(queue.Count(State::running), 2);
  EXPECT_EQ(http.calls.size(), 1U);
  queue.failing = true;
  for (int i = 0; i < 90; ++i) {  // beyond its lease
    EXPECT_FALSE(dispatcher->RunOnce(clock.Now()).has_value());
    clock.Advance(seconds(1));
  }
  queue.failing = false;
  Serve();
  EXPECT_EQ(queue.handed_back.size(), 1U);
  clock.Advance(minutes(2));
  Serve();
  EXPECT_EQ(queue.Count(State::dead), 2);
  for (const EventId id : failing) {
    EXPECT_EQ(queue.rows[id].run.tries, 2);
    EXPECT_EQ(queue.rows[id].run.crashes, 0);
  }
}

TEST_F(DispatcherLimitsTest, AllTargetsTogetherStayWithinTheTotal) {
  config.dispatch.max_running = 10;
  for (const char* name : {"a", "b", "c"}) AddTarget(name, 8);
  Make();
  for (const char* source : {"to-a", "to-b", "to-c"}) queue.AddMany(source, 100, kStart);
  Settle();
  EXPECT_EQ(CallsTo("a"), 8);
  EXPECT_EQ(CallsTo("b"), 2);
  EXPECT_EQ(CallsTo("c"), 1) << "each may have one: those that hang must not stop the others";
  std::map<std::string, int> ended;
  for (int i = 0; i < 60; ++i) {
    EXPECT_LE(http.calls.size(), 12U);
    http.Answer(200);
    Settle();
  }
  for (const Transition& t : queue.transitions) ++ended[queue.rows[t.id].receipt->source];
  for (const char* source : {"to-a", "to-b", "to-c"}) EXPECT_GE(ended[source], 10) << source;
}

TEST_F(DispatcherLimitsTest, WithoutASettingTheTotalIs64OrTheLargestTarget) {
  for (int i = 0; i < 10; ++i) AddTarget("t" + std::to_string(i), 8);
  Make();
  for (int i = 0; i < 10; ++i) queue.AddMany("to-t" + std::to_string(i), 20, kStart);
  Settle();
  EXPECT_EQ(http.calls.size(), 66U) << "64, and one each for the two that had none";

  config = {};
  AddTarget("large", 200);
  FakeQueue other;
  FakeHttp large;
  Dispatcher alone(config, {other, other, large, clock, random, points, metrics});
  other.AddMany("to-large", 300, kStart);
  ASSERT_TRUE(alone.RunOnce(clock.Now()).has_value());
  EXPECT_EQ(large.calls.size(), 200U);
}

}  // namespace
}  // namespace dlo::dispatch
