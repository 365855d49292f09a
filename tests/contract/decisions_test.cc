// Acts on many letters: what is frozen, what is skipped, what a crash leaves.
#include <numeric>

#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractDecisions : public LetterTest {
 protected:
  std::vector<EventId> DeadOnes(int n, const std::string& prefix = "evt_") {
    std::vector<EventId> ids;
    for (int i = 0; i < n; ++i) ids.push_back(Dead(prefix + std::to_string(i)));
    return ids;
  }
  static BulkAct Bulk(Act act) {
    BulkAct bulk{.act = act};
    bulk.hold = {.link = "https://issues.example/1", .owner = "billing", .until = {}, .wake_on_handler = ""};
    bulk.resolve_code = ResolveCode::handled_manually;
    return bulk;
  }
  Result<Decision> Create(const Filter& filter, Act act, DecisionOptions options = {}) {
    return store_->CreateDecision(filter, Bulk(act), options, actor_, Now());
  }
  Decision Finish(std::int64_t id, int n = 100) {
    for (int i = 0; i < 1'000; ++i) {
      Decision d = OrThrow(store_->StepDecision(id, n, Now()));
      if (d.state == "done") return d;
    }
    ADD_FAILURE() << "never done";
    return {};
  }
  std::vector<std::string> Actions(EventId id) {
    std::vector<std::string> actions;
    for (const AuditRecord& r : Records(id)) actions.push_back(r.action);
    return actions;
  }
};

TEST_P(ContractDecisions, EachActTakesTheStatesItLeadsFromAndNoOthers) {
  const EventId dead = Dead("evt_1"), held = Dead("evt_2"), resolved = Dead("evt_3");
  OrThrow(Do(held, Act::hold));
  OrThrow(Do(resolved, Act::resolve));
  const struct {
    Act act;
    std::int64_t count;
  } rows[] = {{Act::hold, 1}, {Act::release, 1}, {Act::resolve, 2}, {Act::reopen, 1}};
  for (const auto& row : rows) {
    EXPECT_EQ(OrThrow(store_->PlanDecision({}, row.act)).count, row.count) << Name(row.act);
  }
  Filter waiting;
  waiting.states = {State::waiting};
  EXPECT_EQ(store_->PlanDecision(waiting, Act::hold).error().code, "state_not_fit");
  EXPECT_EQ(Finish(OrThrow(Create({}, Act::resolve)).id).changed, 2);
  EXPECT_EQ(Get(dead).state, State::resolved);
  EXPECT_EQ(Get(held).state, State::resolved);
  EXPECT_EQ(Finish(OrThrow(Create({}, Act::reopen)).id).changed, 3);
  EXPECT_EQ(Finish(OrThrow(Create({}, Act::hold)).id).changed, 3);
  EXPECT_EQ(Get(dead).hold_link, "https://issues.example/1");
  EXPECT_EQ(Get(dead).hold_owner, "billing");
  EXPECT_EQ(Finish(OrThrow(Create({}, Act::release)).id).changed, 3);
  EXPECT_EQ(CountIn(State::dead), 3);
}

TEST_P(ContractDecisions, WhatComesLaterIsNotInIt) {
  const auto ids = DeadOnes(3);
  const Decision made = OrThrow(Create({}, Act::resolve));
  EXPECT_EQ(std::make_tuple(made.count, made.changed, made.state), std::make_tuple(3, 0, "running"));
  const EventId later = Dead("evt_later");
  EXPECT_EQ(Finish(made.id).changed, 3);
  EXPECT_EQ(Get(later).state, State::dead);
  for (const EventId id : ids) EXPECT_EQ(Get(id).state, State::resolved);
}

TEST_P(ContractDecisions, LeavesOneRecordForTheWholeAndOneForEachLetter) {
  const auto ids = DeadOnes(2);
  const Decision made = OrThrow(Create({}, Act::resolve));
  EXPECT_EQ(Records()[0].action, "bulk_resolve");
  EXPECT_NE(Records()[0].details.find("\"count\":2"), std::string::npos);
  EXPECT_NE(Records()[0].details.find(made.digest), std::string::npos);
  EXPECT_NE(Records()[0].details.find("handled_manually"), std::string::npos);
  Finish(made.id, 1);
  for (const EventId id : ids) {
    EXPECT_EQ(Actions(id), std::vector<std::string>{"resolve"});
    EXPECT_EQ(Records(id)[0].actor, "jane");
    EXPECT_NE(Records(id)[0].details.find("\"decision\":1"), std::string::npos) << Records(id)[0].details;
  }
  EXPECT_EQ(Records().size(), 3U);
}

TEST_P(ContractDecisions, OverTheCapNothingIsDoneUnlessForced) {
  DeadOnes(3);
  const auto refused = Create({}, Act::hold, {.max = 2});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, "too_many");
  EXPECT_EQ(refused.error().kind, ErrorKind::too_large);
  EXPECT_TRUE(Records().empty());
  EXPECT_TRUE(OrThrow(store_->RecentDecisions(10)).empty());
  EXPECT_EQ(OrThrow(Create({}, Act::hold, {.max = 3})).count, 3);
  EXPECT_EQ(OrThrow(Create({}, Act::hold, {.max = 1, .force = true})).count, 3);
}

