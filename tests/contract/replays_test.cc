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
  EXPECT_EQ(Create({}, {.max = 2}).error().code, "replay_too_large");
  EXPECT_TRUE(OrThrow(store_->Recent(10)).empty());
  EXPECT_TRUE(Records().empty());
  EXPECT_EQ(OrThrow(Create({}, {.max = 2, .force = true})).count, 3);
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

DLO_FOR_EACH_STORE(ContractReplays);

}  // namespace
}  // namespace dlo::store::contract
