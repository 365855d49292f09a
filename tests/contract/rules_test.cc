// Standing rules: what they take, and what never again.
#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractRules : public LetterTest {
 protected:
  Rule Make(const std::string& name = "no-customer", bool resolve = true) {
    Rule rule;
    rule.name = name;
    rule.match.q = "No such subscription";
    if (resolve) {
      rule.resolve_code = ResolveCode::entity_deleted;
    } else {
      rule.hold_link = "https://issues.example/2";
      rule.hold_owner = "ann";
    }
    rule.expires_at = Now() + std::chrono::hours(24);
    return rule;
  }
  Rule Add(const Rule& rule) { return OrThrow(store_->AddRule(rule, actor_, Now())); }
  RuleStep Step(int n = 100) { return OrThrow(store_->ApplyRules(n, Now())); }
  Rule Of(std::int64_t id) {
    for (const Rule& rule : OrThrow(store_->ListRules(100))) {
      if (rule.id == id) return rule;
    }
    return {};
  }
};

TEST_P(ContractRules, TakesWhatDiesFromNowOnAndSaysSo) {
  const EventId before = Dead("evt_0");
  const Rule rule = Add(Make());
  EXPECT_EQ(rule.state, "live");
  EXPECT_EQ(Records()[0].action, "rule_add");
  const EventId id = Dead("evt_1"), other = Dead(MakeReceipt("evt_2"), FailureClass::permanent, "schema mismatch");
  EXPECT_EQ(Get(id).state, State::dead) << "not on the way of the answer";
  const RuleStep step = Step();
  ASSERT_EQ(step.hits.size(), 1U);
  EXPECT_EQ(step.hits[0], std::make_pair(std::string("no-customer"), id));
  const Letter taken = Get(id);
  EXPECT_EQ(std::make_tuple(taken.state, *taken.resolve_code, taken.resolve_reason),
            std::make_tuple(State::resolved, ResolveCode::entity_deleted, "fixed"));
  EXPECT_EQ(Get(other).state, State::dead);
  EXPECT_EQ(Get(before).state, State::dead);
  ASSERT_EQ(Records(id).size(), 1U);
  EXPECT_EQ(Records(id)[0].actor, "rule:no-customer");
  EXPECT_NE(Records(id)[0].details.find("\"rule\":1"), std::string::npos);
  EXPECT_EQ(Of(rule.id).hits, 1);
  EXPECT_EQ(Of(rule.id).last_hit_at, Now());
  EXPECT_EQ(Step().looked_at, 0);
}

TEST_P(ContractRules, HoldsForALink) {
  Add(Make("hold-it", false));
  const EventId id = Dead("evt_1");
  Step();
  const Letter held = Get(id);
  EXPECT_EQ(std::make_tuple(held.state, held.hold_link, held.hold_owner),
            std::make_tuple(State::held, "https://issues.example/2", "ann"));
}

TEST_P(ContractRules, WhatIsDeadAtReceiptIsLookedAtToo) {
  Rule rule = Make();
  rule.match = {};
  rule.match.q = "same key";
  Add(rule);
  Accept(MakeReceipt("evt_1"));
  Receipt other = MakeReceipt("evt_1");
  other.body = "other";
  const EventId conflict = Accept(other).id;
  EXPECT_EQ(Step().hits.size(), 1U);
  EXPECT_EQ(Get(conflict).state, State::resolved);
}

TEST_P(ContractRules, ALetterThatAPersonReopenedIsNotTakenAgainByTheSameRule) {
  const Rule rule = Add(Make());
  const EventId id = Dead("evt_1");
  Step();
  OrThrow(Do(id, Act::reopen));
  EXPECT_TRUE(Step().hits.empty());
  // Also not when it is tried and dies again.
  OrThrow(Do(id, Act::replay));
  Fail(ClaimOne(), FailureClass::permanent);
  EXPECT_EQ(Step().looked_at, 1);
  EXPECT_EQ(Get(id).state, State::dead);
  EXPECT_EQ(Of(rule.id).hits, 1);
  // Another rule may.
  OrThrow(store_->EndRule(rule.id, actor_, Now()));
  Add(Make("another"));
  OrThrow(Do(id, Act::replay));
  Fail(ClaimOne(), FailureClass::permanent);
  EXPECT_EQ(Step().hits.size(), 1U);
}

