#include "dispatch/dispatcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dispatch/shares.h"
#include "fakes.h"

namespace dlo::dispatch {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr Time kStart = Time(seconds(1'800'000'000));

/// Remembers which points were passed.
class Points final : public CrashPoints {
 public:
  void At(std::string_view name) override { passed.emplace_back(name); }
  std::vector<std::string> passed;
};

class DispatcherTest : public testing::Test {
 protected:
  TargetConfig& AddTarget(const std::string& name, int concurrency) {
    TargetConfig& target = config.targets.emplace_back();
    target.name = name;
    target.url = "http://127.0.0.1:1/" + name;
    target.concurrency = concurrency;
    target.jitter = 0;
    return target;
  }
  SourceConfig& AddSource(const std::string& name, const std::string& target) {
    SourceConfig& source = config.sources.emplace_back();
    source.name = name;
    source.target = target;
    return source;
  }
  void Make() { dispatcher = std::make_unique<Dispatcher>(config, Deps()); }
  DispatcherDeps Deps() { return {queue, queue, http, clock, random, points, metrics}; }
  /// Rounds until it says that nothing is left to do now.
  Time Settle() {
    for (int i = 0; i < 1000; ++i) {
      const auto next = dispatcher->RunOnce(clock.Now());
      if (!next) {
        ADD_FAILURE() << next.error().message;
        return {};
      }
      if (*next > clock.Now()) return *next;
    }
    ADD_FAILURE() << "it never comes to rest";
    return {};
  }
  void AnswerAndSettle(int status) {
    http.AnswerAll(status);
    Settle();
  }

  Config config;
  FakeQueue queue;
  FakeHttp http;
  ManualClock clock{kStart};
  SeededRandom random{1};
  Points points;
  Metrics metrics;
  std::unique_ptr<Dispatcher> dispatcher;
};

TEST_F(DispatcherTest, ClaimsCallsAppliesAndRests) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  EXPECT_EQ(queue.opened, 1);
  ASSERT_EQ(http.calls.size(), 1U);
  EXPECT_EQ(dispatcher->running(), 1);
  EXPECT_EQ(queue.rows[id].state, State::running);
  EXPECT_EQ(http.calls.front().request.body, "{}");
  AnswerAndSettle(200);
  EXPECT_EQ(queue.rows[id].state, State::succeeded);
  EXPECT_EQ(dispatcher->running(), 0);
  EXPECT_THAT(points.passed, testing::ElementsAre("dispatch.after_claim", "dispatch.before_handler",
                                                  "dispatch.after_handler", "dispatch.before_apply"));
  const int before = queue.exchanges;
  Settle();
  EXPECT_EQ(queue.exchanges, before) << "a round without news costs the store nothing";
  EXPECT_EQ(queue.opened, 1) << "only a start expires leases";
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_attempts_total{target=\"billing\",outcome=\"applied\"} 1"));
}

TEST_F(DispatcherTest, TellsHowItsTargetsDo) {
  AddTarget("billing", 8).breaker_failures = 2;
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 3, kStart);
  Settle();
  AnswerAndSettle(200);
  TargetFlow flow = dispatcher->Flows().at(0);
  EXPECT_EQ(std::make_tuple(flow.target, flow.capacity, flow.closed, flow.good, flow.bad),
            std::make_tuple("billing", 8, true, 3U, 0U));
  EXPECT_EQ(flow.sources.at(0).source, "stripe");
  EXPECT_FALSE(flow.sources.at(0).paused);
  queue.AddMany("stripe", 2, kStart);
  Settle();
  AnswerAndSettle(503);
  flow = dispatcher->Flows().at(0);
  EXPECT_EQ(std::make_tuple(flow.closed, flow.good, flow.bad), std::make_tuple(false, 3U, 2U));
}

TEST_F(DispatcherTest, CountsEffectsWhoseNotificationsWereSuppressed) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing").notify_within = minutes(1);
  Make();
  const EventId old = queue.Add("stripe", kStart - hours(1)), fresh = queue.Add("stripe", kStart);
  for (const EventId id : {old, fresh}) queue.Replay(id, kStart);
  Settle();
  AnswerAndSettle(200);
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_notifications_suppressed_total{source=\"stripe\"} 1"));
}

