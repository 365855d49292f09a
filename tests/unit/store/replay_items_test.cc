#include "store/embedded/replay_items.h"

#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "env/random.h"
#include "store/embedded/access.h"
#include "store/embedded/replay_acts.h"
#include "store/embedded/replay_plan.h"
#include "store/embedded/triage.h"
#include "store/pace.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

using std::chrono::seconds;
const Time kNow = kStart + std::chrono::hours(24);

class Replays : public LettersFixture {
 protected:
  /// As the store makes one, with nothing in between the steps.
  Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options = {},
                            const std::string& kind = "replay") {
    return InTransaction([&](Counts&) -> Result<ReplayPlan> {
      auto plan = BeginPlan(*db_, filter, options, kind, actor_, kNow);
      if (!plan) return std::unexpected(plan.error());
      while (!plan->complete) {
        if (auto done = FreezeStep(*db_, filter, *plan, step_, -1); !done) return std::unexpected(done.error());
      }
      PlanSum sum(plan->id, options.canary);
      OrThrow(sum.Advance(*db_, plan->through / 2));
      OrThrow(sum.Advance(*db_, plan->through));
      auto frozen = sum.Finish(*db_);
      if (!frozen) return std::unexpected(frozen.error());
      EXPECT_EQ(frozen->plan.count, plan->frozen);
      frozen->plan.in_other_replay = OrThrow(CountInOthers(*db_, filter, plan->id));
      if (auto done = StartPlan(*db_, *frozen, filter, options, kind, actor_, kNow); !done)
        return std::unexpected(done.error());
      return frozen->plan;
    });
  }
  std::int64_t Release(std::int64_t replay_id, int n, Time now = kNow, std::map<std::string, std::int64_t> most = {}) {
    return OrThrow(InTransaction([&](Counts& counts) {
      return ReleaseItems(*db_, counts, lanes_,
                          {.replay_id = replay_id, .n = n, .most = most, .now = now, .next_batch_at = {}});
    }));
  }
  ReplayProgress Get(std::int64_t replay_id) { return OrThrow(GetReplay(*db_, replay_id, kNow)); }
  Result<ReplayProgress> Steer(std::int64_t replay_id, ReplayAct act) {
    return InTransaction([&](Counts&) { return ApplyReplayAct(*db_, replay_id, act, actor_, kNow); });
  }
  /// "1 committed, 2 skipped: state".
  std::string ItemsText(std::int64_t replay_id, const ReplayItemFilter& filter = {}) {
    std::string text;
    for (const ReplayItem& item : OrThrow(ReadReplayItems(*db_, replay_id, filter, 100, "")).items) {
      text +=
          (text.empty() ? "" : ", ") + std::to_string(item.id) + " " + (item.result.empty() ? item.state : item.result);
      if (item.result == "skipped") text += ": " + item.reason;
    }
    return text;
  }
  /// Handed to the dispatcher by another replay.
  void MoveElsewhere(EventId id) {
    OrThrow(InTransaction([&](Counts& counts) {
      return MoveToReplay(*db_, counts, lanes_, *OrThrow(ReadLetterRow(*db_, id)), 99, kNow);
    }));
  }
  /// As the queue does when an attempt ends a replay.
  void End(std::int64_t replay_id, EventId id, ReplayResult result, FailureClass failure_class = FailureClass::none) {
    OrThrow(InTransaction([&](Counts& counts) -> Result<void> {
      const LetterRow row = *OrThrow(ReadLetterRow(*db_, id));
      const bool dead = result == ReplayResult::dead_again;
      const State to = dead ? State::dead : result == ReplayResult::resolved ? State::resolved : State::replayed;
      OrThrow(db_->Prepare("UPDATE events SET state = ?2, letter = CASE ?2 WHEN 3 THEN 3 END, class = ?3, due_at = "
                           "NULL, lane = NULL, behind = 0, replaying = 0, "
                           "parked_at = ?4, finished_at = ?5 WHERE id = ?1")
                  .Bind(1, id)
                  .Bind(2, static_cast<int>(to))
                  .Bind(3, static_cast<int>(failure_class))
                  .Bind(4, dead ? std::optional<std::int64_t>(1) : std::nullopt)
                  .Bind(5, dead ? std::nullopt : std::optional<std::int64_t>(1))
                  .Run());
      counts.Move(row.source, row.state, row.failure_class, to, failure_class);
      lanes_.Leave(row.lane, id);
      OrThrow(lanes_.Settle(*db_, row.lane));
      return EndReplayItem(*db_, counts,
                           {.replay_id = replay_id,
                            .source = row.source,
                            .id = id,
                            .result = result,
                            .failure_class = failure_class,
                            .at = kNow});
    }));
  }
  std::vector<EventId> Items(std::int64_t replay_id) {
    auto rows = OrThrow(db_->PrepareOnce("SELECT event_id FROM replay_items WHERE replay_id = ?1 ORDER BY event_id"));
    rows.Bind(1, replay_id);
    std::vector<EventId> ids;
    while (OrThrow(rows.Step())) ids.push_back(rows.Int(0));
    return ids;
  }
  std::vector<EventId> Selected(const Filter& filter) { return Items(OrThrow(Create(filter)).id); }
  int step_ = 3;
  std::string StateOf(EventId id) {
    return std::string(Name(static_cast<State>(Number("SELECT state FROM events WHERE id = " + std::to_string(id)))));
  }
  void Act(EventId id, dlo::Act act) {
    TriageAct request{.id = id, .act = act, .hold = {.link = "http://x"}, .resolve_code = ResolveCode::other};
    OrThrow(InTransaction([&](Counts& counts) { return ApplyTriage(*db_, counts, lanes_, request, actor_, kNow); }));
  }
};

