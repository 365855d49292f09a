#include <gmock/gmock.h>

#include <atomic>

#include "contract/fixture.h"

namespace dlo::store::contract {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class QueueTest : public StoreTest {};
DLO_FOR_EACH_STORE(QueueTest);

Transition CrashedNow(const RunContext& run, Time at) {
  Claimed claimed;
  claimed.run = run;
  Transition t = Ended(claimed, State::waiting, at);
  t.outcome = {.kind = OutcomeKind::crashed, .code = "crashed", .message = "the worker died"};
  t.crashes = run.crashes + 1;
  return t;
}

TEST_P(QueueTest, AClaimCountsTheAttemptAndWritesItsRowFirst) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  clock_.Advance(seconds(2));
  const Claimed claimed = ClaimOne();
  EXPECT_EQ(claimed.run.id, accepted.id);
  EXPECT_EQ(claimed.run.source, "stripe");
  EXPECT_EQ(claimed.run.kind, "invoice.paid");
  EXPECT_EQ(claimed.run.attempt, 1);
  EXPECT_EQ(claimed.run.tries, 1);
  EXPECT_EQ(claimed.run.received_at, kStart);
  EXPECT_FALSE(claimed.corrupt);
  // As a process that dies here would leave it.
  Reopen();
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::running);
  EXPECT_EQ(letter.attempts, 1);
  EXPECT_EQ(letter.tries, 1);
  EXPECT_EQ(letter.lease_until, Now() + seconds(60));
  const Result<std::vector<Attempt>> attempts = store_->Attempts(accepted.id);
  ASSERT_EQ(attempts->size(), 1U);
  EXPECT_EQ(attempts->at(0).started_at, Now());
  EXPECT_EQ(attempts->at(0).finished_at, std::nullopt);
  EXPECT_EQ(attempts->at(0).worker, "worker-1");
  EXPECT_EQ(attempts->at(0).target, "billing");
  EXPECT_THAT(Claim(), IsEmpty()) << "it is owned";
}

TEST_P(QueueTest, ClaimsTheOldestDueFirstAndNoMoreThanWanted) {
  for (int i = 1; i <= 5; ++i) Accept(MakeReceipt("evt_" + std::to_string(i)));
  EXPECT_THAT(Ids(Claim(0)), IsEmpty());
  EXPECT_THAT(Ids(Claim(2)), ElementsAre(1, 2));
  EXPECT_THAT(Ids(Claim(2)), ElementsAre(3, 4));
  EXPECT_THAT(Ids(Claim(2)), ElementsAre(5));
}

TEST_P(QueueTest, ClaimsOfWantedSourcesOnly) {
  Accept(MakeReceipt("a", "", "stripe"));
  Accept(MakeReceipt("a", "", "github"));
  EXPECT_THAT(Ids(Claim(9, "nobody")), IsEmpty());
  EXPECT_THAT(Ids(Claim(9, "github")), ElementsAre(2));
  EXPECT_THAT(Ids(Claim(9, "stripe")), ElementsAre(1));
}

TEST_P(QueueTest, SuccessEndsTheEventWithItsRecord) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  const Claimed claimed = ClaimOne();
  clock_.Advance(seconds(1));
  EXPECT_EQ(Apply(Ended(claimed, State::succeeded, Now())), ApplyStatus::applied);
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::succeeded);
  EXPECT_EQ(letter.finished_at, Now());
  EXPECT_EQ(letter.lease_until, std::nullopt);
  EXPECT_EQ(letter.first_failed_at, std::nullopt);
  const Attempt attempt = store_->Attempts(accepted.id)->at(0);
  EXPECT_EQ(attempt.outcome, OutcomeKind::applied);
  EXPECT_EQ(attempt.effect, "row 7");
  EXPECT_EQ(attempt.finished_at, Now());
  EXPECT_FALSE(attempt.late);
  EXPECT_EQ(CountIn(State::succeeded), 1);
  EXPECT_EQ(CountIn(State::running), 0);
}

