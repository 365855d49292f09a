#include "contract/letter_steps.h"
#include "env/random.h"
#include "model/law.h"

namespace dlo::store::contract {
namespace {

constexpr Act kActs[] = {Act::replay, Act::hold, Act::release, Act::resolve, Act::reopen};

class ContractTriage : public LetterTest {
 protected:
  /// An event of its own subject in that state.
  EventId InState(State state) {
    const std::string key = "evt_" + std::to_string(++made_);
    if (state == State::waiting) {
      // Behind a running one, so that no later claim takes it.
      Accept(MakeReceipt(key + "_front", key));
      (void)ClaimOne();
      return Accept(MakeReceipt(key, key)).id;
    }
    if (state == State::running || state == State::succeeded) {
      const EventId id = Accept(MakeReceipt(key, key)).id;
      const Claimed claimed = ClaimOne();
      if (state == State::succeeded) Succeed(claimed);
      return id;
    }
    const EventId id = Dead(key, key);
    if (state == State::held) OrThrow(Do(id, Act::hold));
    if (state == State::resolved) OrThrow(Do(id, Act::resolve));
    if (state == State::replayed) {
      OrThrow(Do(id, Act::replay));
      Succeed(ClaimOne());
    }
    return id;
  }
  int made_ = 0;
};

TEST_P(ContractTriage, EveryActInEveryStateFollowsTheLawAndLeavesOneRecordOrNone) {
  for (const Act act : kActs) {
    for (int s = 0; s < kStateCount; ++s) {
      const auto from = static_cast<State>(s);
      SCOPED_TRACE(std::string(Name(act)) + " " + std::string(Name(from)));
      const EventId id = InState(from);
      ASSERT_EQ(Get(id).state, from);
      const std::size_t records = Records(id).size();
      const auto letter = Do(id, act);
      const auto to = Target(act, from);
      ASSERT_EQ(letter.has_value(), to.has_value());
      EXPECT_EQ(Get(id).state, to.value_or(from));
      EXPECT_EQ(Records(id).size(), records + (to ? 1 : 0));
      if (to) {
        EXPECT_EQ(letter->state, *to);
        EXPECT_EQ(Records(id)[0].action, Name(act));
        EXPECT_EQ(Records(id)[0].actor, "jane");
        if (act == Act::replay) Succeed(ClaimOne());  // leaves nothing due for the next row
      } else {
        EXPECT_EQ(letter.error().kind, ErrorKind::conflict);
      }
      ExpectLawful();
    }
  }
}

TEST_P(ContractTriage, ARefusedActStopsNoOther) {
  const EventId dead = Dead("evt_1"), other = Dead("evt_2");
  const TriageAct acts[] = {Request(dead, Act::hold), Request(99, Act::resolve), Request(dead, Act::hold),
                            Request(other, Act::resolve)};
  const auto done = OrThrow(store_->Triage(acts, actor_, Now()));
  ASSERT_EQ(done.size(), 4U);
  EXPECT_TRUE(done[0]);
  EXPECT_EQ(done[1].error().code, "not_found");
  EXPECT_EQ(done[2].error().code, "already_held");
  EXPECT_TRUE(done[3]);
  EXPECT_EQ(Get(dead).state, State::held);
  EXPECT_EQ(Get(other).state, State::resolved);
  EXPECT_EQ(Records().size(), 2U);
}

TEST_P(ContractTriage, AReplayIsAFreshDispatchOfTheSameReceipt) {
  const EventId id = Dead("evt_1", "sub_1");
  const Letter replaying = OrThrow(Do(id, Act::replay));
  EXPECT_EQ(Do(id, Act::replay).error().code, "in_replay");
  const Claimed claimed = ClaimOne();
  EXPECT_EQ(claimed.run.id, id);
  EXPECT_TRUE(claimed.run.replaying);
  EXPECT_EQ(claimed.run.replay_id, replaying.replay_id);
  EXPECT_EQ(claimed.run.tries, 1);
  EXPECT_EQ(claimed.run.attempt, 2);
  EXPECT_EQ(claimed.receipt->body, MakeReceipt("evt_1").body);
  EXPECT_EQ(Do(id, Act::replay).error().code, "in_replay");
  Succeed(claimed);
  EXPECT_EQ(Do(id, Act::replay).error().code, "already_replayed");
  const auto replay = OrThrow(store_->Get(replaying.replay_id));
  EXPECT_EQ(std::make_tuple(replay.state, replay.count, replay.committed, replay.remaining),
            std::make_tuple("done", 1, 1, 0));
}

TEST_P(ContractTriage, AReplayThatFailsIsDeadAgainWithItsCounterUp) {
  const EventId id = Dead("evt_1");
  for (int failed = 1; failed <= 3; ++failed) {
    const Letter replaying = OrThrow(Do(id, Act::replay));
    Fail(ClaimOne(), FailureClass::permanent);
    const Letter l = Get(id);
    EXPECT_EQ(std::make_tuple(l.state, l.replays, l.replays_failed, l.attempts),
              std::make_tuple(State::dead, failed, failed, 1));
    EXPECT_EQ(OrThrow(store_->Get(replaying.replay_id)).dead_again, 1);
  }
}

TEST_P(ContractTriage, EventsOfOneSubjectReplayedOutOfOrderStartByReceipt) {
  const EventId first = Dead("evt_1", "sub_1"), second = Dead("evt_2", "sub_1");
  OrThrow(Do(second, Act::replay));
  OrThrow(Do(first, Act::replay));
  const Claimed claimed = ClaimOne();
  EXPECT_EQ(claimed.run.id, first);
  EXPECT_TRUE(Claim().empty());
  Succeed(claimed);
  EXPECT_EQ(ClaimOne().run.id, second);
}

TEST_P(ContractTriage, ResolvingAHoldingLetterFreesItsSubject) {
  Accept(MakeReceipt("evt_1", "sub_1"));
  const Claimed claimed = ClaimOne();
  const EventId follower = Accept(MakeReceipt("evt_2", "sub_1")).id;
  Fail(claimed, FailureClass::permanent, "no", true);
  TriageAct hold = Request(claimed.run.id, Act::hold);
  hold.keep_lane = true;
  OrThrow(Do(hold));
  EXPECT_TRUE(Claim().empty());
  OrThrow(Do(claimed.run.id, Act::resolve));
  EXPECT_EQ(ClaimOne().run.id, follower);
}

TEST_P(ContractTriage, WhatWasDoneIsThereAfterAKill) {
  const EventId id = Dead("evt_1");
  OrThrow(Do(id, Act::hold));
  const auto copy = place_->AsIfKilledNow();
  const auto store = OrThrow(copy->Open(clock_, options_));
  EXPECT_EQ(OrThrow(store->Show(id)).letter.state, State::held);
  EXPECT_EQ(OrThrow(store->Audit(id, 0, 10)).size(), 1U);
}

TEST_P(ContractTriage, RandomActsKeepEveryLaw) {
  for (const std::uint64_t seed : {21, 22, 23}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    const auto pick = [&](std::size_t n) { return static_cast<std::size_t>(random.Next() % n); };
    std::vector<EventId> ids;
    for (int i = 0; i < 8; ++i) {
      ids.push_back(Accept(MakeReceipt("evt_" + std::to_string(++made_), "s" + std::to_string(pick(3)))).id);
    }
    std::size_t records = Records().size();
    for (int i = 0; i < 60; ++i) {
      if (pick(3) == 0) {
        for (const Claimed& claimed : Claim(2)) {
          if (pick(2) == 0) {
            Fail(claimed, FailureClass::permanent, "no", pick(2) == 0);
          } else {
            Succeed(claimed);
          }
        }
        continue;
      }
      TriageAct request = Request(ids[pick(ids.size())], kActs[pick(std::size(kActs))]);
      request.keep_lane = pick(2) == 0;
      records += Do(request) ? 1 : 0;
    }
    EXPECT_EQ(Records().size(), std::min<std::size_t>(records, 500));
    ExpectLawful();
  }
}

DLO_FOR_EACH_STORE(ContractTriage);

}  // namespace
}  // namespace dlo::store::contract