TEST_F(DispatcherTest, RetriesWhenDueAndDiesWhenTheBudgetIsSpent) {
  AddTarget("billing", 8).retry = {seconds(5), seconds(30)};
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  http.AnswerAll(500);
  EXPECT_GT(Settle(), kStart);
  clock.Advance(seconds(5) - Duration(1));
  Settle();
  EXPECT_EQ(http.started, 1);
  clock.Advance(Duration(1));
  Settle();
  EXPECT_EQ(http.started, 2);
  AnswerAndSettle(503);
  clock.Advance(seconds(30));
  Settle();
  EXPECT_EQ(http.started, 3);
  AnswerAndSettle(500);
  EXPECT_EQ(queue.rows[id].state, State::dead);
  EXPECT_EQ(queue.rows[id].failure_class, FailureClass::exhausted);
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_dead_lettered_total{source=\"stripe\",class=\"exhausted\"} 1"));
}

TEST_F(DispatcherTest, SaysWhenTheNextEventFallsDue) {
  AddTarget("billing", 8).retry = {milliseconds(300)};
  AddSource("stripe", "billing");
  Make();
  queue.Add("stripe", kStart);
  Settle();
  http.AnswerAll(500);
  EXPECT_EQ(Settle(), kStart + milliseconds(300));
}

TEST_F(DispatcherTest, KeepsToTheTargetsConcurrency) {
  AddTarget("billing", 3);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 10, kStart);
  Settle();
  EXPECT_EQ(http.calls.size(), 3U);
  http.Answer(200);
  Settle();
  EXPECT_EQ(http.calls.size(), 3U);
  for (int i = 0; i < 10; ++i) AnswerAndSettle(200);
  EXPECT_EQ(queue.Count(State::succeeded), 10);
}

TEST_F(DispatcherTest, TwoSourcesShareOneTargetFairly) {
  AddTarget("billing", 4);
  AddSource("busy", "billing");
  AddSource("other", "billing");
  Make();
  queue.AddMany("busy", 100, kStart);
  queue.AddMany("other", 100, kStart);
  Settle();
  EXPECT_EQ(http.calls.size(), 4U);
  std::map<std::string, int> ended;
  for (int i = 0; i < 40; ++i) {
    http.Answer(200);
    Settle();
  }
  for (const Transition& t : queue.transitions) ++ended[queue.rows[t.id].receipt->source];
  EXPECT_GE(ended["busy"], 15);
  EXPECT_GE(ended["other"], 15);
}

TEST_F(DispatcherTest, AnIdleSourceLeavesTheWholeTargetToTheOther) {
  AddTarget("billing", 8);
  AddSource("busy", "billing");
  AddSource("idle", "billing");
  Make();
  queue.AddMany("busy", 100, kStart);
  Settle();
  EXPECT_EQ(http.calls.size(), 8U);
}

TEST(SplitFairly, Tables) {
  const auto split = [](int free, std::size_t start, std::vector<int> most) {
    std::vector<Share> shares;
    for (std::size_t i = 0; i < most.size(); ++i) shares.push_back({i, most[i], 0});
    SplitFairly(free, start, shares);
    std::vector<int> out;
    for (const Share& s : shares) out.push_back(s.share);
    return out;
  };
  using V = std::vector<int>;
  EXPECT_EQ(split(8, 0, {8}), V({8}));
  EXPECT_EQ(split(8, 0, {8, 8}), V({4, 4}));
  EXPECT_EQ(split(1, 0, {1, 1}), V({1, 0}));
  EXPECT_EQ(split(1, 1, {1, 1}), V({0, 1}));
  EXPECT_EQ(split(7, 0, {7, 7, 7}), V({3, 2, 2}));
  EXPECT_EQ(split(7, 2, {7, 7, 7}), V({2, 2, 3}));
  EXPECT_EQ(split(8, 0, {1, 8}), V({1, 7}));
  EXPECT_EQ(split(8, 0, {1, 1}), V({1, 1}));
  EXPECT_EQ(split(0, 0, {1, 1}), V({0, 0}));
  EXPECT_EQ(split(3, 0, {}), V({}));
}

