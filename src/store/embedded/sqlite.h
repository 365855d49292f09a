// A thin, exact wrapper of SQLite: statements prepared once and bound by position, errors as Results. No SQL text is
// built from outside data.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "dlo/result.h"

namespace dlo::store {

/// A prepared statement, borrowed from its Db. Parameters are numbered from 1, columns from 0. A failure of bind or
/// step is kept and returned by the Step that meets it.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* handle, bool owned = false) : handle_(handle), owned_(owned) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement(Statement&& other) noexcept
      : handle_(std::exchange(other.handle_, nullptr)), owned_(other.owned_), bind_error_(other.bind_error_) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();  // resets, so that the next user finds it clean; finalises one of PrepareOnce

  Statement& Bind(int index, std::int64_t value);
  Statement& Bind(int index, int value) { return Bind(index, static_cast<std::int64_t>(value)); }
  Statement& Bind(int index, bool value) { return Bind(index, static_cast<std::int64_t>(value)); }
  Statement& Bind(int index, const char* text) { return Bind(index, std::string_view(text)); }
  /// Text and blobs are not copied: they must live until the statement is reset.
  Statement& Bind(int index, std::string_view text);
  Statement& BindBlob(int index, std::string_view bytes);
  Statement& BindNull(int index);
  template <typename T>
  Statement& Bind(int index, const std::optional<T>& value) {
    return value ? Bind(index, *value) : BindNull(index);
  }

  /// True while there is a row.
  Result<bool> Step();
  /// Steps to the end, ignores rows, resets for the next binding.
  Result<void> Run();
  void Reset();

  [[nodiscard]] bool IsNull(int column) const;
  [[nodiscard]] std::int64_t Int(int column) const;
  [[nodiscard]] std::string_view Text(int column) const;  // valid until the next Step; also for blobs
  [[nodiscard]] std::string String(int column) const { return std::string(Text(column)); }
  [[nodiscard]] std::optional<std::int64_t> OptInt(int column) const;
  [[nodiscard]] sqlite3_stmt* handle() { return handle_; }

 private:
  sqlite3_stmt* handle_;
  bool owned_ = false;
  int bind_error_ = 0;
};

/// One connection, one thread at a time.
class Db {
 public:
  enum class Mode : unsigned char { writer, reader };
  /// writer: creates the file, WAL, synchronous NORMAL, 4 KiB pages, automatic checkpoints off, no mmap, foreign keys
  /// off. reader: read-only, query_only. vfs: empty for SQLite's own.
  static Result<std::unique_ptr<Db>> Open(const std::string& path, Mode mode, const std::string& vfs = {});
  ~Db();
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  /// `sql` must be a literal or live as long as the Db: its place is the cache key. Aborts on a syntax error, which is
  /// a programmer's error, and when the same statement is still on a row. Use PrepareOnce for built text. A failure
  /// that is no programmer's error (I/O, memory) is returned by Step.
  Statement Prepare(std::string_view sql);
  Result<Statement> PrepareOnce(const std::string& sql);  // not cached
  Result<void> Exec(const std::string& sql);
  [[nodiscard]] std::int64_t Changes() const;
  [[nodiscard]] sqlite3* handle() { return handle_; }

 private:
  explicit Db(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::unordered_map<const char*, sqlite3_stmt*> cache_;
};

/// What a failed call on `db` means: unavailable "disk_full", "io" or "busy"; corrupt "database_corrupt" or
/// "constraint".
[[nodiscard]] Error SqliteError(sqlite3* db, int code);

}  // namespace dlo::store