TEST_F(Replays, SelectByTheseRules) {
  Add();                                                                      // 1
  Add({.state = State::held});                                                // 2
  Add({.failure_class = FailureClass::poison, .replays_failed = 5});          // 3
  Add({.failure_class = FailureClass::corrupt});                              // 4
  Add({.failure_class = FailureClass::exhausted, .replays_failed = 4});       // 5
  Add({.failure_class = FailureClass::exhausted, .replays_failed = 5});       // 6
  Add({.state = State::waiting});                                             // 7
  Add({.state = State::waiting, .replaying = true, .replay_id = 9});          // 8
  Add({.state = State::replayed, .failure_class = FailureClass::permanent});  // 9
  Add({.state = State::resolved});                                            // 10
  Add({.state = State::succeeded});                                           // 11
  Add({.state = State::held, .failure_class = FailureClass::conflict});       // 12
  struct Row {
    const char* name;
    std::function<void(Filter&)> set;
    std::vector<EventId> expected;
  };
  const Row rows[] = {
      {"dead below the cap", [](Filter&) {}, {1, 5}},
      {"held where named", [](Filter& f) { f.states = {State::held}; }, {2, 12}},
      {"both where both are named", [](Filter& f) { f.states = {State::held, State::dead}; }, {1, 2, 5, 12}},
      {"other states add nothing",
       [](Filter& f) { f.states = {State::dead, State::replayed, State::waiting}; },
       {1, 5}},
      {"poison where named", [](Filter& f) { f.classes = {FailureClass::poison}; }, {3}},
      {"poison beside another",
       [](Filter& f) { f.classes = {FailureClass::poison, FailureClass::exhausted}; },
       {3, 5, 6}},
      {"exhausted below the cap", [](Filter& f) { f.classes = {FailureClass::exhausted}; }, {5}},
      {"ids lift the cap", [](Filter& f) { f.ids = {3, 6}; }, {3, 6}},
      {"corrupt never", [](Filter& f) { f.classes = {FailureClass::corrupt}; }, {}},
      {"corrupt not by id either", [](Filter& f) { f.ids = {4, 1}; }, {1}},
      {"ids do not lift the state", [](Filter& f) { f.ids = {2, 7, 8, 9, 10, 11}; }, {}},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Filter filter;
    row.set(filter);
    const ReplayPlan plan = OrThrow(PlanReplay(*db_, filter));
    EXPECT_EQ(plan.count, static_cast<std::int64_t>(row.expected.size()));
    EXPECT_EQ(plan.id, 0);
    const ReplayPlan created = OrThrow(Create(filter));
    EXPECT_EQ(Items(created.id), row.expected);
    EXPECT_EQ(created.digest, plan.digest);
    OrThrow(db_->Exec("UPDATE replays SET state = 'cancelled'"));  // frees its letters for the next row
  }
  Filter never;
  never.states = {State::replayed, State::resolved};
  EXPECT_EQ(PlanReplay(*db_, never).error().code, "state_not_replayable");
  EXPECT_EQ(Create(never).error().kind, ErrorKind::invalid);
}

TEST_F(Replays, APlanChangesNothingAndSaysWhatItWouldTake) {
  Add({.kind = "a", .received_at = kStart + seconds(50)});
  Add({.kind = "b", .received_at = kStart + seconds(10), .failure_class = FailureClass::exhausted});
  Add({.kind = "a", .received_at = kStart + seconds(90)});
  const ReplayPlan plan = OrThrow(PlanReplay(*db_, {}));
  EXPECT_EQ(plan.by_class, (std::map<std::string, std::int64_t>{{"permanent", 2}, {"exhausted", 1}}));
  EXPECT_EQ(plan.by_type, (std::map<std::string, std::int64_t>{{"a", 2}, {"b", 1}}));
  EXPECT_EQ(plan.oldest, kStart + seconds(10));
  EXPECT_EQ(plan.digest, HexEncode(Sha256("1\n2\n3")));
  EXPECT_FALSE(plan.over_cap);
  EXPECT_EQ(
      Number(
          "SELECT (SELECT count(*) FROM replays) + (SELECT count(*) FROM replay_items) + (SELECT count(*) FROM audit)"),
      0);
}

TEST_F(Replays, CreatingIsRecordedWithFilterCountAndDigest) {
  Add();
  Filter filter;
  filter.types = {"invoice.paid"};
  const ReplayPlan plan = OrThrow(Create(filter));
  const auto records = OrThrow(ReadAudit(*db_, 0, 0, 10));
  ASSERT_EQ(records.size(), 1U);
  EXPECT_EQ(records[0].action, "bulk_replay");
  for (const std::string& part : {std::string("invoice.paid"), std::string("\"count\":1"), plan.digest}) {
    EXPECT_NE(records[0].details.find(part), std::string::npos) << records[0].details;
  }
  OrThrow(Create({}, {}, "drain"));
  EXPECT_EQ(OrThrow(ReadAudit(*db_, 0, 0, 1))[0].action, "drain");
  EXPECT_EQ(Create({}, {}, "purge").error().code, "bad_kind");
  actor_.name = "";
  EXPECT_EQ(Create({}).error().code, "actor_missing");
  EXPECT_EQ(Number("SELECT count(*) FROM audit"), 2);
}