TEST_F(DispatcherTest, AnOpenBreakerSpendsNoAttempt) {
  AddTarget("billing", 10);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 30, kStart);
  Settle();
  http.AnswerAll(503);
  Settle();
  EXPECT_EQ(dispatcher->Breakers().at(0).state, "open");
  EXPECT_EQ(http.started, 10) << "20 events wait and none was tried";
  EXPECT_EQ(queue.Count(State::waiting), 30);
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_breaker_state{target=\"billing\"} 2"));
  const Time retry_at = *dispatcher->Breakers().at(0).retry_at;
  clock.Advance(retry_at - clock.Now() - Duration(1));
  Settle();
  EXPECT_EQ(http.started, 10);
  clock.Advance(Duration(1));
  Settle();
  EXPECT_EQ(http.started, 11) << "one probe";
  EXPECT_EQ(dispatcher->Breakers().at(0).state, "half_open");
  AnswerAndSettle(503);
  EXPECT_EQ(http.started, 11);
  EXPECT_GT(*dispatcher->Breakers().at(0).retry_at, clock.Now() + seconds(29)) << "doubled";
  clock.Advance(minutes(5));
  Settle();
  EXPECT_EQ(http.started, 12);
  http.AnswerAll(200);
  Settle();
  EXPECT_EQ(dispatcher->Breakers().at(0).state, "closed");
  EXPECT_EQ(http.calls.size(), 10U) << "the whole capacity again";
}

TEST_F(DispatcherTest, TheBreakersProbeIsOneOverAllSources) {
  AddTarget("billing", 10);
  AddSource("a", "billing");
  AddSource("b", "billing");
  Make();
  queue.AddMany("a", 20, kStart);
  queue.AddMany("b", 20, kStart);
  Settle();
  AnswerAndSettle(500);
  clock.Advance(minutes(1));
  Settle();
  EXPECT_EQ(http.calls.size(), 1U);
}

TEST_F(DispatcherTest, PermanentFailuresDoNotOpenTheBreaker) {
  AddTarget("billing", 10);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 40, kStart);
  Settle();
  for (int i = 0; i < 5; ++i) AnswerAndSettle(422);
  EXPECT_EQ(queue.Count(State::dead), 40);
  EXPECT_EQ(dispatcher->Breakers().at(0).state, "closed");
}

TEST_F(DispatcherTest, ARefusedAddressCostsNoEvents) {
  AddTarget("billing", 10);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 100, kStart);
  Settle();
  while (!http.calls.empty()) http.Fail(HttpFailure::blocked_address);
  Settle();
  EXPECT_EQ(queue.Count(State::waiting), 100);
  EXPECT_EQ(dispatcher->Breakers().at(0).state, "open");
}

class SystemicTest : public DispatcherTest {
 protected:
  void SetUp() override {
    AddTarget("billing", 1);
    AddSource("stripe", "billing");
    AddSource("other", "billing");
    Make();
  }
  void Judge(int count, int status) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(http.calls.size(), 1U);
      AnswerAndSettle(status);
    }
  }
};

TEST_F(SystemicTest, FortyOfFiftyPauseTheSourceAndThirtyNineDoNot) {
  queue.AddMany("stripe", 80, kStart);
  Settle();
  Judge(11, 200);
  Judge(39, 422);
  EXPECT_TRUE(queue.pauses.empty());
  ASSERT_EQ(http.calls.size(), 1U);
  Judge(1, 422);
  ASSERT_EQ(queue.pauses.size(), 1U);
  EXPECT_EQ(queue.pauses[0].source, "stripe");
  EXPECT_FALSE(queue.pauses[0].fingerprint.empty());
  EXPECT_EQ(queue.pauses[0].message, "HTTP 422");
  EXPECT_EQ(queue.actors, std::vector<std::string>{"system"});
  EXPECT_TRUE(http.calls.empty()) << "nothing more of it is tried";
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_source_paused{source=\"stripe\"} 1"));
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_source_paused{source=\"other\"} 0"));
}