TEST_P(ContractRules, WhatAPersonDecidedFirstStays) {
  Add(Make());
  const EventId held = Dead("evt_1"), replayed = Dead("evt_2");
  OrThrow(Do(held, Act::hold));
  OrThrow(Do(replayed, Act::replay));
  EXPECT_TRUE(Step().hits.empty());
  EXPECT_EQ(Get(held).state, State::held);
  EXPECT_EQ(Get(replayed).state, State::waiting);
}

TEST_P(ContractRules, TheOldestOfTwoRulesTakesIt) {
  Add(Make("first"));
  Add(Make("second", false));
  const EventId id = Dead("evt_1");
  ASSERT_EQ(Step().hits.size(), 1U);
  EXPECT_EQ(Records(id)[0].actor, "rule:first");
  EXPECT_EQ(Records(id).size(), 1U);
}

TEST_P(ContractRules, AfterItsDateOrItsEndItTakesNothing) {
  const Rule expires = Add(Make());
  const EventId id = Dead("evt_1");
  clock_.Advance(std::chrono::hours(24));
  EXPECT_TRUE(Step().hits.empty());
  EXPECT_EQ(Of(expires.id).state, "expired");
  EXPECT_EQ(Records()[0].action, "rule_expired");
  EXPECT_EQ(Records()[0].actor, "system");
  const Rule ended = Add(Make());  // the name is free again
  EXPECT_EQ(OrThrow(store_->EndRule(ended.id, actor_, Now())).state, "ended");
  EXPECT_EQ(store_->EndRule(ended.id, actor_, Now()).error().code, "rule_ended");
  EXPECT_EQ(store_->EndRule(99, actor_, Now()).error().code, "no_such_rule");
  Dead("evt_2");
  EXPECT_EQ(Step().looked_at, 0) << "nobody looks, so nothing is queued";
  EXPECT_EQ(Get(id).state, State::dead);
}

TEST_P(ContractRules, AKillBeforeOrAfterAStepTakesEachLetterOnce) {
  const Rule rule = Add(Make());
  std::vector<EventId> ids;
  for (int i = 0; i < 5; ++i) ids.push_back(Dead("evt_" + std::to_string(i)));
  const RuleStep first = Step(2);
  EXPECT_TRUE(first.more);
  EXPECT_EQ(first.hits.size(), 2U);
  const auto copy = place_->AsIfKilledNow();
  store_ = OrThrow(copy->Open(clock_, options_));
  while (Step(2).more) {
  }
  EXPECT_EQ(Of(rule.id).hits, 5);
  for (const EventId id : ids) EXPECT_EQ(Records(id).size(), 1U);
  store_.reset();
}

TEST_P(ContractRules, ATrialChangesNothing) {
  const EventId id = Dead("evt_1");
  Dead(MakeReceipt("evt_2"), FailureClass::permanent, "schema mismatch");
  const RuleTrial trial = OrThrow(store_->TryRule(Make()));
  EXPECT_EQ(trial.count, 1);
  EXPECT_EQ(trial.samples, std::vector<EventId>{id});
  EXPECT_EQ(trial.by_class, (std::map<std::string, std::int64_t>{{"permanent", 1}}));
  EXPECT_EQ(Get(id).state, State::dead);
  EXPECT_TRUE(OrThrow(store_->ListRules(10)).empty());
}

TEST_P(ContractRules, OneThatCannotBeAskedIsRefusedAndSoIsATakenName) {
  Rule broken = Make();
  broken.match.fingerprint = "not hex";
  EXPECT_EQ(store_->AddRule(broken, actor_, Now()).error().code, "bad_filter");
  Add(Make());
  EXPECT_EQ(store_->AddRule(Make(), actor_, Now()).error().code, "name_taken");
}

DLO_FOR_EACH_STORE(ContractRules);

}  // namespace
}  // namespace dlo::store::contract
