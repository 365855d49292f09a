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

#include "dlo/result.h"

namespace dlo::store {

/// A prepared statement, borrowed from its Db. Parameters are numbered from 1, columns from 0. A failure of bind or step
/// is kept and returned by the Step that meets it.
class Statement {
 public:
  explicit Statement(sqlite3_stmt* handle) : handle_(handle) {}
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;
  Statement(Statement&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Statement& operator=(Statement&&) = delete;
  ~Statement();  // resets, so that the next user finds it clean

  Statement& Bind(int index, std::int64_t value);
  Statement& Bind(int index, int value) { return Bind(index, static_cast<std::int64_t>(value)); }
  Statement& Bind(int index, bool value) { return Bind(index, static_cast<std::int64_t>(value)); }
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
  /// Steps once, expects no row, resets for the next binding.
  Result<void> Run();
  void Reset();

  [[nodiscard]] bool IsNull(int column) const;
  [[nodiscard]] std::int64_t Int(int column) const;
  [[nodiscard]] std::string_view Text(int column) const;  // valid until the next Step; also for blobs
  [[nodiscard]] std::string String(int column) const { return std::string(Text(column)); }
  [[nodiscard]] std::optional<std::int64_t> OptInt(int column) const;

 private:
  sqlite3_stmt* handle_;
};

/// One connection, one thread at a time.
class Db {
 public:
  enum class Mode : unsigned char { writer, reader };
  /// writer: creates the file, WAL, synchronous NORMAL, 4 KiB pages, automatic checkpoints off, no mmap, foreign keys off.
  /// reader: read-only, query_only.
  static Result<std::unique_ptr<Db>> Open(const std::string& path, Mode mode);
  ~Db();
  Db(const Db&) = delete;
  Db& operator=(const Db&) = delete;

  /// `sql` must be a literal or live as long as the Db: its text is the cache key. Aborts on a syntax error, which is a
  /// programmer's error; Use PrepareOnce for built text.
  Statement Prepare(std::string_view sql);
  Result<Statement> PrepareOnce(const std::string& sql);  // not cached; finalised with the Db or by the cache's end
  Result<void> Exec(const std::string& sql);
  [[nodiscard]] std::int64_t Changes() const;
  [[nodiscard]] sqlite3* handle() { return handle_; }

 private:
  explicit Db(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
  std::unordered_map<std::string, sqlite3_stmt*> cache_;
};

}  // namespace dlo::store