TEST_F(SystemicTest, FortyNineAreTooFewToJudge) {
  queue.AddMany("stripe", 80, kStart);
  Settle();
  Judge(49, 422);
  EXPECT_TRUE(queue.pauses.empty());
  EXPECT_EQ(http.calls.size(), 1U);
  Judge(1, 422);
  EXPECT_EQ(queue.pauses.size(), 1U);
}

TEST_F(SystemicTest, OneProbeAMinuteThenASuccessResumes) {
  queue.AddMany("stripe", 80, kStart);
  Settle();
  Judge(50, 422);
  queue.Add("other", clock.Now());
  Settle();
  Judge(1, 200);
  EXPECT_EQ(queue.Count(State::succeeded), 1) << "other sources go on";
  const int before = http.started;
  clock.Advance(seconds(59));
  Settle();
  EXPECT_EQ(http.started, before);
  clock.Advance(seconds(1));
  Settle();
  EXPECT_EQ(http.started, before + 1);
  Judge(1, 422);
  EXPECT_EQ(http.started, before + 1) << "the cause is still there";
  clock.Advance(minutes(1));
  Settle();
  Judge(1, 200);
  EXPECT_TRUE(queue.pauses.empty());
  EXPECT_EQ(queue.actors, (std::vector<std::string>{"system", "system"}));
  EXPECT_EQ(http.started, before + 3) << "and on it goes";
  Judge(27, 422);
  EXPECT_EQ(queue.Count(State::waiting), 0) << "a new judgement needs fifty new ones";
}

TEST_F(SystemicTest, APersonResumes) {
  queue.AddMany("stripe", 80, kStart);
  Settle();
  Judge(50, 422);
  EXPECT_TRUE(http.calls.empty());
  queue.pauses.clear();
  dispatcher->Resumed("stripe");
  dispatcher->Resumed("unknown");
  Settle();
  EXPECT_EQ(http.calls.size(), 1U);
}

TEST_F(SystemicTest, APauseIsWrittenWhenTheStoreIsBack) {
  queue.AddMany("stripe", 80, kStart);
  Settle();
  Judge(49, 422);
  queue.failing = true;
  http.AnswerAll(422);
  EXPECT_FALSE(dispatcher->RunOnce(clock.Now()).has_value());
  EXPECT_TRUE(queue.pauses.empty());
  queue.failing = false;
  Settle();
  EXPECT_EQ(queue.pauses.size(), 1U);
  EXPECT_EQ(queue.Count(State::dead), 50);
  EXPECT_TRUE(http.calls.empty());
}

TEST_F(SystemicTest, APauseOutlivesARestart) {
  queue.AddMany("stripe", 80, kStart);
  queue.pauses.push_back({"stripe", "0123456789abcdef", "m", kStart});
  Settle();
  EXPECT_EQ(http.calls.size(), 1U) << "a probe";
  Judge(1, 422);
  EXPECT_TRUE(queue.pauses.empty()) << "it failed for another cause";
}

TEST_F(DispatcherTest, LeasesAreRenewedWhileAHandlerRuns) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  EXPECT_EQ(queue.rows[id].lease_until, kStart + seconds(60));
  clock.Advance(seconds(19));
  Settle();
  EXPECT_EQ(queue.rows[id].lease_until, kStart + seconds(60));
  clock.Advance(seconds(1));
  Settle();
  EXPECT_EQ(queue.rows[id].lease_until, clock.Now() + seconds(60));
  for (int i = 0; i < 20; ++i) {
    clock.Advance(seconds(20));
    Settle();
  }
  EXPECT_EQ(http.started, 1);
  AnswerAndSettle(200);
  EXPECT_EQ(queue.rows[id].state, State::succeeded);
}

TEST_F(DispatcherTest, ALeaseIsLongerThanTheTargetsDeadline) {
  AddTarget("slow", 1).timeout = seconds(30);
  AddTarget("slower", 1).timeout = seconds(31);
  AddSource("stripe", "slow");
  Make();
  queue.Add("stripe", kStart);
  Settle();
  EXPECT_EQ(queue.last_lease.length, seconds(61));
  EXPECT_FALSE(queue.last_lease.worker.empty());
}