TEST_P(ContractDecisions, OfNothingIsDoneAtOnce) {
  const Decision made = OrThrow(Create({}, Act::hold));
  EXPECT_EQ(std::make_tuple(made.count, made.state), std::make_tuple(0, "done"));
  EXPECT_TRUE(OrThrow(store_->OpenDecisions()).empty());
  EXPECT_EQ(OrThrow(store_->StepDecision(made.id, 10, Now())).state, "done");
  EXPECT_EQ(store_->StepDecision(99, 10, Now()).error().code, "no_such_decision");
  EXPECT_EQ(store_->GetDecision(99).error().code, "no_such_decision");
}

// Two operators on the same letters: whoever came to a letter first has decided, and the other is told.
TEST_P(ContractDecisions, WhatSomebodyDecidedMeanwhileIsSkippedAndCounted) {
  const auto ids = DeadOnes(4);
  const Decision mine = OrThrow(Create({}, Act::resolve)), other = OrThrow(Create({}, Act::hold));
  OrThrow(store_->StepDecision(mine.id, 2, Now()));
  OrThrow(store_->StepDecision(other.id, 3, Now()));  // two are resolved, one is still dead
  const Decision done = Finish(mine.id), held = Finish(other.id);
  EXPECT_EQ(std::make_tuple(done.changed, done.skipped), std::make_tuple(3, 1));
  EXPECT_EQ(std::make_tuple(held.changed, held.skipped), std::make_tuple(1, 3));
  EXPECT_EQ(done.skipped_ids, std::vector<EventId>{ids[2]});
  EXPECT_EQ(OrThrow(store_->GetDecision(other.id)).skipped_ids, (std::vector<EventId>{ids[0], ids[1], ids[3]}));
  EXPECT_EQ(Get(ids[2]).state, State::held);
  EXPECT_EQ(Get(ids[3]).state, State::resolved);
  for (const EventId id : ids) EXPECT_EQ(Records(id).size(), 1U);
}

TEST_P(ContractDecisions, ALetterThatWasTriedSinceIsSkippedThoughItIsDeadAgain) {
  const EventId id = Dead("evt_1");
  const Decision made = OrThrow(Create({}, Act::resolve));
  OrThrow(Do(id, Act::replay));
  Fail(ClaimOne(), FailureClass::permanent, "another failure");
  EXPECT_EQ(Finish(made.id).skipped, 1);
  EXPECT_EQ(Get(id).state, State::dead);
}

TEST_P(ContractDecisions, AKillBetweenStepsGoesOnWhereItStoodAndChangesNothingTwice) {
  const auto ids = DeadOnes(7);
  const Decision made = OrThrow(Create({}, Act::resolve));
  OrThrow(store_->StepDecision(made.id, 3, Now()));
  const auto copy = place_->AsIfKilledNow();
  store_ = OrThrow(copy->Open(clock_, options_));
  EXPECT_EQ(OrThrow(store_->OpenDecisions()), std::vector<std::int64_t>{made.id});
  const Decision done = Finish(made.id, 2);
  EXPECT_EQ(std::make_tuple(done.count, done.changed, done.skipped), std::make_tuple(7, 7, 0));
  for (const EventId id : ids) EXPECT_EQ(Actions(id), std::vector<std::string>{"resolve"});
  EXPECT_EQ(OrThrow(store_->StepDecision(made.id, 100, Now())).changed, 7);
  store_.reset();
}

