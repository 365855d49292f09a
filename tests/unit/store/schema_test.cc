#include "store/embedded/schema.h"

#include <gtest/gtest.h>

#include "model/law.h"
#include "store/embedded/access.h"
#include "store/embedded/index_intake.h"

namespace dlo::store {
namespace {

std::unique_ptr<Db> Migrated() {
  auto db = OrThrow(Db::Open(":memory:", Db::Mode::writer));
  OrThrow(Migrate(*db, Time{}));
  return db;
}

TEST(SchemaTest, MigratesOnceAndAgainWithoutChange) {
  const auto db = Migrated();
  ASSERT_TRUE(db->Exec("UPDATE meta SET value = 7 WHERE name = 'journal_seq'"));
  ASSERT_TRUE(Migrate(*db, Time{}));
  EXPECT_EQ(OrThrow(ReadMark(*db)).seq, 7);
  EXPECT_EQ(OrThrow(ReadMark(*db)).segment, 1);
}

TEST(SchemaTest, AnEmptyIndexStandsAtTheBeginning) {
  const auto db = Migrated();
  const Mark mark = OrThrow(ReadMark(*db));
  EXPECT_EQ(mark.segment, 1);
  EXPECT_EQ(mark.offset, 0);
  EXPECT_EQ(mark.seq, 0);
}

/// One event row with what the checks look at.
std::string Row(int id, int state, int failure_class, const char* due, const char* lease, const char* finished,
                const char* lane = "NULL", int behind = 0) {
  return "INSERT INTO events (id, source, received_at, state, class, due_at, lease_until, finished_at, lane, behind, "
         "letter) "
         "VALUES (" +
         std::to_string(id) + ", 1, 0, " + std::to_string(state) + ", " + std::to_string(failure_class) + ", " + due +
         ", " + lease + ", " + finished + ", " + lane + ", " + std::to_string(behind) + ", " +
         (state == 3 || state == 4 ? std::to_string(state) : "NULL") + ")";
}

TEST(SchemaTest, TheChecksRepeatTheLaw) {
  struct Case {
    const char* what;
    std::string sql;
    bool allowed;
  };
  const Case cases[] = {
      {"waiting with a due time", Row(1, 0, 0, "5", "NULL", "NULL"), true},
      {"waiting without", Row(1, 0, 0, "NULL", "NULL", "NULL"), false},
      {"waiting behind in its lane", Row(1, 0, 0, "5", "NULL", "NULL", "9", 1), true},
      {"behind without a lane", Row(1, 0, 0, "5", "NULL", "NULL", "NULL", 1), false},
      {"running with a lease", Row(1, 1, 0, "NULL", "5", "NULL"), true},
      {"running without", Row(1, 1, 0, "NULL", "NULL", "NULL"), false},
      {"running and behind", Row(1, 1, 0, "NULL", "5", "NULL", "9", 1), false},
      {"succeeded and finished", Row(1, 2, 0, "NULL", "NULL", "5"), true},
      {"succeeded and not finished", Row(1, 2, 0, "NULL", "NULL", "NULL"), false},
      {"succeeded in a lane", Row(1, 2, 0, "NULL", "NULL", "5", "9"), false},
      {"dead with a class", Row(1, 3, 2, "NULL", "NULL", "NULL"), true},
      {"dead without", Row(1, 3, 0, "NULL", "NULL", "NULL"), false},
      {"dead and due", Row(1, 3, 2, "5", "NULL", "NULL"), false},
      {"held without a class", Row(1, 4, 0, "NULL", "NULL", "NULL"), false},
      {"replayed, with the class it was dead of", Row(1, 5, 2, "NULL", "NULL", "5"), true},
      {"a state that does not exist", Row(1, 7, 0, "NULL", "NULL", "NULL"), false},
      {"a class that does not exist", Row(1, 3, 8, "NULL", "NULL", "NULL"), false},
  };
  for (const Case& one : cases) {
    const auto db = Migrated();
    EXPECT_EQ(db->Exec(one.sql).has_value(), one.allowed) << one.what;
  }
}

TEST(SchemaTest, TheAuditLogCannotBeChanged) {
  const auto db = Migrated();
  ASSERT_TRUE(WriteAudit(*db, {.name = "a"}, Time{}, "x", 0, "{}"));
  EXPECT_FALSE(
      db->Exec("INSERT INTO audit (at, actor, role, action, reason, details) VALUES (0, 'a', 'admin', 'x', '', '')"))
      << "a record outside of the chain";
  EXPECT_FALSE(db->Exec("UPDATE audit SET actor = 'b'"));
  EXPECT_FALSE(db->Exec("DELETE FROM audit"));
}

}  // namespace
}  // namespace dlo::store