TEST_F(DispatcherTest, ALateAnswerIsSeenAndChangesNothing) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  queue.Steal(id);
  AnswerAndSettle(200);
  EXPECT_EQ(queue.rows[id].state, State::running);
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_late_total 1"));
}

TEST_F(DispatcherTest, ALostLeaseIsRenewedNoMore) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  queue.rows[id].lease_until = kStart + hours(5);
  queue.Steal(id);
  clock.Advance(seconds(20));
  Settle();
  EXPECT_EQ(queue.rows[id].lease_until, kStart + hours(5));
}

TEST_F(DispatcherTest, LeasesOfADeadProcessAreRescuedAndThreeCrashesPark) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  const EventId id = queue.Add("stripe", kStart);
  for (int crash = 1; crash <= 3; ++crash) {
    SCOPED_TRACE(crash);
    Make();  // the one before it died with the event in its hands
    Settle();
    clock.Advance(minutes(3));
    Settle();
    EXPECT_EQ(queue.rows[id].run.attempt, crash);
  }
  EXPECT_EQ(queue.rows[id].state, State::running);
  Make();
  Settle();
  EXPECT_EQ(queue.rows[id].state, State::dead);
  EXPECT_EQ(queue.rows[id].failure_class, FailureClass::crashed);
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_attempts_total{target=\"billing\",outcome=\"crashed\"} 3"));
}

TEST_F(DispatcherTest, AnEventOfAnUnconfiguredSourceIsRescuedToo) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("gone", kStart);
  queue.rows[id].state = State::running;
  queue.rows[id].run.tries = 1;
  Settle();
  EXPECT_EQ(queue.rows[id].state, State::waiting);
}

TEST_F(DispatcherTest, AnOverdueLeaseOfOursIsRenewedAndNotRescued) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  queue.failing = true;
  for (int i = 0; i < 70; ++i) {
    clock.Advance(seconds(1));
    (void)dispatcher->RunOnce(clock.Now());
  }
  queue.failing = false;
  clock.Advance(seconds(1));
  Settle();
  EXPECT_EQ(queue.rows[id].state, State::running);
  EXPECT_EQ(queue.rows[id].run.crashes, 0);
  EXPECT_GT(queue.rows[id].lease_until, clock.Now());
  AnswerAndSettle(200);
  EXPECT_EQ(queue.rows[id].state, State::succeeded);
}

TEST_F(DispatcherTest, AStoreErrorLosesNoAnswer) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 3, kStart);
  Settle();
  queue.failing = true;
  http.AnswerAll(200);
  EXPECT_FALSE(dispatcher->RunOnce(clock.Now()).has_value());
  clock.Advance(minutes(2));  // their leases run out meanwhile
  EXPECT_FALSE(dispatcher->RunOnce(clock.Now()).has_value());
  EXPECT_EQ(queue.Count(State::running), 3);
  queue.failing = false;
  Settle();
  EXPECT_EQ(queue.Count(State::succeeded), 3);
  EXPECT_EQ(http.started, 3);
  EXPECT_EQ(queue.transitions.size(), 3U);
}

TEST_F(DispatcherTest, CorruptEventsNeverReachTheHandler) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  queue.rows[id].corrupt = true;
  Settle();
  EXPECT_EQ(http.started, 0);
  EXPECT_EQ(queue.rows[id].state, State::dead);
  EXPECT_EQ(queue.rows[id].failure_class, FailureClass::corrupt);
  EXPECT_EQ(dispatcher->running(), 0);
}

TEST_F(DispatcherTest, HandlersAreToldOfReplayAndAge) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing").notify_within = hours(24);
  Make();
  struct Row {
    const char* name;
    bool replay;
    Duration age;
    const char* suppress;
  };
  for (const Row& row :
       {Row{"fresh replay", true, hours(24), "false"}, Row{"old replay", true, hours(24) + Duration(1), "true"},
        Row{"old live event", false, hours(25), "false"}}) {
    SCOPED_TRACE(row.name);
    const EventId id = queue.Add("stripe", clock.Now() - row.age);
    if (row.replay) queue.Replay(id, clock.Now());
    Settle();
    ASSERT_EQ(http.calls.size(), 1U);
    const auto& headers = http.calls.front().request.headers;
    EXPECT_THAT(headers, testing::Contains(std::string("Dlo-Suppress-Notifications: ") + row.suppress));
    EXPECT_THAT(headers, testing::Contains(std::string("Dlo-Replay: ") + (row.replay ? "true" : "false")));
    EXPECT_EQ(std::ranges::count(headers, "Dlo-Replay-Id: 9"), row.replay ? 1 : 0);
    AnswerAndSettle(200);
    EXPECT_EQ(queue.rows[id].state, row.replay ? State::replayed : State::succeeded);
  }
  EXPECT_THAT(metrics.Render(), HasSubstr("dlo_replayed_total{outcome=\"committed\"} 2"));
}