TEST_F(Replays, TwoOfOneFilterTakeDisjointSets) {
  for (int i = 0; i < 4; ++i) Add();
  const auto first = OrThrow(Create({}));
  Add();
  const auto second = OrThrow(Create({}));
  const auto third = OrThrow(Create({}));
  EXPECT_EQ(Items(first.id), (std::vector<EventId>{1, 2, 3, 4}));
  EXPECT_EQ(Items(second.id), std::vector<EventId>{5});
  EXPECT_TRUE(Items(third.id).empty());
  Release(first.id, 2);
  EXPECT_EQ(OrThrow(Create({})).count, 0);
}

TEST_F(Replays, AnEmptySelectionIsDoneAtOnce) {
  const auto plan = OrThrow(Create({}));
  EXPECT_EQ(plan.count, 0);
  EXPECT_EQ(plan.digest, HexEncode(Sha256("")));
  EXPECT_EQ(Get(plan.id).state, "done");
  EXPECT_TRUE(OrThrow(RunningReplays(*db_)).empty());
  EXPECT_EQ(Release(plan.id, 10), 0);
}

TEST_F(Replays, ReleaseGoesByReceiptInBatches) {
  for (int i = 0; i < 5; ++i) Add();
  const auto plan = OrThrow(Create({}, {.batch_size = 2, .stagger_ms = 500}));
  auto running = OrThrow(RunningReplays(*db_));
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(running[0].batch_size, 2);
  EXPECT_EQ(running[0].stagger, std::chrono::milliseconds(500));
  EXPECT_EQ(running[0].next_batch_at, kNow);
  EXPECT_EQ(Release(plan.id, 0), 5);
  EXPECT_EQ(Release(plan.id, 2), 3);
  EXPECT_EQ(StateOf(1) + StateOf(2) + StateOf(3), "waitingwaitingdead");
  EXPECT_EQ(OrThrow(RunningReplays(*db_))[0].next_batch_at, kNow + std::chrono::milliseconds(500));
  EXPECT_EQ(Release(plan.id, 2), 1);
  EXPECT_EQ(StateOf(4) + StateOf(5), "waitingdead");
  EXPECT_EQ(Release(plan.id, 2), 0);
  EXPECT_TRUE(OrThrow(RunningReplays(*db_)).empty());
  EXPECT_EQ(Get(plan.id).state, "running");  // until their outcomes are known
  EXPECT_EQ(Number("SELECT count(*) FROM events WHERE replaying = 1 AND replays = 1 AND replay_id = " +
                   std::to_string(plan.id)),
            5);
  EXPECT_EQ(Number("SELECT count(*) FROM audit"), 1);
  Counts none;
  EXPECT_EQ(ReleaseItems(*db_, none, lanes_, {.replay_id = 99, .n = 1}).error().code, "replay_not_found");
  ExpectSound();
}

TEST_F(Replays, SkipWhatChangedSinceItWasFrozen) {
  Add();  // 1 stays
  Add();  // 2 resolved
  Add();  // 3 held by a person
  Add();  // 4 replayed singly, still running
  Add();  // 5 replayed singly, dead again as poison
  Add();  // 6 replayed singly, applied
  Add();  // 7 turned out corrupt
  const auto plan = OrThrow(Create({}));
  Act(2, dlo::Act::resolve);
  Act(3, dlo::Act::hold);
  for (const EventId id : {4, 5, 6, 7}) MoveElsewhere(id);
  End(99, 5, ReplayResult::dead_again, FailureClass::poison);
  End(99, 6, ReplayResult::committed);
  End(99, 7, ReplayResult::dead_again, FailureClass::corrupt);
  EXPECT_EQ(Release(plan.id, 100), 0);
  EXPECT_EQ(StateOf(1) + StateOf(2) + StateOf(3) + StateOf(5) + StateOf(6) + StateOf(7),
            "waitingresolvedhelddeadreplayeddead");
  const auto progress = Get(plan.id);
  EXPECT_EQ(std::make_tuple(progress.count, progress.requeued, progress.skipped, progress.remaining),
            std::make_tuple(7, 1, 6, 1));
  EXPECT_EQ(ItemsText(plan.id),
            "1 queued, 2 skipped: state, 3 skipped: state, 4 skipped: in another replay, 5 skipped: poison, "
            "6 skipped: state, 7 skipped: state");
  ExpectSound();
}

TEST_F(Replays, ADrainSkipsALetterThatFailedForAnotherReasonMeanwhile) {
  Add({.failure_class = FailureClass::exhausted});
  Filter exhausted;
  exhausted.classes = {FailureClass::exhausted};
  const auto plan = OrThrow(Create(exhausted, {}, "drain"));
  MoveElsewhere(1);
  End(99, 1, ReplayResult::dead_again, FailureClass::permanent);
  Release(plan.id, 10);
  EXPECT_EQ(StateOf(1), "dead");
  EXPECT_EQ(Get(plan.id).state, "done");
}

