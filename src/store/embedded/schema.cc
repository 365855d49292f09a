#include "store/embedded/schema.h"

#include <fmt/format.h>

#include <array>
#include <string>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/audit_chain.h"
#include "store/embedded/schema_text.h"

namespace dlo::store {
namespace {

struct UniqueIndex {
  const char* name;
  const char* table;
  const char* columns;
};
constexpr std::array kUniqueIndexes = {
    UniqueIndex{"sqlite_autoindex_event_keys_1", "event_keys", "key_digest,key_ordinal"},
    UniqueIndex{"tokens_live_name", "tokens", "name"},
};

std::string Checksum(const char* text) {
  return HexEncode(Sha256(text));
}

Result<std::int64_t> One(Db& db, const char* sql) {
  Statement statement = db.Prepare(sql);
  const Result<bool> row = statement.Step();
  if (!row) return std::unexpected(row.error());
  return *row ? statement.Int(0) : 0;
}

/// The newest applied migration, after a comparison of all with ours.
Result<std::int64_t> Applied(Db& db) {
  std::int64_t newest = 0;
  Statement rows = db.Prepare("SELECT number, sha256 FROM migrations ORDER BY number");
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) return newest;
    const std::int64_t number = rows.Int(0);
    if (number > static_cast<std::int64_t>(kMigrations.size())) {
      return Fail(ErrorKind::invalid, "schema_newer",
                  fmt::format("the database has schema {}, this program knows {}: start the newer program that made it",
                              number, kMigrations.size()));
    }
    if (number != newest + 1 || rows.Text(1) != Checksum(kMigrations[static_cast<std::size_t>(number - 1)])) {
      return Fail(
          ErrorKind::invalid, "schema_changed",
          fmt::format("migration {} of the database is not the one of this program: start the program that made "
                      "it, or move the database away to have it rebuilt from the journal",
                      number));
    }
    newest = number;
  }
}

Result<void> Apply(Db& db, std::size_t number, Time now) {
  const char* text = kMigrations[number - 1];
  if (Result<void> done = db.Exec("BEGIN IMMEDIATE"); !done) return done;
  Result<void> done = db.Exec(text);
  if (done) {
    const std::string checksum = Checksum(text);
    done = db.Prepare("INSERT INTO migrations (number, sha256, applied_at) VALUES (?1, ?2, ?3)")
               .Bind(1, static_cast<std::int64_t>(number))
               .Bind(2, checksum)
               .Bind(3, ToMicros(now))
               .Run();
  }
  if (done) done = db.Exec("COMMIT");
  if (!done && sqlite3_get_autocommit(db.handle()) == 0) {
    if (Result<void> undone = db.Exec("ROLLBACK"); !undone) done.error().message += "; " + undone.error().message;
  }
  return done;
}

Error Missing(const char* index) {
  return {
      ErrorKind::invalid, "constraint_missing",
      fmt::format("the unique index {} of the database is missing or altered, so that nothing would stop an event "
                  "from being taken twice: restore the database, or move it away to have it rebuilt from the journal",
                  index)};
}

}  // namespace

Result<void> Migrate(Db& db, Time now) {
  const Result<std::int64_t> tables = One(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table'");
  if (!tables) return std::unexpected(tables.error());
  const Result<std::int64_t> ours =
      One(db, "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'migrations'");
  if (!ours) return std::unexpected(ours.error());
  if (*tables != 0 && *ours == 0) {
    return Fail(ErrorKind::invalid, "foreign_database",
                "the database has tables and none of them is ours: name another file in [store] url");
  }
  if (Result<void> set = db.Exec("PRAGMA synchronous = FULL"); !set) return set;
  Result<void> made = db.Exec(
      "CREATE TABLE IF NOT EXISTS migrations "
      "(number INTEGER PRIMARY KEY, sha256 TEXT NOT NULL, applied_at INTEGER NOT NULL)");
  if (!made) return made;
  const Result<std::int64_t> applied = Applied(db);
  if (!applied) return std::unexpected(applied.error());
  for (std::size_t number = static_cast<std::size_t>(*applied) + 1; number <= kMigrations.size(); ++number) {
    if (Result<void> done = Apply(db, number, now); !done) return done;
  }
  Result<void> rows = db.Exec(
      "INSERT OR IGNORE INTO meta (name, value) VALUES ('journal_segment', 1), ('journal_offset', 0), "
      "('journal_seq', 0), ('keys_through', 0), ('duplicates', 0), ('pruned', 0)");
  if (!rows) return rows;
  if (Result<void> started = StartAuditChain(db); !started) return started;
  if (Result<void> set = db.Exec("PRAGMA synchronous = NORMAL"); !set) return set;
  return VerifyConstraints(db);
}

Result<void> VerifyConstraints(Db& db) {
  for (const UniqueIndex& index : kUniqueIndexes) {
    Statement statement = db.Prepare(
        "SELECT (SELECT \"unique\" FROM pragma_index_list(?1) WHERE name = ?2), "
        "(SELECT group_concat(name, ',') FROM (SELECT name FROM pragma_index_info(?2) ORDER BY seqno))");
    const Result<bool> row = statement.Bind(1, index.table).Bind(2, index.name).Step();
    if (!row) return std::unexpected(row.error());
    if (!*row || statement.Int(0) != 1 || statement.Text(1) != index.columns) {
      return std::unexpected(Missing(index.name));
    }
  }
  return {};
}

}  // namespace dlo::store