TEST_F(DispatcherTest, WakesTheLoopForWorkAnswersAndResumes) {
  AddTarget("billing", 8);
  AddSource("stripe", "billing");
  Make();
  int woken = 0;
  dispatcher->OnWake([&] { ++woken; });
  queue.Add("stripe", kStart);
  EXPECT_EQ(woken, 1);
  queue.Add("stripe", kStart);
  EXPECT_EQ(woken, 1) << "once is enough until it has looked";
  Settle();
  http.Answer(200);
  EXPECT_EQ(woken, 2);
  Settle();
  dispatcher->Resumed("stripe");
  EXPECT_EQ(woken, 3);
  dispatcher.reset();
  queue.ring();
  http.Answer(200);  // an answer that comes after the dispatcher is gone
  EXPECT_EQ(woken, 3);
}

TEST_F(DispatcherTest, DrainAppliesWhatEndedAndHandsBackTheRestUncounted) {
  AddTarget("billing", 4);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 10, kStart);
  Settle();
  http.Answer(200);
  dispatcher->Drain(milliseconds(50));
  EXPECT_EQ(queue.Count(State::succeeded), 1);
  EXPECT_EQ(queue.handed_back.size(), 3U);
  EXPECT_EQ(queue.Count(State::waiting), 9);
  EXPECT_EQ(queue.rows[2].run.tries, 0) << "not counted";
  EXPECT_EQ(dispatcher->running(), 0);
  http.AnswerAll(500);
  ASSERT_TRUE(dispatcher->RunOnce(clock.Now()).has_value());
  EXPECT_EQ(http.started, 4) << "nothing is claimed any more";
  EXPECT_EQ(queue.transitions.size(), 1U) << "answers after the grace are ignored";
}

TEST_F(DispatcherTest, AStoppedClientHandsBack) {
  AddTarget("billing", 4);
  AddSource("stripe", "billing");
  Make();
  const EventId id = queue.Add("stripe", kStart);
  Settle();
  http.Fail(HttpFailure::stopped);
  ASSERT_TRUE(dispatcher->RunOnce(clock.Now()).has_value());
  EXPECT_TRUE(queue.handed_back.contains(id));
  EXPECT_TRUE(queue.transitions.empty());
}

TEST_F(DispatcherTest, DrainWithADeadStoreEnds) {
  AddTarget("billing", 4);
  AddSource("stripe", "billing");
  Make();
  queue.AddMany("stripe", 2, kStart);
  Settle();
  http.Answer(200);
  queue.failing = true;
  dispatcher->Drain(milliseconds(50));
  EXPECT_EQ(queue.Count(State::running), 2) << "left to the next start's rescue";
}

// --- in-process targets: real threads, so these wait for events

/// A gate that handlers wait at.
class Gate {
 public:
  void Enter() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void WaitFor(int inside) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inside_ >= inside; });
  }
  void Open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
  bool open_ = false;
};

