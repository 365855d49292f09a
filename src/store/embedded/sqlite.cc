#include "store/embedded/sqlite.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/log.h"

namespace dlo::store {
namespace {

[[noreturn]] void Abort(std::string_view what, std::string_view sql) {
  log::Error("sqlite_misuse", {{"what", what}, {"sql", sql}});
  std::abort();
}

constexpr char kWriterSettings[] =
    "PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA wal_autocheckpoint = 0;"
    "PRAGMA mmap_size = 0; PRAGMA foreign_keys = OFF; PRAGMA cache_size = -32768; PRAGMA temp_store = MEMORY;"
    "PRAGMA trusted_schema = OFF;";
constexpr char kReaderSettings[] =
    "PRAGMA query_only = ON; PRAGMA mmap_size = 0; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY;"
    "PRAGMA trusted_schema = OFF;";

/// A reader waits this long at most for the short locks of recovery and of a restart of the WAL.
constexpr int kBusyMilliseconds = 5'000;

}  // namespace

Error SqliteError(sqlite3* db, int code) {
  const std::string text =
      fmt::format("{} (SQLite {})", db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(code), code);
  switch (code & 0xff) {
    case SQLITE_FULL:
      return {ErrorKind::unavailable, "disk_full", "the disk of the database is full: free some space; " + text};
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return {ErrorKind::unavailable, "busy", "the database is in use: try again; " + text};
    case SQLITE_CONSTRAINT:
      // Never a refusal of what was asked: those are found before a write.
      return {ErrorKind::corrupt, "constraint", "a rule of the database forbids this: " + text};
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return {
          ErrorKind::corrupt, "database_corrupt",
          "the database is damaged: stop, keep a copy, and move it away to have it rebuilt from the journal; " + text};
    default:
      return {ErrorKind::unavailable, "io", "the database cannot be read or written: " + text};
  }
}

Statement::~Statement() {
  if (handle_ == nullptr) return;
  if (owned_) {
    sqlite3_finalize(handle_);
    return;
  }
  Reset();
}

void Statement::Reset() {
  if (handle_ == nullptr) return;
  sqlite3_reset(handle_);
  sqlite3_clear_bindings(handle_);
  bind_error_ = SQLITE_OK;
}

Statement& Statement::Bind(int index, std::int64_t value) {
  if (const int code = sqlite3_bind_int64(handle_, index, value); code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::Bind(int index, std::string_view text) {
  // A null pointer would bind NULL.
  const char* data = text.data() != nullptr ? text.data() : "";
  const int code = sqlite3_bind_text64(handle_, index, data, text.size(), SQLITE_STATIC, SQLITE_UTF8);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::BindBlob(int index, std::string_view bytes) {
  const char* data = bytes.data() != nullptr ? bytes.data() : "";
  const int code = sqlite3_bind_blob64(handle_, index, data, bytes.size(), SQLITE_STATIC);
  if (code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Statement& Statement::BindNull(int index) {
  if (const int code = sqlite3_bind_null(handle_, index); code != SQLITE_OK) bind_error_ = code;
  return *this;
}

Result<bool> Statement::Step() {
  if (handle_ == nullptr) return Fail(ErrorKind::unavailable, "io", "the database could not prepare a statement");
  if (bind_error_ == SQLITE_RANGE) Abort("no such parameter", sqlite3_sql(handle_));
  if (bind_error_ != SQLITE_OK) return std::unexpected(SqliteError(nullptr, bind_error_));
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  return std::unexpected(SqliteError(sqlite3_db_handle(handle_), code));
}

Result<void> Statement::Run() {
  for (;;) {
    Result<bool> row = Step();
    if (row && *row) continue;
    Reset();
    if (!row) return std::unexpected(std::move(row.error()));
    return {};
  }
}

bool Statement::IsNull(int column) const {
  return sqlite3_column_type(handle_, column) == SQLITE_NULL;
}

std::int64_t Statement::Int(int column) const {
  return sqlite3_column_int64(handle_, column);
}

std::string_view Statement::Text(int column) const {
  const auto* data = static_cast<const char*>(sqlite3_column_blob(handle_, column));
  return data == nullptr ? std::string_view() : std::string_view(data, sqlite3_column_bytes(handle_, column));
}

std::optional<std::int64_t> Statement::OptInt(int column) const {
  if (IsNull(column)) return std::nullopt;
  return Int(column);
}

Result<std::unique_ptr<Db>> Db::Open(const std::string& path, Mode mode, const std::string& vfs) {
  const int flags = mode == Mode::writer ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY;
  // Statistics of memory that nobody reads, under a lock of the whole process.
  [[maybe_unused]] static const int configured = sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &handle, flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE,
                                   vfs.empty() ? nullptr : vfs.c_str());
  std::unique_ptr<Db> db(new Db(handle));
  if (code != SQLITE_OK) {
    Error error = SqliteError(handle, code);
    error.message = path + ": " + error.message;
    return std::unexpected(std::move(error));
  }
  sqlite3_busy_timeout(handle, kBusyMilliseconds);
  if (Result<void> set = db->Exec(mode == Mode::writer ? kWriterSettings : kReaderSettings); !set) {
    set.error().message = path + ": " + set.error().message;
    return std::unexpected(std::move(set.error()));
  }
  return db;
}

Db::~Db() {
  for (const auto& [place, statement] : cache_) sqlite3_finalize(statement);
  sqlite3_close_v2(handle_);
}

Statement Db::Prepare(std::string_view sql) {
  sqlite3_stmt*& cached = cache_[sql.data()];
  if (cached != nullptr) {
    // The place is the key since hashing the text costs as much as a small query; the text guards against a place that
    // was used again.
    if (sql != sqlite3_sql(cached)) {
      sqlite3_finalize(std::exchange(cached, nullptr));
    } else if (sqlite3_stmt_busy(cached) != 0) {
      Abort("statement is still in use", sql);
    } else {
      return Statement(cached);
    }
  }
  const int code = sqlite3_prepare_v3(handle_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                                      &cached, nullptr);
  if (code == SQLITE_ERROR) Abort(sqlite3_errmsg(handle_), sql);
  return Statement(cached);
}

Result<Statement> Db::PrepareOnce(const std::string& sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(handle_, sql.c_str(), static_cast<int>(sql.size()), &statement, nullptr);
  if (code != SQLITE_OK) return std::unexpected(SqliteError(handle_, code));
  return Statement(statement, true);
}

Result<void> Db::Exec(const std::string& sql) {
  const int code = sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return std::unexpected(SqliteError(handle_, code));
  return {};
}

std::int64_t Db::Changes() const {
  return sqlite3_changes64(handle_);
}

}  // namespace dlo::store