TEST_P(ContractDecisions, ALargeSetIsFrozenInPiecesAndIsOneSetAllTheSame) {
  // More than one piece of a freeze; conflicts are dead at receipt, so they need no attempts.
  Accept(MakeReceipt("evt_0"));
  std::vector<Receipt> batch;
  constexpr int kLetters = 5'200;
  for (int i = 0; i < kLetters; ++i) {
    Receipt receipt = MakeReceipt("evt_0");
    receipt.body = std::to_string(i);
    batch.push_back(std::move(receipt));
  }
  Accept(std::move(batch));
  const Decision plan = OrThrow(store_->PlanDecision({}, Act::resolve));
  const Decision made = OrThrow(Create({}, Act::resolve));
  EXPECT_EQ(made.count, kLetters);
  EXPECT_EQ(made.digest, plan.digest);
  EXPECT_EQ(made.by_class, plan.by_class);
  EXPECT_EQ(Finish(made.id, 1'000).changed, kLetters);
  EXPECT_EQ(CountIn(State::resolved), kLetters);
}

TEST_P(ContractDecisions, OverdueHoldsAreThosePastTheirDate) {
  const EventId by_date = Dead("evt_1"), later = Dead("evt_2"), open = Dead("evt_3");
  for (const auto& [id, seconds] : {std::pair(by_date, 10), std::pair(later, 1'000)}) {
    TriageAct hold = Request(id, Act::hold);
    hold.hold.until = Now() + std::chrono::seconds(seconds);
    OrThrow(Do(hold));
  }
  OrThrow(Do(open, Act::hold));
  clock_.Advance(std::chrono::seconds(11));
  Filter overdue;
  overdue.overdue = Now();
  EXPECT_EQ(Listed(overdue), std::vector<EventId>{by_date});
  EXPECT_EQ(OrThrow(store_->Count(overdue)), 1);
  const Figures figures = OrThrow(store_->Read());
  EXPECT_EQ(figures.holds_overdue, (std::map<std::string, std::int64_t>{{"stripe", 1}}));
  EXPECT_EQ(figures.held_overdue, 1);
  EXPECT_EQ(Get(by_date).state, State::held) << "nothing is released by itself";
}

class ContractVersions : public LetterTest {
 protected:
  EventId DeadBy(const std::string& key, const std::string& version) {
    const EventId id = Accept(MakeReceipt(key)).id;
    Transition t = Ended(ClaimOne(), State::dead, Now());
    t.outcome.handler_version = version;
    EXPECT_EQ(Apply(t), ApplyStatus::applied);
    return id;
  }
  void SucceedBy(const std::string& key, const std::string& version) {
    Accept(MakeReceipt(key));
    Transition t = Ended(ClaimOne(), State::succeeded, Now());
    t.outcome.handler_version = version;
    EXPECT_EQ(Apply(t), ApplyStatus::applied);
  }
};

TEST_P(ContractVersions, ANewVersionIsToldWithWhatItHasNotJudged) {
  const EventId first = DeadBy("evt_1", "7"), second = DeadBy("evt_2", "7");
  std::vector<Group> groups = OrThrow(store_->Groups({}, "fingerprint"));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(std::make_tuple(groups[0].handler_version, groups[0].not_judged), std::make_tuple("7", 0));
  SucceedBy("evt_3", "8");
  groups = OrThrow(store_->Groups({}, "fingerprint"));
  EXPECT_EQ(std::make_tuple(groups[0].handler_version, groups[0].not_judged), std::make_tuple("8", 2));
  Filter not_by_8;
  not_by_8.not_judged_by = "8";
  EXPECT_EQ(Listed(not_by_8), (std::vector<EventId>{second, first}));
  // Version 8 judges one of them, and it stays dead: judged.
  OrThrow(Do(first, Act::replay));
  Transition again = Ended(ClaimOne(), State::dead, Now());
  again.outcome.handler_version = "8";
  EXPECT_EQ(Apply(again), ApplyStatus::applied);
  EXPECT_EQ(OrThrow(store_->Groups({}, "fingerprint"))[0].not_judged, 1);
  EXPECT_EQ(Listed(not_by_8), std::vector<EventId>{second});
  EXPECT_EQ(CountIn(State::waiting), 0) << "nothing is replayed by itself";
  for (const char* by : {"type", "account", "source", "class"}) {
    EXPECT_EQ(OrThrow(store_->Groups({}, by))[0].not_judged, 1) << by;
  }
}

TEST_P(ContractVersions, AHoldThatWaitsForAVersionIsReadyOnceItWasSeen) {
  const struct {
    const char* wake;
    bool ready;
  } rows[] = {{"8", true}, {"2026.*", false}, {"[8]x", false}, {"?", true}, {"", false}};
  std::vector<EventId> ids;
  for (const auto& row : rows) {
    ids.push_back(DeadBy(std::string("evt_") + row.wake, "7"));
    TriageAct hold = Request(ids.back(), Act::hold);
    hold.hold.wake_on_handler = row.wake;
    OrThrow(Do(hold));
  }
  Filter overdue;
  overdue.overdue = Now();
  SucceedBy("evt_new", "8");
  std::vector<EventId> ready;
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    EXPECT_EQ(Get(ids[i]).wake_seen, rows[i].ready) << rows[i].wake;
    if (rows[i].ready) ready.insert(ready.begin(), ids[i]);
  }
  EXPECT_EQ(Listed(overdue), ready);
  EXPECT_EQ(OrThrow(store_->Read()).held_overdue, 2);
  EXPECT_EQ(OrThrow(store_->Groups({}, "class"))[0].ready, 2);
}

TEST_P(ContractVersions, AVersionOfAnAnswerThatWasTakenBackIsNotedAgain) {
  for (int i = 0; i < 2; ++i) {
    SucceedBy("evt_" + std::to_string(i), "9");
    Reopen();
  }
  const EventId id = DeadBy("evt_x", "");
  EXPECT_EQ(OrThrow(store_->Groups({}, "fingerprint"))[0].handler_version, "9");
  Filter by_nobody;
  by_nobody.not_judged_by = "9";
  EXPECT_EQ(Listed(by_nobody), std::vector<EventId>{id});
}

TEST_P(ContractVersions, AHandlerThatNeverStopsInventingVersionsIsHeardToABound) {
  for (int i = 0; i < 30; ++i) SucceedBy("evt_" + std::to_string(i), std::string(300, 'v') + std::to_string(i));
  EXPECT_EQ(OrThrow(store_->Read()).accounting_difference, 0);
}

DLO_FOR_EACH_STORE(ContractDecisions);
DLO_FOR_EACH_STORE(ContractVersions);

}  // namespace
}  // namespace dlo::store::contract