class InProcessTest : public DispatcherTest {
 protected:
  ~InProcessTest() override { dispatcher.reset(); }  // its threads wake what is below
  void MakeWith(Handler handler, int concurrency) {
    TargetConfig& target = AddTarget("local", concurrency);
    target.type = TargetType::in_process;
    target.handler = std::move(handler);
    AddSource("stripe", "local");
    Make();
    dispatcher->OnWake([this] {
      const std::lock_guard lock(mutex);
      woken = true;
      changed.notify_all();
    });
  }
  void RunUntil(const std::function<bool()>& done) {
    while (!done()) {
      const auto next = dispatcher->RunOnce(clock.Now());
      ASSERT_TRUE(next.has_value());
      if (done() || *next <= clock.Now()) continue;
      std::unique_lock lock(mutex);
      changed.wait(lock, [this] { return woken; });
      woken = false;
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  bool woken = false;
};

TEST_F(InProcessTest, EveryEventOnceAndNeverMoreThanItsConcurrencyAtOnce) {
  std::atomic<int> now{0}, most{0};
  std::mutex seen_mutex;
  std::multiset<EventId> seen;
  MakeWith(
      [&](const Delivery& delivery) {
        const int inside = ++now;
        int before = most;
        while (before < inside && !most.compare_exchange_weak(before, inside)) {
        }
        {
          const std::lock_guard lock(seen_mutex);
          seen.insert(delivery.receipt->id);
        }
        --now;
        return Outcome::Applied();
      },
      3);
  queue.AddMany("stripe", 300, kStart);
  RunUntil([&] { return queue.Count(State::succeeded) == 300; });
  EXPECT_LE(most, 3);
  EXPECT_EQ(seen.size(), 300U);
  EXPECT_EQ(std::set<EventId>(seen.begin(), seen.end()).size(), 300U);
}

TEST_F(InProcessTest, HoldsTwiceItsConcurrencySoThatWorkersDoNotIdle) {
  Gate gate;
  MakeWith(
      [&](const Delivery&) {
        gate.Enter();
        return Outcome::Applied();
      },
      2);
  queue.AddMany("stripe", 10, kStart);
  Settle();
  EXPECT_EQ(queue.Count(State::running), 4);
  gate.Open();
  RunUntil([&] { return queue.Count(State::succeeded) == 10; });
}

TEST_F(InProcessTest, WhatEscapesAHandlerIsAPermanentFailure) {
  MakeWith(
      [](const Delivery& delivery) -> Outcome {
        if (delivery.receipt->id == 1) throw std::runtime_error("no such plan:\nbasic");
        if (delivery.receipt->id == 2) throw 7;
        Outcome forged;
        forged.kind = OutcomeKind::crashed;
        return forged;
      },
      1);
  queue.AddMany("stripe", 3, kStart);
  RunUntil([&] { return queue.Count(State::dead) == 3; });
  EXPECT_EQ(queue.transitions[0].outcome.code, "exception");
  EXPECT_EQ(queue.transitions[0].outcome.message, "no such plan: basic");
  EXPECT_EQ(queue.transitions[1].outcome.code, "exception");
  EXPECT_EQ(queue.transitions[2].outcome.code, "bad_outcome");
  for (const Transition& t : queue.transitions) EXPECT_EQ(t.failure_class, FailureClass::permanent);
}

TEST_F(InProcessTest, DrainHandsBackTheQueuedAtOnceAndWaitsForTheRunning) {
  Gate gate;
  MakeWith(
      [&](const Delivery&) {
        gate.Enter();
        return Outcome::Applied();
      },
      2);
  queue.AddMany("stripe", 10, kStart);
  Settle();
  gate.WaitFor(2);
  queue.on_hand_back = [&] { gate.Open(); };
  dispatcher->Drain(seconds(20));
  EXPECT_EQ(queue.Count(State::succeeded), 2);
  EXPECT_EQ(queue.handed_back.size(), 2U);
  EXPECT_EQ(queue.Count(State::waiting), 8);
}

TEST_F(InProcessTest, DrainDoesNotWaitForAHandlerThatHangs) {
  auto gate = std::make_shared<Gate>();  // outlives the test's frame, as does the handler's thread
  auto left = std::make_shared<std::promise<void>>();
  MakeWith(
      [gate, left](const Delivery&) {
        gate->Enter();
        left->set_value();
        return Outcome::Applied();
      },
      1);
  queue.Add("stripe", kStart);
  Settle();
  gate->WaitFor(1);
  dispatcher->Drain(milliseconds(20));
  EXPECT_EQ(queue.handed_back.size(), 1U);
  dispatcher.reset();
  gate->Open();
  left->get_future().get();
}

}  // namespace
}  // namespace dlo::dispatch
