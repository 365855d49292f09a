// What is special to the embedded store: two places of truth that can be lost, replaced or damaged one without the
// other.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "contract/embedded_place.h"

namespace dlo::store::contract {
namespace {

using testing::HasSubstr;

class EmbeddedRecoveryTest : public StoreTest {
 protected:
  EmbeddedPlace& Place() { return static_cast<EmbeddedPlace&>(*place_); }
  Error OpenError() {
    store_.reset();
    Result<std::unique_ptr<Store>> store = place_->Open(clock_, options_);
    return store ? Error{ErrorKind::invalid, "opened", ""} : store.error();
  }
};
INSTANTIATE_TEST_SUITE_P(Each, EmbeddedRecoveryTest, testing::ValuesIn(Factories()),
                         [](const testing::TestParamInfo<StoreFactory>& each) { return each.param.name; });

TEST_P(EmbeddedRecoveryTest, ALostIndexIsRebuiltFromTheJournal) {
  Receipt test_event = MakeReceipt("t");
  test_event.disposition = Disposition::test_event;
  Receipt conflict = MakeReceipt("a", "s");
  conflict.body = "other";
  Accept({MakeReceipt("a", "s"), MakeReceipt("b", "s"), MakeReceipt("a", "s"), conflict, test_event});
  Apply(Ended(ClaimOne(), State::succeeded, Now()));
  store_.reset();
  Place().RemoveDatabase();
  Open();
  EXPECT_EQ(Get(1).state, State::waiting) << "states are waiting again";
  EXPECT_EQ(Get(1).deliveries, 2);
  EXPECT_TRUE(Get(2).behind);
  EXPECT_EQ(Get(4).failure_class, FailureClass::conflict);
  EXPECT_EQ(Get(4).conflict_of, 1);
  EXPECT_EQ(Get(5).state, State::resolved);
  EXPECT_EQ(store_->Payload(2), MakeReceipt("b").body);
  EXPECT_EQ(Accept(MakeReceipt("b", "s")).status, AcceptStatus::duplicate);
}

TEST_P(EmbeddedRecoveryTest, AJournalThatEndsBeforeTheIndexIsRefused) {
  Accept(MakeReceipt("a"));
  store_.reset();
  std::filesystem::remove_all(Place().journal());
  const Error error = OpenError();
  EXPECT_EQ(error.kind, ErrorKind::corrupt);
  EXPECT_EQ(error.code, "journal_lost");
  EXPECT_THAT(error.message, HasSubstr("Put the journal's files back"));
}

TEST_P(EmbeddedRecoveryTest, TheIndexOfAnotherStoreIsRefused) {
  Accept(MakeReceipt("a"));
  EmbeddedPlace other;
  store_ = OrThrow(other.Open(clock_, {}));
  Accept(MakeReceipt("z"));
  store_.reset();
  Place().RemoveDatabase();
  std::filesystem::copy_file(other.database(), Place().database());
  EXPECT_EQ(OpenError().code, "index_foreign");
}

TEST_P(EmbeddedRecoveryTest, WhatWasNotMadeByThisVersionIsRefused) {
  struct Row {
    const char* sql;
    const char* code;
  };
  for (const Row& row :
       {Row{"INSERT INTO migrations VALUES (99, 'x', 0)", "schema_newer"},
        Row{"UPDATE migrations SET sha256 = 'x'", "schema_changed"}, Row{"DROP TABLE event_keys", "constraint_missing"},
        Row{"DROP TABLE event_keys; CREATE TABLE event_keys (key_digest, key_ordinal, event_id)", "constraint_missing"},
        Row{"DROP TABLE event_keys; CREATE TABLE event_keys (key_digest, key_ordinal, event_id, PRIMARY KEY "
            "(key_digest, event_id)) WITHOUT ROWID",
            "constraint_missing"},
        Row{"DROP TABLE migrations", "foreign_database"}}) {
    SCOPED_TRACE(row.sql);
    store_.reset();
    place_ = GetParam().make();
    Open();
    Accept(MakeReceipt("a"));
    store_.reset();
    Place().Execute(row.sql);
    const Error error = OpenError();
    EXPECT_EQ(error.kind, ErrorKind::invalid);
    EXPECT_EQ(error.code, row.code);
  }
}

TEST_P(EmbeddedRecoveryTest, AFileThatIsNoDatabaseIsRefusedWithAdvice) {
  Accept(MakeReceipt("a"));
  store_.reset();
  Place().RemoveDatabase();
  std::ofstream(Place().database()) << std::string(8192, 'x');
  const Error error = OpenError();
  EXPECT_EQ(error.kind, ErrorKind::corrupt);
  EXPECT_THAT(error.message, HasSubstr(Place().database()));
  Place().RemoveDatabase();
  Open();
  EXPECT_EQ(Get(1).key, "a") << "the advice works";
}

TEST_P(EmbeddedRecoveryTest, AnIndexThatWasTakenBackIsBroughtUpAgain) {
  Accept(MakeReceipt("a"));
  Accept(MakeReceipt("b"));
  std::unique_ptr<StorePlace> earlier = place_->AsIfKilledNow();
  Accept(MakeReceipt("c"));
  Accept(MakeReceipt("a"));
  store_.reset();
  // A power cut may take back what the index committed last, never the journal.
  auto& old = static_cast<EmbeddedPlace&>(*earlier);
  std::filesystem::remove_all(old.journal());
  std::filesystem::copy(Place().journal(), old.journal(), std::filesystem::copy_options::recursive);
  place_ = std::move(earlier);
  Open();
  ExpectLawful();
  EXPECT_EQ(Get(3).key, "c");
  EXPECT_EQ(Get(1).deliveries, 2);
  EXPECT_EQ(store_->Read()->indexed, 4);
}

TEST_P(EmbeddedRecoveryTest, SegmentsRollAndAllAreRead) {
  Receipt big = MakeReceipt("x");
  for (int i = 0; i < 12; ++i) {
    big.key = "big_" + std::to_string(i);
    big.body = std::string(300'000, static_cast<char>('a' + i));
    Accept(big);
  }
  store_.reset();
  Place().RemoveDatabase();
  Open();
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(store_->Payload(i + 1), std::string(300'000, static_cast<char>('a' + i)));
  }
}

}  // namespace
}  // namespace dlo::store::contract