TEST_F(Replays, ProgressCountsEachEndOnceAndTheLastOneEndsTheReplay) {
  for (int i = 0; i < 8; ++i) Add({.failure_class = FailureClass::exhausted});
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 7);
  End(plan.id, 1, ReplayResult::committed);
  End(plan.id, 2, ReplayResult::already_applied);
  End(plan.id, 3, ReplayResult::skipped_gone);
  End(plan.id, 4, ReplayResult::resolved);
  End(plan.id, 5, ReplayResult::dead_again, FailureClass::exhausted);
  End(plan.id, 6, ReplayResult::dead_again, FailureClass::poison);
  auto p = Get(plan.id);
  EXPECT_EQ(std::make_tuple(p.count, p.requeued, p.skipped, p.committed, p.dead_again, p.parked, p.remaining),
            std::make_tuple(8, 7, 0, 4, 2, 1, 2));
  EXPECT_EQ(p.state, "running");
  // An answer that comes twice, for a letter of another replay, or with no end changes nothing.
  OrThrow(InTransaction([&](Counts& counts) -> Result<void> {
    for (const EventId id : {1, 8, 99}) {
      OrThrow(EndReplayItem(
          *db_, counts, {.replay_id = plan.id, .source = 1, .id = id, .result = ReplayResult::dead_again, .at = kNow}));
    }
    return EndReplayItem(*db_, counts, {.replay_id = plan.id, .source = 1, .id = 7, .at = kNow});
  }));
  EXPECT_EQ(Get(plan.id).remaining, 2);
  EXPECT_EQ(Get(plan.id).committed, 4);
  Act(8, dlo::Act::resolve);
  Release(plan.id, 1);
  EXPECT_EQ(Get(plan.id).state, "running");
  End(plan.id, 7, ReplayResult::committed);
  p = Get(plan.id);
  EXPECT_EQ(std::make_tuple(p.state, p.requeued, p.skipped, p.committed, p.remaining),
            std::make_tuple("done", 7, 1, 5, 0));
  EXPECT_EQ(Number("SELECT finished_at IS NOT NULL FROM replays"), 1);
  ExpectSound();
}

TEST_F(Replays, ASingleReplayIsDoneWithItsLetter) {
  Add();
  Act(1, dlo::Act::replay);
  const std::int64_t id = Number("SELECT replay_id FROM events");
  End(id, 1, ReplayResult::committed);
  EXPECT_EQ(Get(id).state, "done");
  EXPECT_EQ(Get(id).committed, 1);
}

TEST_F(Replays, AStoppedReplayReleasesNothing) {
  Add();
  const auto plan = OrThrow(Create({}));
  OrThrow(db_->Exec("UPDATE replays SET state = 'paused'"));
  EXPECT_EQ(Release(plan.id, 10), 0);
  EXPECT_EQ(StateOf(1), "dead");
  EXPECT_TRUE(OrThrow(RunningReplays(*db_)).empty());
  EXPECT_EQ(OrThrow(Create({})).count, 0);  // its letters are still its own
}

TEST_F(Replays, RecentAreNewestFirst) {
  Add();
  for (int i = 0; i < 3; ++i) OrThrow(Create({}));
  const auto list = OrThrow(RecentReplays(*db_, 2, kNow));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].id, 3);
  EXPECT_EQ(list[1].id, 2);
  EXPECT_EQ(OrThrow(RecentReplays(*db_, 10, kNow))[2].remaining, 1);
  EXPECT_EQ(GetReplay(*db_, 9, kNow).error().code, "replay_not_found");
}

TEST_F(Replays, OrderOfOneSubjectIsThatOfReceiptWhateverTheBatches) {
  for (const std::uint64_t seed : {11, 12, 13}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    for (int i = 0; i < 30; ++i) {
      const bool dead = random.Next() % 3 != 0;
      Add({.subject = "s" + std::to_string(random.Next() % 3), .state = dead ? State::dead : State::waiting});
    }
    const auto plan = OrThrow(Create({}));
    while (Release(plan.id, static_cast<int>(1 + random.Next() % 7)) > 0) ExpectSound();
    ExpectSound();
    // Free to run: one of each subject, the earliest.
    EXPECT_EQ(Number("SELECT count(*) FROM events e JOIN receipts r ON r.id = e.id WHERE e.state = 0 AND e.behind = 0 "
                     "AND EXISTS (SELECT 1 FROM events o JOIN receipts t ON t.id = o.id "
                     "WHERE o.state = 0 AND t.subject = r.subject AND o.id < e.id)"),
              0);
  }
}

