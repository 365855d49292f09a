#include "deadletter/replay_pacer.h"

#include <gtest/gtest.h>

#include "unit/deadletter/fake_store.h"

namespace dlo::deadletter {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr Time kStart{seconds(1'800'000'000)};

dispatch::TargetFlow Billing(int capacity = 8) {
  dispatch::TargetFlow flow;
  flow.target = "billing";
  flow.sources = {{"stripe"}};
  flow.capacity = capacity;
  flow.took_lately = flow.took_usually = milliseconds(5);
  return flow;
}

TEST(ReplayWindow, BeginsWithThePlacesOfItsTargetAndGrowsByWhatEndsWell) {
  ReplayWindow window;
  dispatch::TargetFlow flow = Billing();
  EXPECT_EQ(window.Look(flow, 0, kStart), 8);
  EXPECT_EQ(window.Look(flow, 0, kStart), 8);  // nothing ended, nothing learnt
  flow.good += 8;
  EXPECT_EQ(window.Look(flow, 0, kStart), 9);
  Time now = kStart;
  for (int i = 0; i < 20'000; ++i) {
    flow.good += 100;
    window.Look(flow, 0, now += milliseconds(5));
  }
  EXPECT_EQ(window.Look(flow, 0, now), 1'024);
}

TEST(ReplayWindow, IsHalvedForEachKindOfTroubleAndNotMoreThanOnceAtATime) {
  struct Row {
    const char* name;
    void (*trouble)(dispatch::TargetFlow&);
    std::int64_t live_due;
    std::int64_t expected;
  };
  const Row rows[] = {
      {"none", [](dispatch::TargetFlow&) {}, 0, 8},
      {"it fails", [](dispatch::TargetFlow& f) { ++f.bad; }, 0, 4},
      {"it is slower than usual", [](dispatch::TargetFlow& f) { f.took_lately = milliseconds(31); }, 0, 4},
      {"a little slower is chance", [](dispatch::TargetFlow& f) { f.took_lately = milliseconds(29); }, 0, 8},
      {"live events wait", [](dispatch::TargetFlow&) {}, 1, 4}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    ReplayWindow window;
    dispatch::TargetFlow flow = Billing();
    window.Look(flow, 0, kStart);
    row.trouble(flow);
    EXPECT_EQ(window.Look(flow, row.live_due, kStart + milliseconds(200)), row.expected);
    if (row.expected == 8) continue;
    row.trouble(flow);
    EXPECT_EQ(window.Look(flow, row.live_due, kStart + milliseconds(299)), 4);
    row.trouble(flow);
    EXPECT_EQ(window.Look(flow, row.live_due, kStart + milliseconds(300)), 2);
    Time now = kStart + seconds(1);
    for (int i = 0; i < 5; ++i) {
      row.trouble(flow);
      EXPECT_GE(window.Look(flow, row.live_due, now += seconds(1)), 1) << "it tries on";
    }
  }
}

TEST(ReplayWindow, IsShutWhileTheBreakerIsNotClosedAndBeginsAnewWithOne) {
  ReplayWindow window;
  dispatch::TargetFlow flow = Billing();
  EXPECT_EQ(window.Look(flow, 0, kStart), 8);
  flow.closed = false;
  EXPECT_EQ(window.Look(flow, 0, kStart), 0);
  flow.closed = true;
  EXPECT_EQ(window.Look(flow, 0, kStart), 1);
  flow.good += 1;
  EXPECT_EQ(window.Look(flow, 0, kStart), 2);
}

TEST(ReplayWindow, LeavesHalfOfThePlacesToLiveTraffic) {
  ReplayWindow window;
  dispatch::TargetFlow flow = Billing();
  flow.live = 1'000;  // long ago, for all it knows
  EXPECT_EQ(window.Look(flow, 0, kStart), 8);
  ++flow.live;
  EXPECT_EQ(window.Look(flow, 0, kStart), 4);
  flow.good += 100;
  EXPECT_EQ(window.Look(flow, 0, kStart + milliseconds(999)), 4);
  flow.good += 4;
  EXPECT_EQ(window.Look(flow, 0, kStart + seconds(1)), 5);
}

class PacerTest : public ::testing::Test {
 protected:
  testing::FakeStore::ReplayRun& Replay(int letters, int batch = 100, int stagger_ms = 0) {
    testing::FakeStore::ReplayRun& r = store.replays[1];
    r.progress = {.id = 1, .state = "running", .kind = "replay", .count = letters, .remaining = letters};
    r.pace = {.id = 1, .batch_size = batch, .stagger = milliseconds(stagger_ms), .next_batch_at = kStart};
    r.pace.sources = {{.source = "stripe", .queued = letters}};
    for (int i = 1; i <= letters; ++i) r.queued.push_back(i);
    store.on_release = [](testing::FakeStore::ReplayRun& run, EventId) {
      --run.pace.sources[0].queued;
      ++run.pace.sources[0].open;
    };
    return r;
  }
  void End(testing::FakeStore::ReplayRun& r, int n) {
    r.pace.sources[0].open -= n;
    flows[0].good += static_cast<std::uint64_t>(n);
  }
  Time Run() { return OrThrow(pacer.RunOnce(now)); }

  testing::FakeStore store;
  std::vector<dispatch::TargetFlow> flows{Billing()};
  ReplayPacer pacer{store, [this] { return flows; }};
  Time now = kStart;
};

TEST_F(PacerTest, NoMoreIsUnderWayThanTheWindowLetsThrough) {
  auto& r = Replay(100);
  Run();
  EXPECT_EQ(store.released.size(), 8U);
  Run();
  EXPECT_EQ(store.released.size(), 8U);
  End(r, 3);
  Run();
  EXPECT_EQ(store.released.size(), 11U);
}

TEST_F(PacerTest, APartOfABatchIsFollowedByThatPartOfThePause) {
  Replay(100, 80, 1'000);
  EXPECT_EQ(Run() - kStart, ReplayPacer::kLookSoon);
  EXPECT_EQ(store.batches.size(), 1U);
  EXPECT_EQ(store.replays[1].pace.next_batch_at, kStart + milliseconds(100));
  End(store.replays[1], 8);
  Run();
  EXPECT_EQ(store.batches.size(), 1U) << "not before its time";
  now += milliseconds(100);
  Run();
  EXPECT_EQ(store.batches.size(), 2U);
}

TEST_F(PacerTest, AClockSetBackDoesNotHoldItUp) {
  Replay(100, 4, 1'000);
  Run();
  now -= std::chrono::hours(1);
  Run();
  EXPECT_EQ(store.batches.size(), 2U);
}

TEST_F(PacerTest, NothingFollowsWhileTheBreakerIsOpenTheSourceIsPausedOrTooManyRetry) {
  const std::function<void()> troubles[] = {[&] { flows[0].closed = false; },
                                            [&] { flows[0].sources[0].paused = true; },
                                            [&] {
                                              store.replays[1].pace.sources[0].open = 1'000;
                                              store.replays[1].pace.sources[0].retrying = 1'000;
                                            },
                                            [&] { flows[0].sources[0].source = "another"; }};
  for (const auto& trouble : troubles) {
    flows = {Billing()};
    store.released.clear();
    Replay(10);
    trouble();
    EXPECT_LE(Run() - now, ReplayPacer::kLookLate);
    EXPECT_TRUE(store.released.empty());
  }
}

TEST_F(PacerTest, LettersThatWaitForARetryTakeNoRoom) {
  auto& r = Replay(100);
  Run();
  r.pace.sources[0].retrying = 5;
  Run();
  EXPECT_EQ(store.released.size(), 13U);
}

TEST_F(PacerTest, TwoTargetsDoNotWaitForEachOther) {
  auto& r = Replay(100);
  dispatch::TargetFlow down = Billing();
  down.target = "mail";
  down.sources = {{"adyen"}};
  down.closed = false;
  flows.push_back(down);
  r.pace.sources.push_back({.source = "adyen", .queued = 50});
  Run();
  ASSERT_EQ(store.orders.size(), 1U);
  EXPECT_EQ(store.orders[0].most, (std::map<std::string, std::int64_t>{{"stripe", 8}}));
}

TEST_F(PacerTest, ItStopsAReplayOfWhichTooManyDieAgain) {
  struct Row {
    int recent, dead, percent;
    bool stops;
  };
  for (const Row& row : {Row{20, 10, 50, false}, Row{20, 11, 50, true}, Row{19, 19, 50, false}, Row{20, 20, 100, false},
                         Row{20, 1, 1, true}, Row{20, 0, 1, false}}) {
    SCOPED_TRACE(row.dead);
    store.replays.clear();
    store.steered.clear();
    store.released.clear();
    auto& r = Replay(100);
    r.pace.recent = row.recent;
    r.pace.recent_dead = row.dead;
    r.pace.stop_percent = row.percent;
    Run();
    EXPECT_EQ(store.released.empty(), row.stops);
    ASSERT_EQ(store.steered.size(), row.stops ? 1U : 0U);
    if (!row.stops) continue;
    EXPECT_EQ(std::get<1>(store.steered[0]), store::ReplayAct::stop);
    EXPECT_EQ(store.last_actor.name, "system");
    EXPECT_NE(std::get<2>(store.steered[0]).find(" of 20 that ended last are dead again"), std::string::npos);
  }
}

TEST_F(PacerTest, ACanaryIsJudgedOnceItHasEnded) {
  struct Row {
    int left, ended, dead;
    std::optional<store::ReplayAct> act;
  };
  for (const Row& row : {Row{1, 1, 1, {}}, Row{0, 2, 1, store::ReplayAct::continue_},
                         Row{0, 3, 2, store::ReplayAct::stop}, Row{0, 0, 0, store::ReplayAct::continue_}}) {
    store.replays.clear();
    store.steered.clear();
    auto& r = Replay(10);
    r.progress.state = "canary";
    r.pace.canary = true;
    r.pace.canary_left = row.left;
    r.pace.canary_ended = row.ended;
    r.pace.canary_dead = row.dead;
    Run();
    ASSERT_EQ(store.steered.size(), row.act ? 1U : 0U);
    if (row.act) {
      EXPECT_EQ(std::get<1>(store.steered[0]), *row.act);
    }
  }
}

TEST_F(PacerTest, WithNothingToDoItLooksAgainInASecond) {
  EXPECT_EQ(Run(), kStart + ReplayPacer::kLookAgain);
}

}  // namespace
}  // namespace dlo::deadletter
