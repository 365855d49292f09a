#include "store/embedded/replay_items.h"

#include <cmath>
#include <functional>
#include <set>

#include "env/random.h"
#include "store/embedded/access.h"
#include "store/embedded/triage.h"
#include "store/pace.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

using std::chrono::seconds;
const Time kNow = kStart + std::chrono::hours(24);

class Replays : public LettersFixture {
 protected:
  Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options = {},
                            const std::string& kind = "replay") {
    return InTransaction([&](Counts&) { return CreateReplay(*db_, filter, options, kind, actor_, kNow); });
  }
  std::int64_t Release(std::int64_t replay_id, int n, Time now = kNow) {
    return OrThrow(
        InTransaction([&](Counts& counts) { return ReleaseReplayBatch(*db_, counts, lanes_, replay_id, n, now); }));
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
      return EndReplayItem(*db_, counts, replay_id, id, result, failure_class, kNow);
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
  const ReplayPlan dry = OrThrow(Create({}, {.max = 2, .dry_run = true}));
  EXPECT_TRUE(dry.over_cap);
  EXPECT_EQ(dry.count, 3);
  EXPECT_EQ(Number("SELECT count(*) FROM replays"), 0);
}

TEST_F(Replays, TheCapRefusesWhatIsOverItAndLeavesNothing) {
  for (int i = 0; i < 10; ++i) Add();
  struct Row {
    std::int64_t max;
    bool force, created;
  };
  for (const Row& row : {Row{11, false, true}, Row{10, false, true}, Row{9, false, false}, Row{0, false, false},
                         Row{9, true, true}, Row{INT64_MAX, false, true}}) {
    SCOPED_TRACE(row.max);
    const auto plan = Create({}, {.max = row.max, .force = row.force});
    EXPECT_EQ(plan.has_value(), row.created);
    if (row.created) {
      EXPECT_EQ(plan->count, 10);
      EXPECT_EQ(plan->over_cap, row.max < 10);
      OrThrow(db_->Exec("UPDATE replays SET state = 'cancelled'"));
    } else {
      EXPECT_EQ(plan.error().kind, ErrorKind::too_large);
      EXPECT_EQ(plan.error().code, "replay_too_large");
      EXPECT_NE(plan.error().message.find("selects 10 letters"), std::string::npos) << plan.error().message;
    }
    EXPECT_EQ(Number("SELECT count(*) FROM replays WHERE state = 'running'"), 0);
    EXPECT_EQ(Number("SELECT count(*) FROM audit"), Number("SELECT count(*) FROM replays"));
  }
}