TEST_F(Replays, AreFrozenInStepsOfAnySize) {
  for (int i = 0; i < 40; ++i) {
    Add({.source = i % 3 == 0 ? "stripe" : "adyen",
         .kind = "k" + std::to_string(i % 4),
         .state = i % 5 == 4 ? State::succeeded : State::dead,
         .fingerprint = i % 2 == 0 ? "00000000000000aa" : "00000000000000bb"});
  }
  Filter group;
  group.fingerprint = "00000000000000bb";
  Filter kind;
  kind.types = {"k1"};
  Filter ids;
  for (EventId id = 4; id <= 40; id += 2) ids.ids.push_back(id);
  for (const Filter& filter : {Filter(), group, kind, ids}) {
    const ReplayPlan dry = OrThrow(PlanReplay(*db_, filter));
    EXPECT_GT(dry.count, 0);
    for (const int step : {1, 2, 7, 1'000}) {
      SCOPED_TRACE(step);
      step_ = step;
      const ReplayPlan plan = OrThrow(Create(filter));
      EXPECT_EQ(std::tie(plan.count, plan.digest, plan.by_class, plan.by_type, plan.oldest),
                std::tie(dry.count, dry.digest, dry.by_class, dry.by_type, dry.oldest));
      OrThrow(Steer(plan.id, ReplayAct::cancel));
    }
  }
}

TEST_F(Replays, AnUnfinishedPlanKeepsItsLettersAndIsDroppedInSteps) {
  for (int i = 0; i < 9; ++i) Add();
  auto plan = OrThrow(BeginPlan(*db_, {}, {}, "replay", actor_, kNow));
  OrThrow(FreezeStep(*db_, {}, plan, 4, -1));
  EXPECT_FALSE(plan.complete);
  EXPECT_EQ(OrThrow(UnfinishedPlans(*db_)), std::vector{plan.id});
  EXPECT_EQ(Selected({}), (std::vector<EventId>{5, 6, 7, 8, 9}));
  EXPECT_TRUE(OrThrow(RunningReplays(*db_)).size() == 1U);
  EXPECT_EQ(Steer(plan.id, ReplayAct::pause).error().code, "replay_not_found");
  int steps = 0;
  while (!OrThrow(DropPlanStep(*db_, plan.id, 3))) ++steps;
  EXPECT_EQ(steps, 1);
  EXPECT_TRUE(OrThrow(UnfinishedPlans(*db_)).empty());
  EXPECT_EQ(Selected({}), (std::vector<EventId>{1, 2, 3, 4}));
  EXPECT_TRUE(OrThrow(DropPlanStep(*db_, 2, 3)));  // one that runs is no plan
  EXPECT_EQ(Items(2).size(), 5U);
}

TEST_F(Replays, LettersOfAnotherReplayAreCountedAndASingleReplayIsToldWhich) {
  for (int i = 0; i < 5; ++i) Add();
  Filter two;
  two.ids = {2, 4};
  const auto first = OrThrow(Create(two));
  EXPECT_EQ(OrThrow(PlanReplay(*db_, {})).in_other_replay, 2);
  const auto second = OrThrow(Create({}));
  EXPECT_EQ(std::make_tuple(second.count, second.in_other_replay), std::make_tuple(3, 2));
  EXPECT_EQ(Get(second.id).in_other_replay, 2);
  const TriageAct act{.id = 4, .act = dlo::Act::replay};
  const auto refused = InTransaction([&](Counts& c) { return ApplyTriage(*db_, c, lanes_, act, actor_, kNow); });
  EXPECT_EQ(refused.error().code, "in_replay");
  EXPECT_NE(refused.error().message.find("replay " + std::to_string(first.id)), std::string::npos);
  OrThrow(Steer(first.id, ReplayAct::cancel));
  Act(4, dlo::Act::replay);  // free again
  EXPECT_EQ(ItemsText(first.id), "2 skipped: cancelled, 4 skipped: cancelled");
}

TEST_F(Replays, OneSourceStandsStillWhileAnotherGoesOn) {
  for (int i = 0; i < 6; ++i) Add({.source = i % 2 == 0 ? "stripe" : "adyen"});
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 10, kNow, {{"adyen", 2}});
  EXPECT_EQ(ItemsText(plan.id, {.state = "queued"}), "1 queued, 2 queued, 3 queued, 4 queued, 5 queued, 6 queued");
  const auto running = OrThrow(RunningReplays(*db_));
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> of;
  for (const auto& s : running.at(0).sources) of[s.source] = {s.queued, s.open};
  EXPECT_EQ(of["stripe"], std::make_pair(std::int64_t{3}, std::int64_t{0}));
  EXPECT_EQ(of["adyen"], std::make_pair(std::int64_t{1}, std::int64_t{2}));
  EXPECT_EQ(StateOf(2) + StateOf(4) + StateOf(6) + StateOf(1), "waitingwaitingdeaddead");
  EXPECT_EQ(Release(plan.id, 3), 1);  // by receipt over both
  EXPECT_EQ(StateOf(1) + StateOf(3) + StateOf(5) + StateOf(6), "waitingwaitingwaitingdead");
}

