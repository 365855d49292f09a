// Reading letters from the index. No function here reads a body; each works on a reader or, inside a transaction, on
// the writer. Errors of the database come back as they are; the others are named with the function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/letters.h"
#include "dlo/result.h"
#include "store/embedded/journal.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// While it lives, every read of the connection sees one moment. Does nothing inside a transaction.
class Snapshot {
 public:
  explicit Snapshot(Db& db);
  ~Snapshot();
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;

 private:
  Db& db_;
  bool began_ = false;
};

inline constexpr int kMaxPage = 500;
inline constexpr int kMaxGroups = 1'000;

/// None of these sets events_behind, which only the lanes know. Newest receipt first, after `cursor`. Error invalid:
/// "bad_cursor", "bad_limit" or a filter that cannot be read.
Result<Page> ListLetters(Db& db, const Filter& filter, int limit, const std::string& cursor);
/// Exact. A filter of states, classes and sources alone is answered from the kept counts.
Result<std::int64_t> CountLetters(Db& db, const Filter& filter);
/// Largest first, at most kMaxGroups. Error invalid, "bad_group", for any other `by`.
Result<std::vector<Group>> GroupLetters(Db& db, const Filter& filter, const std::string& by);

/// Any event, in whatever state. Error not_found.
Result<Letter> ReadLetter(Db& db, EventId id);
/// `receipt` gives verdict and headers, as read from the journal; nullptr leaves them empty (its bytes are corrupt: the
/// letter must be seen all the same). Error not_found.
Result<LetterDetail> ShowLetter(Db& db, EventId id, const Receipt* receipt);
/// Newest first; empty for an event that was never tried. Error not_found for an unknown event.
Result<std::vector<Attempt>> ReadAttempts(Db& db, EventId id);
/// Where the receipt of an event is. Error not_found.
Result<Place> PlaceOf(Db& db, EventId id);

}  // namespace dlo::store
