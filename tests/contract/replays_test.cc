#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractReplays : public LetterTest {
 protected:
  Result<ReplayPlan> Create(const Filter& filter = {}, const ReplayOptions& options = {},
                            const std::string& kind = "replay") {
    return store_->Create(filter, options, kind, actor_, Now());
  }
  std::int64_t Release(std::int64_t id, int n) { return OrThrow(store_->ReleaseBatch(id, n, Now())); }
};

TEST_P(ContractReplays, AFrozenSelectionIsReleasedByReceiptAndEndsWithItsLastLetter) {
  std::vector<EventId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Dead("evt_" + std::to_string(i)));
  const ReplayPlan plan = OrThrow(Create({}, {.batch_size = 2}));
  EXPECT_EQ(plan.count, 5);
  const EventId late = Dead("evt_late");
  ASSERT_EQ(OrThrow(store_->Running()).size(), 1U);
  EXPECT_EQ(Release(plan.id, 2), 3);
  EXPECT_EQ(Ids(Claim(1)), std::vector<EventId>{ids[0]});
  const auto second = ClaimOne();
  EXPECT_EQ(second.run.id, ids[1]);
  EXPECT_EQ(second.run.replay_id, plan.id);
  Succeed(second);
  EXPECT_EQ(Release(plan.id, 10), 0);
  EXPECT_TRUE(OrThrow(store_->Running()).empty());
  for (const Claimed& claimed : Claim()) Succeed(claimed);
  ReplayProgress p = OrThrow(store_->Get(plan.id));
  EXPECT_EQ(std::make_tuple(p.state, p.requeued, p.committed, p.remaining), std::make_tuple("running", 5, 4, 1));
  EXPECT_EQ(Get(late).state, State::dead);
}

TEST_P(ContractReplays, ALetterThatChangedIsSkipped) {
  const EventId resolved = Dead("evt_1");
  Dead("evt_2");
  const ReplayPlan plan = OrThrow(Create());
  OrThrow(Do(resolved, Act::resolve));
  EXPECT_EQ(Release(plan.id, 10), 0);
  Succeed(ClaimOne());
  const ReplayProgress p = OrThrow(store_->Get(plan.id));
  EXPECT_EQ(std::make_tuple(p.state, p.requeued, p.skipped, p.committed, p.remaining),
            std::make_tuple("done", 1, 1, 1, 0));
  EXPECT_EQ(Get(resolved).state, State::resolved);
}

TEST_P(ContractReplays, TheCapRefusesAndForceLiftsIt) {
  for (int i = 0; i < 3; ++i) Dead("evt_" + std::to_string(i));
  const auto refused = Create({}, {.max = 2});
  EXPECT_EQ(std::make_tuple(refused.error().kind, refused.error().code),
            std::make_tuple(ErrorKind::too_large, std::string("replay_too_large")));
  EXPECT_NE(refused.error().message.find("selects 3 letters"), std::string::npos) << refused.error().message;
  EXPECT_TRUE(OrThrow(store_->Recent(10)).empty());
  EXPECT_TRUE(Records().empty());
  const ReplayPlan forced = OrThrow(Create({}, {.max = 2, .force = true}));
  EXPECT_EQ(std::make_tuple(forced.count, forced.over_cap), std::make_tuple(3, true));
  EXPECT_EQ(OrThrow(Create({}, {.max = 3})).count, 0);  // all are in the first one
  EXPECT_EQ(Records().size(), 2U);
}

TEST_P(ContractReplays, APlanIsWhatCreateThenTakes) {
  Dead("evt_1");
  Dead("evt_2", {}, FailureClass::exhausted);
  Dead("evt_3", {}, FailureClass::corrupt);
  const ReplayPlan plan = OrThrow(store_->Plan({}));
  EXPECT_EQ(plan.by_class, (std::map<std::string, std::int64_t>{{"exhausted", 1}, {"permanent", 1}}));
  EXPECT_EQ(OrThrow(Create()).digest, plan.digest);
}

TEST_P(ContractReplays, ADrainTakesExhaustedLettersAlone) {
  Dead("evt_1");
  const EventId exhausted = Dead("evt_2", {}, FailureClass::exhausted);
  Dead("evt_3", {}, FailureClass::poison);
  const ReplayPlan plan = OrThrow(Create({}, {}, "drain"));
  EXPECT_EQ(plan.count, 1);
  Release(plan.id, 10);
  EXPECT_EQ(ClaimOne().run.id, exhausted);
  EXPECT_EQ(Records()[0].action, "drain");
}

TEST_P(ContractReplays, GoOnAfterAKill) {
  for (int i = 0; i < 4; ++i) Dead("evt_" + std::to_string(i));
  const ReplayPlan plan = OrThrow(Create());
  Release(plan.id, 1);
  // A plan is flushed in full, a release at the latest with the next flush: either way no letter is lost or taken
  // twice.
  auto after = place_->AsIfKilledNow();
  store_.reset();
  place_ = std::move(after);
  Open();
  Release(plan.id, 100);
  const auto claimed = Claim();
  EXPECT_EQ(claimed.size(), 4U);
  for (const Claimed& one : claimed) Succeed(one);
  const ReplayProgress p = OrThrow(store_->Get(plan.id));
  EXPECT_EQ(std::make_tuple(p.state, p.count, p.committed), std::make_tuple("done", 4, 4));
}