TEST_F(Replays, TheCanaryIsTheFirstOfEachGroupAndOfItsSubject) {
  Add({.subject = "s1", .fingerprint = "00000000000000aa"});  // 1: canary
  Add({.subject = "s1", .fingerprint = "00000000000000bb"});  // 2: not the first of s1
  Add({.subject = "s2", .fingerprint = "00000000000000aa"});  // 3: one of aa is enough
  Add({.subject = "s3", .fingerprint = "00000000000000bb"});  // 4: canary
  Add({.fingerprint = "00000000000000cc"});                   // 5: canary, without a subject
  Add({.fingerprint = "00000000000000cc"});                   // 6
  const auto plan = OrThrow(Create({}, {.canary = 1}));
  EXPECT_EQ(plan.canary, 3);
  EXPECT_EQ(Get(plan.id).state, "canary");
  auto running = OrThrow(RunningReplays(*db_));
  EXPECT_EQ(running.at(0).sources.at(0).queued, 3);
  EXPECT_EQ(Release(plan.id, 10), 3);
  EXPECT_EQ(Release(plan.id, 10), 3);  // nothing but the canary
  EXPECT_EQ(StateOf(1) + StateOf(4) + StateOf(5) + StateOf(2) + StateOf(3) + StateOf(6),
            "waitingwaitingwaitingdeaddeaddead");
  End(plan.id, 1, ReplayResult::committed);
  End(plan.id, 4, ReplayResult::dead_again, FailureClass::permanent);
  End(plan.id, 5, ReplayResult::committed);
  running = OrThrow(RunningReplays(*db_));
  EXPECT_EQ(std::make_tuple(running.at(0).canary_left, running.at(0).canary_ended, running.at(0).canary_dead),
            std::make_tuple(0, 3, 1));
  EXPECT_EQ(OrThrow(Steer(plan.id, ReplayAct::continue_)).state, "running");
  EXPECT_EQ(Steer(plan.id, ReplayAct::continue_).error().code, "replay_not_running");
  EXPECT_EQ(Release(plan.id, 10), 0);
  EXPECT_EQ(StateOf(2) + StateOf(3) + StateOf(6), "waitingwaitingwaiting");
  ExpectSound();
}

TEST_F(Replays, AreSteeredByTheseRules) {
  struct Row {
    const char* state;
    ReplayAct act;
    const char* to;  // or the code of the refusal
  };
  const Row rows[] = {{"running", ReplayAct::pause, "paused"},
                      {"canary", ReplayAct::pause, "paused"},
                      {"paused", ReplayAct::pause, "replay_not_running"},
                      {"stopped", ReplayAct::pause, "replay_not_running"},
                      {"paused", ReplayAct::resume, "running"},
                      {"stopped", ReplayAct::resume, "running"},
                      {"running", ReplayAct::resume, "replay_not_paused"},
                      {"canary", ReplayAct::resume, "replay_not_paused"},
                      {"running", ReplayAct::stop, "stopped"},
                      {"canary", ReplayAct::stop, "stopped"},
                      {"paused", ReplayAct::stop, "replay_not_running"},
                      {"running", ReplayAct::cancel, "cancelled"},
                      {"canary", ReplayAct::cancel, "cancelled"},
                      {"paused", ReplayAct::cancel, "cancelled"},
                      {"stopped", ReplayAct::cancel, "cancelled"},
                      {"cancelled", ReplayAct::cancel, "replay_ended"},
                      {"cancelled", ReplayAct::resume, "replay_ended"},
                      {"done", ReplayAct::cancel, "replay_ended"},
                      {"done", ReplayAct::pause, "replay_ended"},
                      {"running", ReplayAct::continue_, "replay_not_running"},
                      {"canary", ReplayAct::continue_, "running"}};
  Add();
  for (const Row& row : rows) {
    SCOPED_TRACE(std::string(row.state) + " " + std::to_string(static_cast<int>(row.act)));
    OrThrow(db_->Exec("DELETE FROM replays; DELETE FROM replay_items; DELETE FROM replay_sources"));
    const auto plan = OrThrow(Create({}));
    OrThrow(db_->Exec("UPDATE replays SET state = '" + std::string(row.state) + "'"));
    const std::int64_t before = Number("SELECT count(*) FROM audit");
    const auto done = Steer(plan.id, row.act);
    EXPECT_EQ(done ? done->state : done.error().code, row.to);
    EXPECT_EQ(Number("SELECT count(*) FROM audit") - before, done ? 1 : 0);
    if (!done) {
      EXPECT_EQ(done.error().kind, ErrorKind::conflict);
      EXPECT_EQ(Number("SELECT state = '" + std::string(row.state) + "' FROM replays"), 1);
    } else {
      EXPECT_EQ(std::make_tuple(done->word, done->word_of), std::make_tuple("because", "jane"));
    }
  }
  EXPECT_EQ(Steer(99, ReplayAct::pause).error().code, "replay_not_found");
}

TEST_F(Replays, APausedCanaryGoesOnAsACanaryAndAStoppedOneAsAPersonDecided) {
  Add();
  Add();
  const auto plan = OrThrow(Create({}, {.canary = 1}));
  OrThrow(Steer(plan.id, ReplayAct::pause));
  EXPECT_EQ(Release(plan.id, 5), 0);
  EXPECT_EQ(OrThrow(Steer(plan.id, ReplayAct::resume)).state, "canary");
  OrThrow(Steer(plan.id, ReplayAct::stop));
  EXPECT_EQ(OrThrow(Steer(plan.id, ReplayAct::resume)).state, "running");
  Release(plan.id, 5);
  EXPECT_EQ(StateOf(1) + StateOf(2), "waitingwaiting");
}

