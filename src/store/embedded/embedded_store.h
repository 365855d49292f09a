// The default store: a journal of receipts and a SQLite index of states, one process per store.
//
// Threads: the journal thread appends and syncs what has gathered, then answers the surely new; the index thread owns
// the only connection that writes or checkpoints, takes the receipts in, decides duplicates and conflicts by the unique
// key, and runs every state write. Readers use a small pool of read-only connections.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/metrics.h"
#include "dlo/config.h"
#include "dlo/result.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/files.h"
#include "store/store.h"

namespace dlo::store {

struct EmbeddedOptions {
  std::string database;  // path of office.db's role: "data/dlo.db"; the journal is "<folder of it>/journal"
  std::int64_t segment_bytes = std::int64_t{64} << 20;
  std::size_t hot_bytes = std::size_t{32} << 20;
  /// Are two different bodies of one key the same event (fields that a sender changes per delivery)? Asked on the index
  /// thread for suspects only. Unset: never.
  std::function<bool(const std::string& source, std::string_view first, std::string_view second)> same_event;
  /// Followers of a parked event wait (on_park = hold). Unset: never.
  std::function<bool(const std::string& source)> holds_lane;
  /// For tests of digest clashes. Unset: Digest64.
  std::function<std::int64_t(std::string_view)> key_digest;
  /// So many of the newest keys wait in memory before they move to their table (key_index.h).
  std::size_t keys_in_memory = 262'144;
  /// The folder of segments that left the journal. Empty: "archive" beside the database.
  std::string archive;
  /// The SQLite VFS under the index. Empty: SQLite's own.
  std::string vfs;
};

/// Where the journal of a database is: the folder "journal" beside it.
[[nodiscard]] std::string JournalFolder(const std::string& database);
/// Where its archive is, unless it is told.
[[nodiscard]] std::string ArchiveFolder(const std::string& database);

/// Recovers first: cuts a torn tail, resumes the index from its mark, rebuilds a lost index from the journal (states
/// are then `waiting` again; logged as a warning before it starts). Errors: conflict "locked" (another process),
/// corrupt, invalid "schema_newer", "schema_changed" (a migration's checksum differs) or "constraint_missing".
Result<std::unique_ptr<Store>> OpenEmbedded(EmbeddedOptions options, Files& files, Clock& clock,
                                            CrashPoints& crash_points, Metrics& metrics);

/// The same store without threads, for simulations: what was accepted waits for StepJournal, what is in the journal for
/// StepIndex; reads and acts run at once on the caller's thread, as they do for one who waits.
class SteppedStore : public Store {
 public:
  /// False: there was nothing to do.
  virtual bool StepJournal() = 0;
  virtual bool StepIndex() = 0;
};
Result<std::unique_ptr<SteppedStore>> OpenStepped(EmbeddedOptions options, Files& files, Clock& clock,
                                                  CrashPoints& crash_points, Metrics& metrics);

}  // namespace dlo::store