TEST_P(ContractReplays, ADrainTakesExhaustedLettersWhateverWasAsked) {
  Dead("evt_1");
  const EventId exhausted = Dead("evt_2", {}, FailureClass::exhausted);
  Filter permanent;
  permanent.classes = {FailureClass::permanent};
  const ReplayPlan plan = OrThrow(Create(permanent, {}, "drain"));
  EXPECT_EQ(OrThrow(store_->Items(plan.id, {}, 10, "")).items.at(0).id, exhausted);
}

TEST_P(ContractReplays, ArePausedResumedAndCancelledWithARecordEach) {
  for (int i = 0; i < 4; ++i) Dead("evt_" + std::to_string(i));
  const ReplayPlan plan = OrThrow(Create());
  Release(plan.id, 1);
  EXPECT_EQ(OrThrow(store_->Act(plan.id, ReplayAct::pause, actor_, Now())).state, "paused");
  EXPECT_EQ(store_->Act(plan.id, ReplayAct::pause, actor_, Now()).error().code, "replay_not_running");
  EXPECT_TRUE(OrThrow(store_->Running()).empty());
  EXPECT_EQ(Release(plan.id, 10), 0);
  Reopen();  // a pause outlives a restart
  EXPECT_EQ(OrThrow(store_->Get(plan.id)).state, "paused");
  EXPECT_EQ(OrThrow(store_->Act(plan.id, ReplayAct::resume, actor_, Now())).state, "running");
  Release(plan.id, 1);
  ReplayProgress p = OrThrow(store_->Act(plan.id, ReplayAct::cancel, actor_, Now()));
  EXPECT_EQ(std::make_tuple(p.state, p.queued, p.skipped), std::make_tuple("cancelled", 2, 2));
  for (const Claimed& one : Claim()) Succeed(one);
  p = OrThrow(store_->Get(plan.id));
  EXPECT_EQ(std::make_tuple(p.committed, p.remaining), std::make_tuple(2, 0));
  EXPECT_EQ(CountIn(State::dead), 2);
  std::vector<std::string> actions;
  for (const AuditRecord& record : Records()) actions.push_back(record.action);
  EXPECT_EQ(actions, (std::vector<std::string>{"replay_cancel", "replay_resume", "replay_pause", "bulk_replay"}));
}

TEST_P(ContractReplays, ALetterIsInOneReplayAtATime) {
  const EventId id = Dead("evt_1");
  const ReplayPlan plan = OrThrow(Create());
  const auto single = Do(id, Act::replay);
  EXPECT_EQ(single.error().code, "in_replay");
  EXPECT_NE(single.error().message.find("replay " + std::to_string(plan.id)), std::string::npos);
  EXPECT_EQ(OrThrow(store_->Plan({})).in_other_replay, 1);
  const ReplayPlan second = OrThrow(Create());
  EXPECT_EQ(std::make_tuple(second.count, second.in_other_replay), std::make_tuple(0, 1));
  Release(plan.id, 1);
  EXPECT_EQ(Do(id, Act::replay).error().code, "in_replay");  // on its way now
}

TEST_P(ContractReplays, TheCanaryGoesFirstAndTheOthersWaitForIt) {
  const EventId first = Dead("evt_1");
  Dead("evt_2");
  Dead("evt_3");
  const ReplayPlan plan = OrThrow(Create({}, {.canary = 1}));
  EXPECT_EQ(plan.canary, 1);
  Release(plan.id, 10);
  const Claimed canary = ClaimOne();
  EXPECT_EQ(canary.run.id, first);
  EXPECT_TRUE(Claim().empty());
  Succeed(canary);
  const RunningReplay r = OrThrow(store_->Running()).at(0);
  EXPECT_EQ(std::make_tuple(r.canary, r.canary_left, r.canary_ended, r.canary_dead), std::make_tuple(true, 0, 1, 0));
  EXPECT_EQ(OrThrow(store_->Act(plan.id, ReplayAct::continue_, actor_, Now())).state, "running");
  Release(plan.id, 10);
  EXPECT_EQ(Claim().size(), 2U);
}

TEST_P(ContractReplays, LiveEventsAreClaimedBeforeLettersOfReplays) {
  for (int i = 0; i < 4; ++i) Dead("evt_" + std::to_string(i));
  const ReplayPlan plan = OrThrow(Create());
  Release(plan.id, 10);
  clock_.Advance(std::chrono::seconds(1));
  std::vector<EventId> live;
  for (int i = 0; i < 2; ++i) live.push_back(Accept(MakeReceipt("live_" + std::to_string(i))).id);
  Settle();
  const std::vector<std::string> source = {"stripe"};
  EXPECT_EQ(OrThrow(store_->LiveDue(source, Now(), 10)).at("stripe"), 2);
  EXPECT_EQ(OrThrow(store_->LiveDue(source, Now(), 1)).at("stripe"), 1);
  EXPECT_EQ(Ids(Claim(2)), live);
  EXPECT_EQ(OrThrow(store_->LiveDue(source, Now(), 10)).at("stripe"), 0);
  EXPECT_EQ(Claim(10).size(), 4U);
}

DLO_FOR_EACH_STORE(ContractReplays);

}  // namespace
}  // namespace dlo::store::contract
