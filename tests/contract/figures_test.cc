#include <map>

#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractFigures : public LetterTest {
 protected:
  static std::map<State, std::int64_t> ByState(const Figures& figures) {
    std::map<State, std::int64_t> by;
    for (const StateCount& c : figures.counts) {
      if (c.count != 0) by[c.state] += c.count;
    }
    return by;
  }
};

TEST_P(ContractFigures, OfAnEmptyStoreAreZero) {
  const Figures f = OrThrow(store_->Read());
  EXPECT_EQ(std::make_tuple(f.receipts, f.indexed, f.duplicates, f.accounting_difference), std::make_tuple(0, 0, 0, 0));
  EXPECT_TRUE(ByState(f).empty());
  EXPECT_GT(f.free_bytes, 0U);
  EXPECT_TRUE(store_->Ready());
}

TEST_P(ContractFigures, FollowEventsThroughTheirStates) {
  const EventId dead = Dead("evt_1", "sub_1");
  const EventId held = Dead("evt_2", "sub_2");
  OrThrow(Do(held, Act::hold));
  Accept(MakeReceipt("evt_3"));
  Succeed(ClaimOne());
  Accept(MakeReceipt("evt_4"));
  (void)ClaimOne();
  Accept(MakeReceipt("evt_5"));
  Accept(MakeReceipt("evt_5"));  // a duplicate is a receipt and no event
  const std::map<State, std::int64_t> expected = {
      {State::dead, 1}, {State::held, 1}, {State::succeeded, 1}, {State::running, 1}, {State::waiting, 1}};
  const Figures kept = OrThrow(store_->Read());
  const Figures counted = OrThrow(store_->Recount());
  EXPECT_EQ(ByState(kept), expected);
  EXPECT_EQ(ByState(counted), expected);
  EXPECT_EQ(std::make_tuple(kept.receipts, kept.indexed, kept.duplicates, kept.accounting_difference),
            std::make_tuple(6, 6, 1, 0));
  EXPECT_EQ(counted.accounting_difference, 0);
  EXPECT_EQ(kept.audit_head, 1);
  ASSERT_EQ(kept.oldest.size(), 1U);
  EXPECT_EQ(kept.oldest[0].id, dead);
  EXPECT_EQ(kept.oldest[0].oldest_unresolved, kStart);
}

TEST_P(ContractFigures, AHeldLetterIsOverdueAfterItsDate) {
  TriageAct hold = Request(Dead("evt_1"), Act::hold);
  hold.hold.until = Now() + std::chrono::seconds(10);
  OrThrow(Do(hold));
  clock_.Advance(std::chrono::seconds(10));
  EXPECT_EQ(OrThrow(store_->Read()).held_overdue, 0);
  clock_.Advance(Duration(1));
  EXPECT_EQ(OrThrow(store_->Read()).held_overdue, 1);
  OrThrow(Do(hold.id, Act::release));
  EXPECT_EQ(OrThrow(store_->Read()).held_overdue, 0);
}

DLO_FOR_EACH_STORE(ContractFigures);

}  // namespace
}  // namespace dlo::store::contract
