#include "deadletter/desk.h"

#include <gtest/gtest.h>

#include "unit/deadletter/fake_store.h"

namespace dlo::deadletter {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class DeskTest : public ::testing::Test {
 protected:
  testing::FakeStore store;
  ManualClock clock{Time(seconds(1'800'000'000))};
  ReplayPacer pacer{store};
  int waits = 0;
  std::function<void()> while_waiting = [] {};
  Desk desk{{.store = store,
             .clock = clock,
             .pacer = pacer,
             .holds_lane = [](const std::string& source) { return source == "ordered"; },
             .wait =
                 [this](Duration by) {
                   ++waits;
                   clock.Advance(by);
                   while_waiting();
                 },
             .ring = {}}};
  const Actor actor{.name = "ada", .role = "operator", .reason = "fixed upstream"};
};

TEST_F(DeskTest, ListsAreOfDeadAndHeldLettersUnlessAStateIsNamed) {
  ASSERT_TRUE(desk.List({}, 50, {}));
  EXPECT_EQ(store.last_filter.states, (std::vector{State::dead, State::held}));
  ASSERT_TRUE(desk.Count({.states = {State::waiting}}));
  EXPECT_EQ(store.last_filter.states, std::vector{State::waiting});
}

TEST_F(DeskTest, PageSizesHaveBounds) {
  const struct {
    int limit;
    bool ok;
  } rows[] = {{0, false}, {1, true}, {500, true}, {501, false}};
  for (const auto& row : rows) {
    EXPECT_EQ(desk.List({}, row.limit, {}).has_value(), row.ok) << row.limit;
    EXPECT_EQ(desk.Replays(row.limit).has_value(), row.ok) << row.limit;
  }
}

TEST_F(DeskTest, GroupsByKnownWordsOnly) {
  for (const char* by : {"fingerprint", "type", "account", "source", "class"}) EXPECT_TRUE(desk.Groups({}, by)) << by;
  EXPECT_EQ(desk.Groups({}, "subject").error().code, "bad_group");
}

TEST_F(DeskTest, AnActWithoutAnActorOrWithAnEndlessReasonIsRefused) {
  store.Add(1);
  EXPECT_EQ(desk.Requeue(1, {.name = " "}).error().code, "no_actor");
  const struct {
    std::string reason;
    bool ok;
  } rows[] = {{std::string(1000, 'x'), true}, {std::string(1001, 'x'), false}};
  for (const auto& row : rows) {
    store.letters[1].letter.state = State::dead;
    const auto done = desk.Requeue(1, {.name = "ada", .reason = row.reason});
    ASSERT_EQ(done.has_value(), row.ok);
    if (!row.ok) {
      EXPECT_EQ(done.error().code, "reason_too_long");
    }
  }
  std::string greek;  // 1,000 characters are 2,000 bytes here
  for (int i = 0; i < 1000; ++i) greek += "\xCE\xB1";
  store.letters[1].letter.state = State::dead;
  EXPECT_TRUE(desk.Requeue(1, {.name = "ada", .reason = greek}));
  EXPECT_EQ(store.acts.size(), 2U);
}

TEST_F(DeskTest, RequeueTellsItsThreeRefusalsApart) {
  store.Add(1, State::dead);
  store.Add(2, State::replayed);
  store.Add(3, State::waiting);
  EXPECT_TRUE(desk.Requeue(1, actor));
  EXPECT_EQ(desk.Requeue(2, actor).error().code, "already_replayed");
  EXPECT_EQ(desk.Requeue(3, actor).error().code, "not_dead_lettered");
  EXPECT_EQ(desk.Requeue(4, actor).error().code, "not_found");
  EXPECT_EQ(desk.Requeue(0, actor).error().code, "not_found");
}

TEST_F(DeskTest, AHoldNeedsALinkAndAFutureDate) {
  store.Add(1);
  EXPECT_EQ(desk.Hold(1, {.owner = "ada"}, actor).error().code, "link_missing");
  EXPECT_EQ(desk.Hold(1, {.link = " \t"}, actor).error().code, "link_missing");
  EXPECT_EQ(desk.Hold(1, {.link = "https://issues/7", .until = clock.Now()}, actor).error().code, "until_past");
  EXPECT_TRUE(store.acts.empty());
  const auto held = desk.Hold(1, {.link = "https://issues/7", .until = clock.Now() + Duration(1)}, actor);
  ASSERT_TRUE(held);
  EXPECT_EQ(held->state, State::held);
  EXPECT_EQ(store.acts.back().hold.link, "https://issues/7");
}

TEST_F(DeskTest, SteeringAReplayNeedsAnActorAndAReplay) {
  store.Add(1);
  const auto plan = desk.RequeueWhere({}, {}, actor);
  ASSERT_TRUE(plan);
  EXPECT_EQ(desk.Pause(plan->id, {.name = ""}).error().code, "no_actor");
  EXPECT_EQ(desk.Cancel(9, actor).error().code, "replay_not_found");
  EXPECT_EQ(desk.PauseOrThrow(plan->id, actor).state, "paused");
  EXPECT_EQ(desk.ResumeOrThrow(plan->id, actor).state, "running");
  EXPECT_EQ(desk.CancelOrThrow(plan->id, actor).state, "cancelled");
  EXPECT_EQ(store.steered.size(), 3U);
  EXPECT_EQ(store.last_actor.reason, "fixed upstream");
  EXPECT_THROW(desk.PauseOrThrow(9, actor), Failure);
}

TEST_F(DeskTest, ItemsOfAReplayHaveBoundsAsPagesDo) {
  store.Add(1);
  const auto plan = desk.RequeueWhere({}, {}, actor);
  ASSERT_TRUE(plan);
  EXPECT_EQ(desk.ItemsOrThrow(plan->id, {.state = "queued", .result = ""}, 500).items.at(0).id, 1);
  EXPECT_EQ(store.last_items.state, "queued");
  EXPECT_EQ(desk.Items(plan->id, {}, 0, "").error().code, "bad_limit");
  EXPECT_EQ(desk.Items(plan->id, {}, 501, "").error().code, "bad_limit");
  EXPECT_EQ(desk.Items(9, {}, 50, "").error().code, "replay_not_found");
}

TEST_F(DeskTest, TheCodeOtherNeedsAReason) {
  store.Add(1);
  EXPECT_EQ(desk.Resolve(1, ResolveCode::other, {.name = "ada"}).error().code, "reason_missing");
  EXPECT_TRUE(desk.Resolve(1, ResolveCode::duplicate, {.name = "ada"}));
}

TEST_F(DeskTest, LettersOfAnOrderedSourceKeepTheirLane) {
  store.Add(1).letter.source = "ordered";
  store.Add(2).letter.source = "stripe";
  ASSERT_TRUE(desk.Hold(1, {.link = "x"}, actor));
  EXPECT_TRUE(store.acts.back().keep_lane);
  ASSERT_TRUE(desk.Hold(2, {.link = "x"}, actor));
  EXPECT_FALSE(store.acts.back().keep_lane);
}

TEST_F(DeskTest, TheActorAndReasonReachTheRecord) {
  store.Add(1);
  ASSERT_TRUE(desk.Requeue(1, actor));
  const auto records = desk.AuditOf(1);
  ASSERT_TRUE(records);
  ASSERT_EQ(records->size(), 1U);
  EXPECT_EQ(records->front().actor, "ada");
  EXPECT_EQ(records->front().reason, "fixed upstream");
  EXPECT_EQ(desk.AuditOf(9).error().code, "not_found");
}

TEST_F(DeskTest, ADryRunAnswersOverTheCapAndAReplayDoesNot) {
  for (EventId id = 1; id <= 3; ++id) store.Add(id);
  const auto dry = desk.RequeueWhere({}, {.max = 2, .dry_run = true}, actor);
  ASSERT_TRUE(dry);
  EXPECT_EQ(dry->count, 3);
  EXPECT_TRUE(dry->over_cap);
  EXPECT_TRUE(store.replays.empty());
  EXPECT_EQ(desk.RequeueWhere({}, {.max = 2}, actor).error().code, "replay_too_large");
  EXPECT_TRUE(desk.RequeueWhere({}, {.max = 2, .force = true}, actor));
  EXPECT_TRUE(desk.RequeueWhere({}, {.max = 3}, actor));
}

TEST_F(DeskTest, AReplayOfLettersThatAreNotDeadIsRefused) {
  EXPECT_EQ(desk.RequeueWhere({.states = {State::succeeded}}, {}, actor).error().code, "bad_filter");
  EXPECT_EQ(desk.RequeueWhere({}, {.batch_size = 0}, actor).error().code, "bad_replay_options");
  EXPECT_EQ(desk.RequeueWhere({}, {.max = 0}, actor).error().code, "bad_replay_options");
  EXPECT_TRUE(store.replays.empty());
}

TEST_F(DeskTest, DrainingAnEmptyQueueDoesNothing) {
  store.Add(1, State::dead, FailureClass::permanent);  // parked: no drain touches it
  const auto stats = desk.Drain("", seconds(30), actor);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->committed + stats->requeued + stats->parked, 0);
  EXPECT_TRUE(stats->finished);
  EXPECT_TRUE(store.replays.empty());
  EXPECT_EQ(waits, 0);
}

TEST_F(DeskTest, ADrainSaysWhatBecameOfEachLetterOldestFirst) {
  for (EventId id = 1; id <= 6; ++id) store.Add(id);
  store.on_release = [](testing::FakeStore::ReplayRun& r, EventId id) {
    --r.progress.remaining;
    if (id <= 3) {
      ++r.progress.committed;
    } else {
      ++r.progress.dead_again;
      if (id == 6) ++r.progress.parked;
    }
  };
  const auto stats = desk.Drain("stripe", seconds(30), actor);
  ASSERT_TRUE(stats);
  EXPECT_EQ(stats->committed, 3);
  EXPECT_EQ(stats->requeued, 2);
  EXPECT_EQ(stats->parked, 1);
  EXPECT_TRUE(stats->finished);
  EXPECT_EQ(store.released, (std::vector<EventId>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(store.replays.at(1).progress.kind, "drain");
}

TEST_F(DeskTest, ADrainThatIsNotDoneInTimeSaysSoAndGoesOn) {
  store.Add(1);
  store.on_release = [](testing::FakeStore::ReplayRun&, EventId) {};  // its outcome never comes
  const Time began = clock.Now();
  const auto stats = desk.Drain("", milliseconds(200), actor);
  ASSERT_TRUE(stats);
  EXPECT_FALSE(stats->finished);
  EXPECT_EQ(stats->replay_id, 1);
  EXPECT_EQ(clock.Now() - began, milliseconds(200));
}

TEST_F(DeskTest, ADrainEndsWhenTheLastOutcomeComes) {
  store.Add(1);
  store.on_release = [](testing::FakeStore::ReplayRun&, EventId) {};
  while_waiting = [this] {
    if (waits < 3) return;
    auto& progress = store.replays.at(1).progress;
    progress.committed = 1;
    progress.state = "done";
  };
  const auto stats = desk.Drain("", seconds(30), actor);
  ASSERT_TRUE(stats);
  EXPECT_TRUE(stats->finished);
  EXPECT_EQ(stats->committed, 1);
  EXPECT_EQ(waits, 3);
}

TEST_F(DeskTest, AStopEndsTheWaitOfADrain) {
  store.Add(1);
  store.on_release = [](testing::FakeStore::ReplayRun&, EventId) {};
  while_waiting = [this] { desk.StopWaiting(); };
  const auto stats = desk.Drain("", seconds(30), actor);
  ASSERT_TRUE(stats);
  EXPECT_FALSE(stats->finished);
  EXPECT_EQ(waits, 1);
}

TEST_F(DeskTest, ThePacerKeepsThePause) {
  for (EventId id = 1; id <= 5; ++id) store.Add(id);
  ASSERT_TRUE(desk.RequeueWhere({}, {.batch_size = 2, .stagger_ms = 1000}, actor));
  const Time t0 = clock.Now();
  EXPECT_EQ(*pacer.RunOnce(t0), t0 + seconds(1));
  EXPECT_EQ(store.released.size(), 2U);
  EXPECT_EQ(*pacer.RunOnce(t0 + milliseconds(999)), t0 + seconds(1));
  EXPECT_EQ(store.released.size(), 2U);
  EXPECT_EQ(*pacer.RunOnce(t0 + seconds(1)), t0 + seconds(2));
  EXPECT_EQ(store.released.size(), 4U);
  EXPECT_EQ(*pacer.RunOnce(t0 + seconds(2)), t0 + seconds(2) + ReplayPacer::kLookAgain);
  EXPECT_EQ(store.released, (std::vector<EventId>{1, 2, 3, 4, 5}));
  ASSERT_TRUE(pacer.RunOnce(t0 + seconds(9)));
  EXPECT_EQ(store.batches.size(), 3U);
}

}  // namespace
}  // namespace dlo::deadletter
