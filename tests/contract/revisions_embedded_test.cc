// A damaged revision is never sent, and there is a way out of it.
#include "contract/embedded_place.h"
#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class EmbeddedRevisions : public LetterTest {
 protected:
  void Damage() {
    store_.reset();
    dynamic_cast<EmbeddedPlace&>(*place_).Execute(
        "DROP TRIGGER revisions_no_update; UPDATE revisions SET body = 'damaged' WHERE body NOT NULL");
    Open();
  }
};

TEST_P(EmbeddedRevisions, ADamagedOneIsClaimedAsCorruptAndCanBeEnteredAgain) {
  const EventId id = Dead("evt_1");
  OrThrow(store_->Revise({.id = id, .body = "corrected", .after = {}}, actor_, Now()));
  Damage();
  EXPECT_EQ(store_->RevisionPayload(id, 1).error().kind, ErrorKind::corrupt);
  OrThrow(Do(id, Act::replay));
  const Claimed claimed = ClaimOne();
  EXPECT_TRUE(claimed.corrupt);
  EXPECT_EQ(claimed.receipt->body, "");
  Fail(claimed, FailureClass::corrupt);
  EXPECT_EQ(Do(id, Act::replay).error().code, "corrupt");
  EXPECT_EQ(OrThrow(store_->Payload(id)), MakeReceipt("evt_1").body);
  // Its original is whole, so withdrawing the damaged one makes it a letter like others.
  OrThrow(store_->Revise({.id = id, .body = std::nullopt, .after = {}}, actor_, Now()));
  EXPECT_EQ(Get(id).failure_class, FailureClass::permanent);
  OrThrow(Do(id, Act::replay));
  EXPECT_EQ(ClaimOne().receipt->body, MakeReceipt("evt_1").body);
}

TEST_P(EmbeddedRevisions, OfADamagedOriginalNothingIsSent) {
  const EventId id = Accept(MakeReceipt("evt_damaged")).id;
  Fail(ClaimOne(), FailureClass::corrupt);
  place_->DamageBody("evt_damaged");
  EXPECT_EQ(store_->Payload(id).error().kind, ErrorKind::corrupt);
  EXPECT_EQ(store_->Revise({.id = id, .body = "x", .after = {}}, actor_, Now()).error().code, "corrupt");
}

INSTANTIATE_TEST_SUITE_P(Each, EmbeddedRevisions,
                         testing::Values(StoreFactory{"Embedded", [] { return std::make_unique<EmbeddedPlace>(); }}),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace dlo::store::contract
