#include "store/embedded/sqlite.h"

#include <gtest/gtest.h>

#include <filesystem>

namespace dlo::store {
namespace {

std::unique_ptr<Db> Memory() {
  auto db = OrThrow(Db::Open(":memory:", Db::Mode::writer));
  OrThrow(db->Exec("CREATE TABLE t (a INTEGER, b TEXT, c BLOB)"));
  return db;
}

TEST(SqliteTest, BindsAndReadsEveryKindOfValue) {
  const auto db = Memory();
  const std::string text("a\0b\xff", 4);
  Statement insert = db->Prepare("INSERT INTO t VALUES (?1, ?2, ?3)");
  ASSERT_TRUE(insert.Bind(1, INT64_MIN).Bind(2, text).BindBlob(3, text).Run());
  ASSERT_TRUE(insert.Bind(1, std::optional<std::int64_t>()).Bind(2, std::string_view()).BindBlob(3, "").Run());
  EXPECT_EQ(db->Changes(), 1);
  Statement rows = db->Prepare("SELECT a, b, c, typeof(c) FROM t ORDER BY rowid");
  ASSERT_EQ(rows.Step(), true);
  EXPECT_EQ(rows.Int(0), INT64_MIN);
  EXPECT_EQ(rows.Text(1), text);
  EXPECT_EQ(rows.Text(2), text);
  EXPECT_EQ(rows.Text(3), "blob");
  ASSERT_EQ(rows.Step(), true);
  EXPECT_EQ(rows.OptInt(0), std::nullopt);
  EXPECT_TRUE(rows.IsNull(0));
  EXPECT_FALSE(rows.IsNull(1)) << "an empty text is not NULL";
  EXPECT_FALSE(rows.IsNull(2));
  EXPECT_EQ(rows.Step(), false);
}

TEST(SqliteTest, AStatementIsCleanForItsNextUser) {
  const auto db = Memory();
  static constexpr char kInsert[] = "INSERT INTO t (a, b) VALUES (?1, ?2)";
  ASSERT_TRUE(db->Prepare(kInsert).Bind(1, 1).Bind(2, "x").Run());
  ASSERT_TRUE(db->Prepare(kInsert).Bind(1, 2).Run());
  Statement rows = db->Prepare("SELECT b FROM t WHERE a = 2");
  ASSERT_EQ(rows.Step(), true);
  EXPECT_TRUE(rows.IsNull(0));
}

TEST(SqliteTest, ABrokenRuleIsAnErrorAndLeavesTheStatementUsable) {
  const auto db = Memory();
  ASSERT_TRUE(db->Exec("CREATE UNIQUE INDEX u ON t (a)"));
  Statement insert = db->Prepare("INSERT INTO t (a) VALUES (?1)");
  ASSERT_TRUE(insert.Bind(1, 1).Run());
  const Result<void> again = insert.Bind(1, 1).Run();
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, "constraint");
  EXPECT_TRUE(insert.Bind(1, 2).Run());
}

TEST(SqliteTest, AReusedPlaceOfTextIsNotTakenForTheOldStatement) {
  const auto db = Memory();
  char sql[] = "SELECT 1";
  {
    Statement one = db->Prepare(sql);
    ASSERT_EQ(one.Step(), true);
    EXPECT_EQ(one.Int(0), 1);
  }
  sql[7] = '2';
  Statement two = db->Prepare(sql);
  ASSERT_EQ(two.Step(), true);
  EXPECT_EQ(two.Int(0), 2);
}

TEST(SqliteTest, BuiltTextThatIsWrongIsAnError) {
  const auto db = Memory();
  EXPECT_FALSE(db->PrepareOnce("SELEC 1"));
  Statement once = OrThrow(db->PrepareOnce("SELECT ?1 + 1"));
  ASSERT_EQ(once.Bind(1, 41).Step(), true);
  EXPECT_EQ(once.Int(0), 42);
}

TEST(SqliteDeathTest, WrongLiteralsAbort) {
  const auto db = Memory();
  EXPECT_DEATH((void)db->Prepare("SELEC 1"), "syntax");
  EXPECT_DEATH((void)db->Prepare("SELECT 1").Bind(2, 1).Step(), "no such parameter");
  static constexpr char kSelect[] = "SELECT 1";
  Statement rows = db->Prepare(kSelect);
  ASSERT_EQ(rows.Step(), true);
  EXPECT_DEATH((void)db->Prepare(kSelect), "still in use");
}

TEST(SqliteTest, AReaderCannotWriteAndAMissingFileIsAnErrorThatNamesIt) {
  const std::string path = testing::TempDir() + "sqlite_test.db";
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path + suffix);
  const Result<std::unique_ptr<Db>> missing = Db::Open(path, Db::Mode::reader);
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find(path), std::string::npos);
  const auto writer = OrThrow(Db::Open(path, Db::Mode::writer));
  ASSERT_TRUE(writer->Exec("CREATE TABLE t (a)"));
  const auto reader = OrThrow(Db::Open(path, Db::Mode::reader));
  EXPECT_FALSE(reader->Exec("INSERT INTO t VALUES (1)"));
}

TEST(SqliteTest, AFullDatabaseSaysSo) {
  const auto db = Memory();
  ASSERT_TRUE(db->Exec("PRAGMA max_page_count = 10"));
  Statement insert = db->Prepare("INSERT INTO t (c) VALUES (zeroblob(100000))");
  const Result<void> full = insert.Run();
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(full.error().code, "disk_full");
}

}  // namespace
}  // namespace dlo::store