TEST_P(QueueTest, ARetryWaitsUntilItIsDue) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  EXPECT_EQ(Apply(Ended(ClaimOne(), State::waiting, Now())), ApplyStatus::applied);
  const Time due = Now() + seconds(5);
  EXPECT_EQ(Get(accepted.id).due_at, due);
  EXPECT_EQ(Get(accepted.id).code, "http_503");
  struct Row {
    Duration wait;
    bool claimed;
  };
  for (const Row& row : {Row{seconds(5) - microseconds(1), false}, Row{microseconds(1), true}}) {
    clock_.Advance(row.wait);
    const ExchangeResult result = Exchange({}, {{"stripe", "billing", 1}});
    EXPECT_EQ(result.claimed.size(), row.claimed ? 1U : 0U);
    EXPECT_EQ(result.next_due, row.claimed ? std::nullopt : std::optional(due));
    if (row.claimed) {
      EXPECT_EQ(result.claimed[0].run.attempt, 2);
      EXPECT_EQ(result.claimed[0].run.tries, 2);
      EXPECT_EQ(result.claimed[0].run.token, 2);
    }
  }
}

TEST_P(QueueTest, NextDueIsTheEarliestThatIsNotBehindAnother) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1"), MakeReceipt("c")});
  const std::vector<Claimed> claimed = Claim();
  ASSERT_THAT(Ids(claimed), ElementsAre(1, 3));
  Transition later = Ended(claimed[1], State::waiting, Now());
  later.due_at = Now() + seconds(90);
  Transition sooner = Ended(claimed[0], State::waiting, Now());
  sooner.due_at = Now() + seconds(30);
  const ExchangeResult result = Exchange({later, sooner}, {{"stripe", "billing", 9}});
  EXPECT_THAT(result.claimed, IsEmpty()) << "the follower is due and waits behind the one that retries";
  EXPECT_EQ(result.next_due, Now() + seconds(30));
}

TEST_P(QueueTest, ADeadLetterKeepsWhyAndWhenItFirstFailed) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  Apply(Ended(ClaimOne(), State::waiting, Now()));
  const Time first_failed = Now();
  clock_.Advance(seconds(5));
  const Claimed second = ClaimOne();
  clock_.Advance(seconds(1));
  Transition dead = Ended(second, State::dead, Now());
  dead.outcome.detail = std::string(10'000, 'x');
  dead.outcome.message = std::string("bad \0 byte", 10);
  dead.outcome.handler_version = "v42";
  EXPECT_EQ(Apply(dead), ApplyStatus::applied);
  const LetterDetail detail = *store_->Show(accepted.id);
  EXPECT_EQ(detail.letter.state, State::dead);
  EXPECT_EQ(detail.letter.failure_class, FailureClass::permanent);
  EXPECT_EQ(detail.letter.code, "http_422");
  EXPECT_EQ(detail.letter.message.find('\0'), std::string::npos);
  EXPECT_LE(detail.detail.size(), 4'096U);
  EXPECT_GT(detail.detail.size(), 4'000U);
  EXPECT_EQ(detail.letter.handler_version, "v42");
  EXPECT_EQ(detail.letter.fingerprint, dead.fingerprint);
  EXPECT_EQ(detail.letter.first_failed_at, first_failed);
  EXPECT_EQ(detail.letter.last_failed_at, Now());
  EXPECT_EQ(detail.letter.parked_at, Now());
  EXPECT_EQ(detail.letter.attempts, 2);
  ASSERT_EQ(detail.attempts.size(), 2U);
  EXPECT_EQ(detail.attempts[0].number, 2);
  EXPECT_EQ(detail.attempts[1].code, "http_503");
  EXPECT_THAT(Claim(), IsEmpty());
}

TEST_P(QueueTest, NotApplicableResolvesWithTheHandlersReason) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  Apply(Ended(ClaimOne(), State::resolved, Now()));
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::resolved);
  EXPECT_EQ(letter.resolve_code, ResolveCode::other);
  EXPECT_EQ(letter.resolve_reason, "not ours");
  EXPECT_EQ(letter.first_failed_at, std::nullopt);
}

