#include "store/embedded/figures.h"

#include "store/embedded/access.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

using std::chrono::seconds;

class FiguresTest : public LettersFixture {
 protected:
  Figures Read() { return OrThrow(ReadFigures(*db_, facts_)); }
  Figures Recount() { return OrThrow(RecountFigures(*db_, facts_)); }
  std::int64_t CountOf(const Figures& figures, const std::string& source, State state, FailureClass failure_class) {
    for (const StateCount& c : figures.counts) {
      if (c.source == source && c.state == state && c.failure_class == failure_class) return c.count;
    }
    return 0;
  }
  FigureFacts facts_{.journal_seq = 12, .now = kStart, .free_bytes = 34};
};

TEST_F(FiguresTest, OfAnEmptyStoreAreZero) {
  for (const Figures& f : {Read(), Recount()}) {
    EXPECT_TRUE(f.counts.empty());
    EXPECT_TRUE(f.oldest.empty());
    EXPECT_EQ(std::make_tuple(f.indexed, f.duplicates, f.pruned, f.held_overdue, f.audit_head, f.accounting_difference),
              std::make_tuple(0, 0, 0, 0, 0, 0));
    EXPECT_EQ(f.receipts, 12);
    EXPECT_EQ(f.free_bytes, 34U);
  }
}

TEST_F(FiguresTest, CountBySourceStateAndClass) {
  Add();
  Add();
  Add({.source = "github", .failure_class = FailureClass::exhausted});
  Add({.state = State::waiting});
  OrThrow(WriteAudit(*db_, actor_, kStart, "replay", 1, "{}"));
  for (const Figures& f : {Read(), Recount()}) {
    EXPECT_EQ(CountOf(f, "stripe", State::dead, FailureClass::permanent), 2);
    EXPECT_EQ(CountOf(f, "github", State::dead, FailureClass::exhausted), 1);
    EXPECT_EQ(CountOf(f, "stripe", State::waiting, FailureClass::none), 1);
    EXPECT_EQ(f.indexed, 4);
    EXPECT_EQ(f.audit_head, 1);
    EXPECT_EQ(f.accounting_difference, 0);
  }
}

TEST_F(FiguresTest, TheOldestOfASourceIsTheDeadOneParkedFirst) {
  Add({.parked_at = kStart + seconds(30)});
  Add({.parked_at = kStart + seconds(10)});
  Add({.state = State::held, .parked_at = kStart + seconds(1)});
  Add({.source = "github", .parked_at = kStart + seconds(20)});
  Add({.source = "quiet", .state = State::succeeded});
  const auto oldest = Read().oldest;
  ASSERT_EQ(oldest.size(), 2U);
  EXPECT_EQ(std::make_tuple(oldest[0].source, oldest[0].oldest_unresolved, oldest[0].id),
            std::make_tuple("github", kStart + seconds(20), 4));
  EXPECT_EQ(std::make_tuple(oldest[1].source, oldest[1].oldest_unresolved, oldest[1].id),
            std::make_tuple("stripe", kStart + seconds(10), 2));
}

TEST_F(FiguresTest, AHeldLetterIsOverdueAfterItsDate) {
  const EventId id = Add({.state = State::held});
  const auto set = [&](Time until) {
    OrThrow(db_->Prepare("UPDATE failures SET hold_until = ?2 WHERE event_id = ?1")
                .Bind(1, id)
                .Bind(2, ToMicros(until))
                .Run());
  };
  EXPECT_EQ(Read().held_overdue, 0);
  set(kStart + Duration(1));
  EXPECT_EQ(Read().held_overdue, 0);
  set(kStart);
  EXPECT_EQ(Read().held_overdue, 0);
  set(kStart - Duration(1));
  EXPECT_EQ(Read().held_overdue, 1);
}

TEST_F(FiguresTest, DuplicatesAndPrunedAreInTheAccounts) {
  Add();
  OrThrow(db_->Exec(
      "UPDATE meta SET value = 6 WHERE name = 'journal_seq'; UPDATE meta SET value = 3 WHERE name = 'duplicates'; "
      "UPDATE meta SET value = 2 WHERE name = 'pruned'"));
  EXPECT_EQ(Read().accounting_difference, 0);
  EXPECT_EQ(Recount().accounting_difference, 0);
}

TEST_F(FiguresTest, AnEventWithoutItsReceiptIsSeenByARecount) {
  Add();
  Add();
  OrThrow(db_->Exec("DELETE FROM receipts WHERE id = 1"));
  EXPECT_EQ(Read().accounting_difference, 0);
  EXPECT_EQ(Recount().accounting_difference, 1);
}

TEST_F(FiguresTest, ALostRowIsSeenByARecountAndALostCountByBoth) {
  Add();
  Add({.source = "github"});
  OrThrow(db_->Exec("DELETE FROM events WHERE id = 1; DELETE FROM receipts WHERE id = 1"));
  EXPECT_EQ(Read().accounting_difference, 0);
  EXPECT_EQ(Recount().accounting_difference, 1);
  Add();
  OrThrow(db_->Exec("DELETE FROM counts WHERE n = 1"));
  EXPECT_NE(Read().accounting_difference, 0);
  EXPECT_NE(Recount().accounting_difference, 0);
}

TEST_F(FiguresTest, AnInventedRowIsANegativeDifference) {
  Add();
  Add();
  OrThrow(db_->Exec("UPDATE meta SET value = 1 WHERE name = 'journal_seq'"));
  EXPECT_EQ(Read().accounting_difference, -1);
  EXPECT_EQ(Recount().accounting_difference, -1);
}

TEST_F(FiguresTest, CountsThatDriftedFromTheRowsAreADifferenceThoughTheTotalsAgree) {
  Add();
  OrThrow(db_->Exec("UPDATE counts SET state = 4"));
  EXPECT_EQ(Read().accounting_difference, 0);
  EXPECT_EQ(Recount().accounting_difference, 2);  // one too many here, one too few there
}

}  // namespace
}  // namespace dlo::store