TEST_F(Replays, CancelLetsTheHandedOverOnesEndAndLeavesTheOthersDead) {
  for (int i = 0; i < 5; ++i) Add();
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 2);
  auto p = OrThrow(Steer(plan.id, ReplayAct::cancel));
  EXPECT_EQ(std::make_tuple(p.state, p.skipped, p.remaining, p.requeued, p.queued),
            std::make_tuple("cancelled", 3, 2, 2, 2));
  EXPECT_FALSE(p.finished_at);
  EXPECT_EQ(Release(plan.id, 5), 0);
  End(plan.id, 1, ReplayResult::committed);
  End(plan.id, 2, ReplayResult::dead_again, FailureClass::permanent);
  p = Get(plan.id);
  EXPECT_EQ(std::make_tuple(p.state, p.skipped, p.committed, p.dead_again, p.remaining),
            std::make_tuple("cancelled", 3, 1, 1, 0));
  EXPECT_TRUE(p.finished_at);
  EXPECT_EQ(ItemsText(plan.id),
            "1 committed, 2 dead_again, 3 skipped: cancelled, 4 skipped: cancelled, 5 skipped: cancelled");
  EXPECT_EQ(ItemsText(plan.id, {.state = "queued"}), "");
  EXPECT_EQ(Selected({}), (std::vector<EventId>{2, 3, 4, 5}));  // free for another
}

TEST_F(Replays, TheLastEndsAreKeptForTheLimit) {
  for (int i = 0; i < 50; ++i) Add();
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 45);
  const auto recent = [&] {
    const auto r = OrThrow(RunningReplays(*db_)).at(0);
    return std::make_pair(r.recent, r.recent_dead);
  };
  EXPECT_EQ(recent(), std::make_pair(0, 0));
  for (EventId id = 1; id <= 5; ++id) End(plan.id, id, ReplayResult::dead_again, FailureClass::permanent);
  EXPECT_EQ(recent(), std::make_pair(5, 5));
  for (EventId id = 6; id <= 23; ++id) End(plan.id, id, ReplayResult::committed);
  EXPECT_EQ(recent(), std::make_pair(20, 2));  // the first three have left the window
  for (EventId id = 24; id <= 44; ++id) End(plan.id, id, ReplayResult::dead_again, FailureClass::permanent);
  EXPECT_EQ(recent(), std::make_pair(20, 20));
  OrThrow(Steer(plan.id, ReplayAct::stop));
  OrThrow(Steer(plan.id, ReplayAct::resume));
  EXPECT_EQ(recent(), std::make_pair(0, 0));  // a person has seen them
  End(plan.id, 45, ReplayResult::committed);
  EXPECT_EQ(recent(), std::make_pair(1, 0));
}

TEST_F(Replays, RetryingLettersAreToldApartOnce) {
  Add();
  Add();
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 1);
  for (int i = 0; i < 2; ++i) {
    OrThrow(InTransaction([&](Counts& counts) { return RetryReplayItem(*db_, counts, plan.id, 1, 1); }));
    const auto of = OrThrow(RunningReplays(*db_)).at(0).sources.at(0);
    EXPECT_EQ(std::make_tuple(of.queued, of.open, of.retrying), std::make_tuple(1, 1, 1));
  }
  End(plan.id, 1, ReplayResult::committed);
  const auto of = OrThrow(RunningReplays(*db_)).at(0).sources.at(0);
  EXPECT_EQ(std::make_tuple(of.queued, of.open, of.retrying), std::make_tuple(1, 0, 0));
}

TEST_F(Replays, ItemsArePagedAndFiltered) {
  for (int i = 0; i < 7; ++i) Add({.source = i % 2 == 0 ? "stripe" : "adyen"});
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 5);
  End(plan.id, 1, ReplayResult::committed);
  End(plan.id, 2, ReplayResult::already_applied);
  End(plan.id, 3, ReplayResult::dead_again, FailureClass::permanent);
  OrThrow(db_->Exec("UPDATE events SET state = 1, due_at = NULL, lease_until = 5 WHERE id = 4"));
  EXPECT_EQ(ItemsText(plan.id),
            "1 committed, 2 already_applied, 3 dead_again, 4 running, 5 queued, 6 queued, 7 queued");
  EXPECT_EQ(ItemsText(plan.id, {.state = "running"}), "4 running");
  EXPECT_EQ(ItemsText(plan.id, {.state = "queued"}), "5 queued, 6 queued, 7 queued");
  EXPECT_EQ(ItemsText(plan.id, {.result = "dead_again"}), "3 dead_again");
  EXPECT_EQ(ItemsText(plan.id, {.state = "queued", .result = "committed"}), "");
  const auto p = Get(plan.id);
  EXPECT_EQ(std::make_tuple(p.queued, p.running, p.committed, p.already_applied, p.dead_again, p.skipped),
            std::make_tuple(3, 1, 2, 1, 1, 0));
  std::vector<EventId> ids;
  std::string cursor;
  for (;;) {
    const auto page = OrThrow(ReadReplayItems(*db_, plan.id, {}, 2, cursor));
    for (const ReplayItem& item : page.items) ids.push_back(item.id);
    if (!page.next) break;
    cursor = *page.next;
  }
  EXPECT_EQ(ids, (std::vector<EventId>{1, 2, 3, 4, 5, 6, 7}));
  for (const char* bad : {"x", "1x", "-1", "99999999999999999999"})
    EXPECT_EQ(ReadReplayItems(*db_, plan.id, {}, 2, bad).error().code, "bad_cursor") << bad;
  EXPECT_EQ(ReadReplayItems(*db_, plan.id, {.state = "dead"}, 2, "").error().code, "bad_filter");
  EXPECT_EQ(ReadReplayItems(*db_, plan.id, {.result = "fine"}, 2, "").error().code, "bad_filter");
  EXPECT_EQ(ReadReplayItems(*db_, 99, {}, 2, "").error().code, "replay_not_found");
}