TEST_P(QueueTest, TheAnswerOfALateWorkerChangesNothingAndIsRecorded) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  const Claimed slow = ClaimOne();
  clock_.Advance(seconds(61));
  const Result<std::vector<RunContext>> expired = store_->ExpiredLeases(Now(), 10);
  ASSERT_EQ(expired->size(), 1U);
  EXPECT_EQ(Apply(CrashedNow(expired->at(0), Now())), ApplyStatus::applied);
  clock_.Advance(seconds(5));
  const Claimed fresh = ClaimOne();
  EXPECT_EQ(fresh.run.crashes, 1);
  EXPECT_GT(fresh.run.token, slow.run.token);

  EXPECT_EQ(Apply(Ended(slow, State::succeeded, Now())), ApplyStatus::late);
  EXPECT_EQ(Get(accepted.id).state, State::running);
  const std::vector<Attempt> attempts = *store_->Attempts(accepted.id);
  ASSERT_EQ(attempts.size(), 2U);
  EXPECT_TRUE(attempts[1].late);
  EXPECT_EQ(attempts[1].outcome, OutcomeKind::applied);
  EXPECT_FALSE(attempts[0].late);
  EXPECT_EQ(attempts[0].outcome, std::nullopt);
  EXPECT_EQ(Apply(Ended(fresh, State::succeeded, Now())), ApplyStatus::applied);
  EXPECT_EQ(Apply(Ended(fresh, State::dead, Now())), ApplyStatus::late) << "an answer counts once";
  EXPECT_EQ(Get(accepted.id).state, State::succeeded);
  EXPECT_EQ(store_->Attempts(accepted.id)->at(0).outcome, OutcomeKind::applied);
  EXPECT_FALSE(store_->Attempts(accepted.id)->at(0).late);
}

TEST_P(QueueTest, RescuedTwiceIsRescuedOnce) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  ClaimOne();
  clock_.Advance(seconds(61));
  const RunContext run = store_->ExpiredLeases(Now(), 10)->at(0);
  EXPECT_EQ(Apply(CrashedNow(run, Now())), ApplyStatus::applied);
  EXPECT_EQ(Apply(CrashedNow(run, Now())), ApplyStatus::late);
  EXPECT_EQ(Get(accepted.id).crashes, 1);
  EXPECT_FALSE(store_->Attempts(accepted.id)->at(0).late);
  EXPECT_THAT(*store_->ExpiredLeases(Now(), 10), IsEmpty());
}

TEST_P(QueueTest, AnEventThatDoesNotExistIsLate) {
  Accept(MakeReceipt("evt_1"));
  Transition t = Ended(ClaimOne(), State::succeeded, Now());
  t.id = 99;
  EXPECT_EQ(Apply(t), ApplyStatus::late);
}

TEST_P(QueueTest, ALeaseEndsAfterItsTimeAndNotBefore) {
  Accept(MakeReceipt("evt_1"));
  ClaimOne();
  struct Row {
    Duration at;
    std::size_t expired;
  };
  for (const Row& row :
       {Row{seconds(60) - microseconds(1), 0}, Row{seconds(60), 0}, Row{seconds(60) + microseconds(1), 1}}) {
    EXPECT_EQ(store_->ExpiredLeases(kStart + row.at, 10)->size(), row.expired) << row.at.count();
  }
}

