// What every store promises about events that are over: they leave, and are known and readable all the same.
#include "contract/fixture.h"

namespace dlo::store::contract {
namespace {

using std::chrono::days;

const Actor kJane{.name = "jane", .role = "admin", .reason = "case 7"};

class RetentionTest : public StoreTest {
 protected:
  EventId Succeeded(const std::string& key) {
    const EventId id = Accept(MakeReceipt(key)).id;
    Apply(Ended(ClaimOne(), State::succeeded, Now()));
    return id;
  }
  PruneReport ArchiveAll() {
    const RetentionCutoffs cutoffs{
        .succeeded = Now() - days(14), .closed = Now() - days(14), .cold = Now() - days(14), .now = true};
    PruneReport sum;
    for (;;) {
      const ArchiveWork work = OrThrow(store_->ArchiveNext(cutoffs, Now(), {}, Duration(0)));
      sum.succeeded += work.report.succeeded;
      sum.closed += work.report.closed;
      sum.letters += work.report.letters;
      if (!work.worked) return sum;
    }
  }
};

TEST_P(RetentionTest, APrunedEventIsReadableAndItsKeyIsKnown) {
  const EventId id = Succeeded("evt_1");
  const std::string body = OrThrow(store_->Payload(id));
  clock_.Advance(days(400));
  EXPECT_EQ(ArchiveAll().succeeded, 1);
  for (const bool reopened : {false, true}) {
    SCOPED_TRACE(reopened);
    const LetterDetail shown = OrThrow(store_->Show(id));
    EXPECT_TRUE(shown.pruned);
    EXPECT_EQ(shown.letter.state, State::succeeded);
    EXPECT_EQ(shown.letter.key, "evt_1");
    EXPECT_EQ(shown.attempts.size(), 1U);
    EXPECT_FALSE(shown.headers.empty());
    EXPECT_EQ(OrThrow(store_->Payload(id)), body);
    EXPECT_EQ(CountIn(State::succeeded), 0);
    const Accepted again = Accept(MakeReceipt("evt_1"));
    EXPECT_EQ(again.status, AcceptStatus::duplicate);
    EXPECT_EQ(again.id, id);
    EXPECT_EQ(OrThrow(store_->Recount()).accounting_difference, 0);
    Reopen();
  }
}

TEST_P(RetentionTest, NoUnresolvedLetterIsPruned) {
  const EventId id = Accept(MakeReceipt("evt_1")).id;
  Transition dead = Ended(ClaimOne(), State::dead, Now());
  Apply(dead);
  clock_.Advance(days(4'000));
  const PruneReport done = ArchiveAll();
  EXPECT_EQ(done.pruned(), 0);
  EXPECT_EQ(done.letters, 1);
  EXPECT_EQ(Get(id).state, State::dead);
  EXPECT_EQ(OrThrow(store_->Count({})), 1);
  const TriageAct act{.id = id, .act = Act::replay};
  ASSERT_TRUE(OrThrow(store_->Triage(std::span(&act, 1), kJane, Now())).front());
  EXPECT_EQ(ClaimOne().receipt->body, MakeReceipt("evt_1").body) << "replayed from the archive's bytes";
}

TEST_P(RetentionTest, ALegalHoldStopsBothUntilItEnds) {
  Succeeded("evt_1");
  clock_.Advance(days(400));
  Filter filter;
  filter.sources = {"stripe"};
  const LegalHold hold = OrThrow(store_->AddLegalHold(filter, kJane, Now()));
  EXPECT_EQ(ArchiveAll().succeeded, 0);
  Reopen();
  EXPECT_EQ(ArchiveAll().succeeded, 0);
  EXPECT_EQ(store_->EndLegalHold(hold.id, {.name = "jane"}, Now()).error().code, "reason_missing");
  ASSERT_TRUE(store_->EndLegalHold(hold.id, kJane, Now()));
  EXPECT_EQ(store_->EndLegalHold(99, kJane, Now()).error().code, "not_found");
  EXPECT_EQ(ArchiveAll().succeeded, 1);
  EXPECT_EQ(OrThrow(store_->LegalHolds()).size(), 1U);
}

DLO_FOR_EACH_STORE(RetentionTest);

}  // namespace
}  // namespace dlo::store::contract