TEST_F(Replays, SuppressedNotificationsAreCountedWhereTheEffectWasApplied) {
  for (int i = 0; i < 3; ++i) Add();
  const auto plan = OrThrow(Create({}));
  Release(plan.id, 3);
  OrThrow(InTransaction([&](Counts& counts) -> Result<void> {
    const ReplayResult results[] = {ReplayResult::committed, ReplayResult::dead_again, ReplayResult::already_applied};
    for (EventId id = 1; id <= 3; ++id) {
      OrThrow(EndReplayItem(*db_, counts,
                            {.replay_id = plan.id,
                             .source = 1,
                             .id = id,
                             .result = results[id - 1],
                             .failure_class = FailureClass::exhausted,
                             .suppressed = true,
                             .at = kNow}));
    }
    return {};
  }));
  EXPECT_EQ(Get(plan.id).notifications_suppressed, 1);
}

TEST(ReplayMigration, KeepsReplaysOfTheFirstSchema) {
  auto db = OrThrow(Db::Open(":memory:", Db::Mode::writer));
  OrThrow(db->Exec(kMigrations[0]));
  OrThrow(db->Exec(
      "INSERT INTO names VALUES (1, 'stripe');"
      "INSERT INTO events (id, source, received_at, state, class, due_at, replaying, replay_id, letter, parked_at) "
      "VALUES "
      "(1, 1, 1, 3, 1, NULL, 0, 7, 3, 1), (2, 1, 1, 0, 2, 5, 1, 7, NULL, NULL), (3, 1, 1, 3, 2, NULL, 0, 0, 3, 1), "
      "(4, 1, 1, 3, 2, NULL, 0, 0, 3, 1);"
      "INSERT INTO replays (id, kind, state, created_at, actor, reason, filter, digest, count, queued, "
      "released_through, "
      "ended, batch_size, stagger_us, next_batch_at) VALUES "
      "(7, 'replay', 'running', 5, 'jane', 'why', '{}', 'd', 4, 1, 3, 2, 100, 1000, 9);"
      "INSERT INTO replay_items VALUES (7, 1, 1, 4, 2), (7, 2, 0, 0, 0), (7, 3, 1, 100, 0), (7, 4, 0, 0, 0)"));
  OrThrow(db->Exec(kMigrations[1]));
  const ReplayProgress p = OrThrow(GetReplay(*db, 7, kNow));
  EXPECT_EQ(std::make_tuple(p.state, p.count, p.queued, p.running, p.dead_again, p.parked, p.skipped, p.remaining,
                            p.requeued),
            std::make_tuple("running", 4, 2, 0, 1, 1, 1, 2, 2));
  const auto running = OrThrow(RunningReplays(*db));
  ASSERT_EQ(running.size(), 1U);
  EXPECT_EQ(std::make_tuple(running[0].sources[0].queued, running[0].sources[0].open), std::make_tuple(1, 1));
  EXPECT_EQ(OrThrow(ReadReplayItems(*db, 7, {}, 10, "")).items.size(), 4U);
}

TEST(Pace, ComesFromBatchAndStaggerOrFromARate) {
  struct Row {
    ReplayOptions options;
    int batch;
    Duration stagger;
  };
  const Row rows[] = {{{}, 100, std::chrono::milliseconds(1000)},
                      {{.batch_size = 1, .stagger_ms = 0}, 1, Duration(0)},
                      {{.batch_size = 10'000, .stagger_ms = 3'600'000}, 10'000, std::chrono::hours(1)},
                      {{.rate = 100.0}, 10, std::chrono::milliseconds(100)},
                      {{.rate = 0.5}, 1, std::chrono::seconds(2)},
                      {{.rate = 9.9}, 1, Duration(101'010)},
                      {{.rate = 100'000.0}, 10'000, std::chrono::milliseconds(100)}};
  for (const Row& row : rows) {
    const auto pace = PaceOf(row.options);
    ASSERT_TRUE(pace);
    EXPECT_EQ(pace->batch_size, row.batch);
    EXPECT_EQ(pace->stagger, row.stagger);
  }
  const ReplayOptions bad[] = {
      {.batch_size = 0}, {.batch_size = 10'001}, {.stagger_ms = -1},  {.stagger_ms = 3'600'001}, {.rate = 0.0},
      {.rate = 0.009},   {.rate = 100'001.0},    {.rate = -1.0},      {.rate = std::nan("")},    {.max = -1},
      {.canary = -1},    {.canary = 101},        {.stop_percent = 0}, {.stop_percent = 101}};
  for (const ReplayOptions& options : bad) EXPECT_EQ(PaceOf(options).error().code, "bad_replay_options");
}

TEST(Pace, EstimatesUntilTheLastBatchIsHandedOver) {
  const Pace pace{.batch_size = 100, .stagger = std::chrono::milliseconds(1500)};
  EXPECT_EQ(EstimateSeconds(0, pace), 0);
  EXPECT_EQ(EstimateSeconds(100, pace), 0);
  EXPECT_EQ(EstimateSeconds(101, pace), 1.5);
  EXPECT_EQ(EstimateSeconds(1'000, pace), 13.5);
}

}  // namespace
}  // namespace dlo::store