TEST_P(QueueTest, ARenewedLeaseLastsLongerAndALostOneIsTold) {
  Accept({MakeReceipt("a"), MakeReceipt("b")});
  const std::vector<Claimed> claimed = Claim();
  ASSERT_EQ(claimed.size(), 2U);
  Apply(Ended(claimed[1], State::succeeded, Now()));
  const std::vector<LeaseRef> leases = {{claimed[0].run.id, claimed[0].run.token},
                                        {claimed[0].run.id, claimed[0].run.token + 1},
                                        {claimed[1].run.id, claimed[1].run.token}};
  const Result<std::vector<LeaseRef>> lost = store_->Renew(leases, Now() + seconds(100));
  ASSERT_EQ(lost->size(), 2U);
  EXPECT_EQ(lost->at(0).token, claimed[0].run.token + 1);
  EXPECT_EQ(lost->at(1).id, claimed[1].run.id);
  EXPECT_EQ(Get(claimed[0].run.id).lease_until, Now() + seconds(100));
  EXPECT_EQ(Get(claimed[1].run.id).state, State::succeeded);
}

TEST_P(QueueTest, WhatIsHandedBackIsNotCounted) {
  const Accepted accepted = Accept(MakeReceipt("evt_1", "sub_1"));
  const Claimed claimed = ClaimOne();
  const LeaseRef lease{claimed.run.id, claimed.run.token};
  EXPECT_EQ(store_->HandBack(std::span(&lease, 1), Now()), 1);
  EXPECT_EQ(store_->HandBack(std::span(&lease, 1), Now()), 0) << "no longer owned";
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::waiting);
  EXPECT_EQ(letter.attempts, 0);
  EXPECT_EQ(letter.tries, 0);
  EXPECT_EQ(letter.due_at, Now());
  EXPECT_FALSE(letter.behind);
  const std::vector<Attempt> attempts = *store_->Attempts(accepted.id);
  ASSERT_EQ(attempts.size(), 1U);
  EXPECT_EQ(attempts[0].code, "handed_back");
  EXPECT_EQ(Apply(Ended(claimed, State::succeeded, Now())), ApplyStatus::late);
  EXPECT_TRUE(store_->Attempts(accepted.id)->at(0).late);
  const Claimed again = ClaimOne();
  EXPECT_EQ(again.run.attempt, 2) << "numbers of attempts rise for ever";
  EXPECT_EQ(again.run.tries, 1);
}

TEST_P(QueueTest, WhatIsPutOffFallsDueWhenItWasToldToAndItsFollowersWait) {
  const Accepted accepted = Accept(MakeReceipt("evt_1", "sub_1"));
  Accept(MakeReceipt("evt_2", "sub_1"));
  Apply(Ended(ClaimOne(), State::waiting, Now()));
  clock_.Advance(seconds(5));
  const Claimed claimed = ClaimOne();
  EXPECT_EQ(claimed.run.tries, 2);
  const LeaseRef lease{claimed.run.id, claimed.run.token, Now() + seconds(40)};
  EXPECT_EQ(store_->HandBack(std::span(&lease, 1), Now()), 1);
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::waiting);
  EXPECT_EQ(letter.attempts, 1);
  EXPECT_EQ(letter.tries, 1);
  EXPECT_EQ(letter.due_at, Now() + seconds(40));
  EXPECT_EQ(store_->Attempts(accepted.id)->at(0).code, "deferred");
  EXPECT_THAT(Ids(Claim()), ElementsAre());
  clock_.Advance(seconds(40) - Duration(1));
  EXPECT_THAT(Ids(Claim()), ElementsAre());
  Reopen();
  clock_.Advance(Duration(1));
  const Claimed again = ClaimOne();
  EXPECT_EQ(again.run.id, accepted.id) << "and not the one behind it";
  EXPECT_EQ(again.run.tries, 2);
}

TEST_P(QueueTest, AfterAStartEveryLeaseIsExpired) {
  Accept({MakeReceipt("a"), MakeReceipt("b"), MakeReceipt("c")});
  Claim(2);
  Reopen();
  EXPECT_EQ(store_->ExpireAllLeases(Now()), 2);
  EXPECT_EQ(store_->ExpiredLeases(Now(), 10)->size(), 2U);
  EXPECT_EQ(store_->ExpiredLeases(Now(), 1)->size(), 1U);
  EXPECT_THAT(Ids(Claim()), ElementsAre(3));
}

