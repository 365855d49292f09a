#include "store/embedded/key_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "store/embedded/schema.h"

namespace dlo::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::size_t kMoveAt = 100;

class KeyIndexTest : public ::testing::Test {
 protected:
  KeyIndexTest() : db(OrThrow(Db::Open(":memory:", Db::Mode::writer))) {
    EXPECT_TRUE(Migrate(*db, Time{}));
    EXPECT_TRUE(index.Load(*db));
  }

  /// As Intake does: the row, then its key.
  void Add(std::int64_t digest, std::int64_t ordinal, EventId id) {
    Result<void> done = db->Prepare(
                              "INSERT INTO receipts (id, source, key_digest, key_ordinal, key, kind, subject, account, "
                              "segment, position, length, body_bytes, body_sha256, last_seen_at) "
                              "VALUES (?1, 1, ?2, ?3, '', '', '', '', 1, 0, 0, 0, x'', 0)")
                            .Bind(1, id)
                            .Bind(2, digest)
                            .Bind(3, ordinal)
                            .Run();
    ASSERT_TRUE(done) << done.error().message;
    index.Add(digest, {ordinal, id});
  }
  std::vector<EventId> Find(std::int64_t digest) {
    std::vector<EventId> ids;
    for (const KeyIndex::Entry& entry : OrThrow(index.Find(*db, digest))) ids.push_back(entry.id);
    return ids;
  }
  std::int64_t Number(const char* sql) {
    Statement row = db->Prepare(sql);
    EXPECT_TRUE(OrThrow(row.Step()));
    return row.Int(0);
  }

  std::unique_ptr<Db> db;
  KeyIndex index{kMoveAt};
};

TEST_F(KeyIndexTest, FindsAKeyBeforeWhileAndAfterItMoves) {
  std::mt19937_64 random(7);
  std::map<EventId, std::int64_t> all;
  for (EventId id = 1; id <= 1'000; ++id) {
    all[id] = static_cast<std::int64_t>(random());
    Add(all[id], 0, id);
    if (id % 10 == 0) {
      ASSERT_TRUE(index.Move(*db, 10));
    }
    if (id % 97 != 0) continue;
    for (const auto& [known, digest] : all) ASSERT_THAT(Find(digest), ElementsAre(known)) << "after " << id;
  }
  EXPECT_THAT(Find(42), IsEmpty());
  EXPECT_GE(Number("SELECT count(*) FROM event_keys"), 800) << "most have moved";
}

TEST_F(KeyIndexTest, AMoveIsDueAtItsNumberAndOverdueAtTwiceThat) {
  for (EventId id = 1; id <= static_cast<EventId>(2 * kMoveAt); ++id) {
    EXPECT_EQ(index.MoveDue(), id > static_cast<EventId>(kMoveAt)) << id;
    EXPECT_FALSE(index.MoveOverdue()) << id;
    Add(id * 7, 0, id);
  }
  EXPECT_TRUE(index.MoveOverdue());
  ASSERT_TRUE(index.Move(*db, 1));
  EXPECT_FALSE(index.MoveOverdue());
  EXPECT_TRUE(index.MoveDue()) << "until it is done";
}

TEST_F(KeyIndexTest, ConflictsAndClashesComeInTheOrderOfTheirOrdinals) {
  Add(5, 0, 1);
  Add(5, 1, 2);
  for (EventId id = 3; id <= 120; ++id) Add(1'000 + id, 0, id);
  while (Number("SELECT value FROM meta WHERE name = 'keys_through'") == 0) ASSERT_TRUE(index.Move(*db, 1));
  Add(5, -1, 121);
  EXPECT_THAT(Find(5), ElementsAre(121, 1, 2));
}

TEST_F(KeyIndexTest, ACrashInTheMiddleOfAMoveLosesAndRepeatsNothing) {
  for (EventId id = 1; id <= 150; ++id) Add(id * 7, 0, id);
  ASSERT_TRUE(index.Move(*db, 1));
  const std::int64_t moved = Number("SELECT count(*) FROM event_keys");
  ASSERT_GT(moved, 0);
  ASSERT_LT(moved, 150);
  index = KeyIndex(kMoveAt);  // the next process
  ASSERT_TRUE(index.Load(*db));
  for (EventId id = 1; id <= 150; ++id) ASSERT_THAT(Find(id * 7), ElementsAre(id));
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(index.Move(*db, 50));
  EXPECT_EQ(Number("SELECT count(*) FROM event_keys"), 150);
  EXPECT_EQ(Number("SELECT value FROM meta WHERE name = 'keys_through'"), 150);
}

TEST_F(KeyIndexTest, ARollbackTakesItsKeysBack) {
  Add(1, 0, 1);
  ASSERT_TRUE(db->Exec("BEGIN"));
  for (EventId id = 2; id <= 150; ++id) Add(id, 0, id);
  ASSERT_TRUE(index.Move(*db, 100));
  ASSERT_TRUE(db->Exec("ROLLBACK"));
  index.Forget();
  ASSERT_TRUE(index.Load(*db));
  EXPECT_THAT(Find(1), ElementsAre(1));
  EXPECT_THAT(Find(2), IsEmpty());
  Add(2, 0, 2);
  EXPECT_THAT(Find(2), ElementsAre(2));
}

TEST_F(KeyIndexTest, TwoEventsOfOneKeyAreRefused) {
  Add(9, 0, 1);
  Add(9, 0, 2);  // what Intake never does
  for (EventId id = 3; id <= 120; ++id) Add(1'000 + id, 0, id);
  const Result<void> moved = index.Move(*db, 100);
  ASSERT_FALSE(moved);
  EXPECT_EQ(moved.error().kind, ErrorKind::corrupt);
  EXPECT_EQ(moved.error().code, "constraint");
}

TEST_F(KeyIndexTest, TheFilterKnowsWhatMovedAndWhatDidNot) {
  for (EventId id = 1; id <= 250; ++id) {
    Add(id * 11, 0, id);
    ASSERT_TRUE(index.Move(*db, 1));
  }
  ASSERT_GT(Number("SELECT count(*) FROM event_keys"), 0);
  ASSERT_LT(Number("SELECT count(*) FROM event_keys"), 250);
  KeyFilter filter = OrThrow(LoadKeyFilter(*db));
  for (EventId id = 1; id <= 250; ++id) EXPECT_TRUE(filter.AddAndTest(id * 11)) << id;
}

}  // namespace
}  // namespace dlo::store