TEST_F(Replays, ARefusalLeavesNothingInsideACallersTransactionThatGoesOn) {
  Add();
  Add();
  OrThrow(db_->Exec("BEGIN"));
  EXPECT_EQ(CreateReplay(*db_, {}, {.max = 1}, "replay", actor_, kNow).error().code, "replay_too_large");
  EXPECT_EQ(OrThrow(CreateReplay(*db_, {}, {}, "replay", actor_, kNow)).count, 2);
  OrThrow(db_->Exec("COMMIT"));
  EXPECT_EQ(Number("SELECT count(*) FROM replays"), 1);
  EXPECT_EQ(Number("SELECT count(*) FROM replay_items"), 2);
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

TEST_F(Replays, ADrainTakesExhaustedLettersWhateverWasAsked) {
  Add();
  Add({.failure_class = FailureClass::exhausted});
  Filter filter;
  filter.classes = {FailureClass::permanent};
  EXPECT_EQ(Items(OrThrow(Create(filter, {}, "drain")).id), std::vector<EventId>{2});
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
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).state, "done");
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
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).state, "running");  // until their outcomes are known
  EXPECT_EQ(Number("SELECT count(*) FROM events WHERE replaying = 1 AND replays = 1 AND replay_id = " +
                   std::to_string(plan.id)),
            5);
  EXPECT_EQ(Number("SELECT count(*) FROM audit"), 1);
  EXPECT_EQ(ReleaseReplayBatch(*db_, *std::make_unique<Counts>(), lanes_, 99, 1, kNow).error().code,
            "replay_not_found");
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
  Act(4, dlo::Act::replay);
  for (const EventId id : {5, 6, 7}) Act(id, dlo::Act::replay);
  const auto single = [&](EventId id) {
    return Number("SELECT replay_id FROM events WHERE id = " + std::to_string(id));
  };
  End(single(5), 5, ReplayResult::dead_again, FailureClass::poison);
  End(single(6), 6, ReplayResult::committed);
  End(single(7), 7, ReplayResult::dead_again, FailureClass::corrupt);
  EXPECT_EQ(Release(plan.id, 100), 0);
  EXPECT_EQ(StateOf(1) + StateOf(2) + StateOf(3) + StateOf(5) + StateOf(6) + StateOf(7),
            "waitingresolvedhelddeadreplayeddead");
  const auto progress = OrThrow(GetReplay(*db_, plan.id));
  EXPECT_EQ(std::make_tuple(progress.count, progress.requeued, progress.skipped, progress.remaining),
            std::make_tuple(7, 1, 6, 1));
  EXPECT_EQ(Number("SELECT result FROM replay_items WHERE event_id = 4 AND replay_id = " + std::to_string(plan.id)),
            kSkippedOtherReplay);
  EXPECT_EQ(Number("SELECT result FROM replay_items WHERE event_id = 2 AND replay_id = " + std::to_string(plan.id)),
            kSkippedState);
  EXPECT_EQ(single(4) == plan.id, false);
  ExpectSound();
}

TEST_F(Replays, ADrainSkipsALetterThatFailedForAnotherReasonMeanwhile) {
  Add({.failure_class = FailureClass::exhausted});
  const auto plan = OrThrow(Create({}, {}, "drain"));
  Act(1, dlo::Act::replay);
  End(Number("SELECT replay_id FROM events"), 1, ReplayResult::dead_again, FailureClass::permanent);
  Release(plan.id, 10);
  EXPECT_EQ(StateOf(1), "dead");
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).state, "done");
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
  auto p = OrThrow(GetReplay(*db_, plan.id));
  EXPECT_EQ(std::make_tuple(p.count, p.requeued, p.skipped, p.committed, p.dead_again, p.parked, p.remaining),
            std::make_tuple(8, 7, 0, 4, 2, 1, 2));
  EXPECT_EQ(p.state, "running");
  // An answer that comes twice, for a letter of another replay, or with no end changes nothing.
  OrThrow(InTransaction([&](Counts& counts) -> Result<void> {
    for (const EventId id : {1, 8, 99})
      OrThrow(EndReplayItem(*db_, counts, plan.id, id, ReplayResult::dead_again, FailureClass::poison, kNow));
    return EndReplayItem(*db_, counts, plan.id, 7, ReplayResult::none, FailureClass::none, kNow);
  }));
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).remaining, 2);
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).committed, 4);
  Act(8, dlo::Act::resolve);
  Release(plan.id, 1);
  EXPECT_EQ(OrThrow(GetReplay(*db_, plan.id)).state, "running");
  End(plan.id, 7, ReplayResult::committed);
  p = OrThrow(GetReplay(*db_, plan.id));
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
  EXPECT_EQ(OrThrow(GetReplay(*db_, id)).state, "done");
  EXPECT_EQ(OrThrow(GetReplay(*db_, id)).committed, 1);
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
  const auto list = OrThrow(RecentReplays(*db_, 2));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].id, 3);
  EXPECT_EQ(list[1].id, 2);
  EXPECT_EQ(OrThrow(RecentReplays(*db_, 10))[2].remaining, 1);
  EXPECT_EQ(GetReplay(*db_, 9).error().code, "replay_not_found");
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
      {.batch_size = 0}, {.batch_size = 10'001}, {.stagger_ms = -1}, {.stagger_ms = 3'600'001}, {.rate = 0.0},
      {.rate = 0.009},   {.rate = 100'001.0},    {.rate = -1.0},     {.rate = std::nan("")},    {.max = -1}};
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