TEST_P(QueueTest, DamagedBytesAreClaimedAsCorruptAndNeverShown) {
  options_.hot_bytes = 0;
  Reopen();
  Receipt receipt = MakeReceipt("evt_1", "sub_1");
  receipt.body = "body of the damaged one";
  Accept(receipt);
  Accept(MakeReceipt("evt_2"));
  place_->DamageBody("damaged one");
  const std::vector<Claimed> claimed = Claim();
  ASSERT_EQ(claimed.size(), 2U);
  EXPECT_TRUE(claimed[0].corrupt);
  EXPECT_EQ(claimed[0].receipt->body, "");
  EXPECT_EQ(claimed[0].receipt->key, "evt_1");
  EXPECT_EQ(claimed[0].receipt->subject, "sub_1");
  EXPECT_FALSE(claimed[1].corrupt);
  EXPECT_EQ(claimed[1].receipt->body, R"({"id":"evt_2"})");
  EXPECT_EQ(store_->Payload(1).error().kind, ErrorKind::corrupt);
  EXPECT_TRUE(store_->Show(1)) << "the letter itself can be seen";
}

TEST_P(QueueTest, RingsWhenThereIsSomethingToClaim) {
  std::atomic<int> rung{0};
  store_->OnWork([&rung] { ++rung; });
  Accept(MakeReceipt("a", "sub_1"));
  EXPECT_GT(rung.load(), 0);
  const Claimed claimed = ClaimOne();
  rung = 0;
  const LeaseRef lease{claimed.run.id, claimed.run.token};
  ASSERT_TRUE(store_->HandBack(std::span(&lease, 1), Now()));
  EXPECT_GT(rung.load(), 0);
}

TEST_P(QueueTest, AReplayHasAFullBudgetAndItsTriesAreNotLiveAttempts) {
  const Accepted accepted = Accept(MakeReceipt("evt_1"));
  Apply(Ended(ClaimOne(), State::waiting, Now()));
  clock_.Advance(seconds(5));
  Apply(Ended(ClaimOne(), State::dead, Now()));
  const Actor actor{"ada", "operator", "fixed"};
  const TriageAct replay{.id = accepted.id, .act = Act::replay};
  for (int round = 1; round <= 2; ++round) {
    SCOPED_TRACE(round);
    const auto letters = store_->Triage(std::span(&replay, 1), actor, Now());
    ASSERT_TRUE(letters && letters->at(0)) << letters->at(0).error().message;
    const Claimed claimed = ClaimOne();
    EXPECT_TRUE(claimed.run.replaying);
    EXPECT_NE(claimed.run.replay_id, 0);
    EXPECT_EQ(claimed.run.tries, 1);
    EXPECT_EQ(claimed.run.attempt, 2 + round);
    EXPECT_EQ(claimed.run.replays_failed, round - 1);
    Apply(Ended(claimed, round == 1 ? State::dead : State::replayed, Now()));
    const Letter letter = Get(accepted.id);
    EXPECT_EQ(letter.attempts, 2);
    EXPECT_EQ(letter.replays_failed, 1);
    EXPECT_EQ(letter.replays, round);
    const Result<ReplayProgress> progress = store_->Get(claimed.run.replay_id);
    ASSERT_TRUE(progress) << progress.error().message;
    EXPECT_EQ(progress->state, "done");
    EXPECT_EQ(progress->dead_again, round == 1 ? 1 : 0);
    EXPECT_EQ(progress->committed, round == 1 ? 0 : 1);
  }
  EXPECT_EQ(Get(accepted.id).state, State::replayed);
  EXPECT_EQ(store_->Triage(std::span(&replay, 1), actor, Now())->at(0).error().code, "already_replayed");
}

}  // namespace
}  // namespace dlo::store::contract
