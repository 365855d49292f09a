#include "store/embedded/key_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace dlo::store {
namespace {

constexpr std::size_t kMostInMemory = 1'000'000;
constexpr std::int64_t kFilterRoom = 1 << 20;

Result<std::int64_t> ReadThrough(Db& db) {
  Statement meta = db.Prepare("SELECT value FROM meta WHERE name = 'keys_through'");
  const Result<bool> row = meta.Step();
  if (!row) return std::unexpected(row.error());
  return *row ? meta.Int(0) : 0;
}

constexpr const char* kRecent = "SELECT key_digest, key_ordinal, id FROM receipts WHERE id > ?1 ORDER BY id";

}  // namespace

Result<void> KeyIndex::Load(Db& db) {
  if (loaded_) return {};
  recent_.clear();
  moving_.clear();
  moved_ = 0;
  const Result<std::int64_t> through = ReadThrough(db);
  if (!through) return std::unexpected(through.error());
  through_ = newest_ = *through;
  Statement rows = db.Prepare(kRecent);
  rows.Bind(1, through_);
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    newest_ = rows.Int(2);
    recent_.emplace(rows.Int(0), Entry{rows.Int(1), newest_});
  }
  loaded_ = true;
  return {};
}

Result<std::vector<KeyIndex::Entry>> KeyIndex::Find(Db& db, std::int64_t digest) const {
  std::vector<Entry> found;
  Statement rows = db.Prepare("SELECT key_ordinal, event_id FROM event_keys WHERE key_digest = ?1");
  rows.Bind(1, digest);
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    found.push_back({rows.Int(0), rows.Int(1)});
  }
  const auto first = moving_.begin() + static_cast<std::ptrdiff_t>(moved_);
  for (auto row = std::ranges::lower_bound(first, moving_.end(), digest, {}, &Row::digest);
       row != moving_.end() && row->digest == digest; ++row) {
    found.push_back(row->entry);
  }
  const auto [begin, end] = recent_.equal_range(digest);
  for (auto recent = begin; recent != end; ++recent) found.push_back(recent->second);
  std::ranges::sort(found, {}, &Entry::ordinal);
  // A move that a crash cut short left rows in the table that are read into memory again.
  const auto repeated = std::ranges::unique(found, {}, &Entry::ordinal);
  found.erase(repeated.begin(), repeated.end());
  return found;
}

void KeyIndex::Add(std::int64_t digest, Entry entry) {
  newest_ = entry.id;
  recent_.emplace(digest, entry);
}

void KeyIndex::BeginMove() {
  moving_.reserve(recent_.size());
  for (const auto& [digest, entry] : recent_) moving_.push_back({digest, entry});
  std::ranges::sort(moving_, {}, [](const Row& row) { return std::tuple(row.digest, row.entry.ordinal); });
  recent_.clear();
  moved_ = 0;
  moving_through_ = newest_;
}

std::size_t KeyIndex::Enough() const {
  return std::max(move_at_, std::min(static_cast<std::size_t>(newest_) / 16, kMostInMemory));
}

Result<void> KeyIndex::Move(Db& db, std::size_t receipts) {
  if (!MoveDue()) return {};
  if (moving_.empty()) BeginMove();
  // Twice as fast as new ones come.
  const std::size_t until = std::min(moving_.size(), moved_ + 2 * receipts);
  for (; moved_ < until; ++moved_) {
    const Row& row = moving_[moved_];
    Result<void> done = db.Prepare(
                              "INSERT INTO event_keys (key_digest, key_ordinal, event_id) VALUES (?1, ?2, ?3) "
                              "ON CONFLICT (key_digest, key_ordinal) DO UPDATE SET event_id = event_id "
                              "WHERE event_id = excluded.event_id")
                            .Bind(1, row.digest)
                            .Bind(2, row.entry.ordinal)
                            .Bind(3, row.entry.id)
                            .Run();
    if (!done) return done;
    if (db.Changes() != 1) {
      return Fail(
          ErrorKind::corrupt, "constraint",
          fmt::format("the database is damaged: event {} and an earlier one have the same key. Stop, keep a copy, and "
                      "move it away to have it rebuilt from the journal",
                      row.entry.id));
    }
  }
  if (moved_ < moving_.size()) return {};
  moving_ = {};
  moved_ = 0;
  through_ = moving_through_;
  return db.Prepare("UPDATE meta SET value = ?1 WHERE name = 'keys_through'").Bind(1, through_).Run();
}

Result<KeyFilter> LoadKeyFilter(Db& db) {
  std::int64_t events = 0;
  {
    Statement count =
        db.Prepare("SELECT (SELECT count(*) FROM events) + (SELECT value FROM meta WHERE name = 'pruned')");
    const Result<bool> row = count.Step();
    if (!row) return std::unexpected(row.error());
    events = count.Int(0);
  }
  KeyFilter filter(std::max(kFilterRoom, 2 * events));
  const Result<std::int64_t> through = ReadThrough(db);
  if (!through) return std::unexpected(through.error());
  for (const char* sql : {"SELECT key_digest FROM event_keys WHERE ?1 = ?1", kRecent}) {
    Statement rows = db.Prepare(sql);
    rows.Bind(1, *through);
    for (;;) {
      const Result<bool> more = rows.Step();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      filter.AddAndTest(rows.Int(0));
    }
  }
  return filter;
}

}  // namespace dlo::store
