// Which events have a key digest. Digests are random, so that a row of an ordinary index would dirty a page of its own
// for each receipt. Here the newest rows stay in memory, where the events table has them in receipt order for a
// restart, and go to the table event_keys sorted and many at a time, so that neighbours share their pages: when the
// index has nothing else to do, or, when too many are in memory, a share of them with each transaction of receipts.
// Index thread only, inside its transaction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "dlo/event.h"
#include "store/embedded/key_filter.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

class KeyIndex {
 public:
  struct Entry {
    std::int64_t ordinal = 0;  // as in events.key_ordinal
    EventId id = 0;
  };
  /// A move is due from so many rows in memory on, or a sixteenth of all when that is more, up to a million.
  explicit KeyIndex(std::size_t move_at) : move_at_(move_at) {}

  /// Before the others in each transaction: reads the newest rows into memory unless they are there.
  Result<void> Load(Db& db);
  /// The events of this digest, lowest ordinal first.
  Result<std::vector<Entry>> Find(Db& db, std::int64_t digest) const;
  /// Of an event whose row was just inserted; the newest of all.
  void Add(std::int64_t digest, Entry entry);
  [[nodiscard]] bool MoveDue() const { return !moving_.empty() || recent_.size() >= Enough(); }
  /// Twice as many as are due are in memory: receipts must bear their share of the move.
  [[nodiscard]] bool MoveOverdue() const { return recent_.size() + moving_.size() - moved_ >= 2 * Enough(); }
  /// Moves a share that belongs to so many receipts, if a move is due. Error corrupt "constraint": two events have one
  /// key and ordinal.
  Result<void> Move(Db& db, std::size_t receipts);
  /// After a rollback: what memory says may not be so; Load reads it anew.
  void Forget() { loaded_ = false; }

 private:
  struct Row {
    std::int64_t digest = 0;
    Entry entry;
  };
  [[nodiscard]] std::size_t Enough() const;
  void BeginMove();

  std::size_t move_at_;
  bool loaded_ = false;
  EventId through_ = 0;  // event_keys has all rows up to this event
  EventId newest_ = 0;
  std::unordered_multimap<std::int64_t, Entry> recent_;
  std::vector<Row> moving_;  // sorted
  std::size_t moved_ = 0;    // of moving_
  EventId moving_through_ = 0;
};

/// Every digest of the index, for the filter that answers "surely new".
Result<KeyFilter> LoadKeyFilter(Db& db);

}  // namespace dlo::store
