// Moves what is over out of the journal and the index. The order of its steps is what makes it safe to die anywhere:
//
//   the states are durable -> data and sidecar are written, synced, read back -> a line of the manifest is durable ->
//   the segment leaves the journal's folder -> rows go, a few at a time -> the mark says that the line is done
//
// Before the line an event is in the journal and the index alone, and what was written is thrown away; from the line on
// it is in the archive as well, and the rest is done by whoever comes next.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "dlo/result.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/files.h"
#include "store/embedded/archive_files.h"
#include "store/embedded/archive_manifest.h"
#include "store/embedded/index_thread.h"
#include "store/embedded/journal.h"
#include "store/embedded/reader_pool.h"
#include "store/embedded/sidecar.h"
#include "store/retention.h"

namespace dlo::store {

class Archiver {
 public:
  struct Deps {
    Files& files;
    Clock& clock;
    CrashPoints& crash_points;
    Journal& journal;
    ArchiveManifest& manifest;
    IndexThread& index;
    ReaderPool& readers;
    /// Journal::Seal, on the appending thread.
    std::function<Result<void>(Time begun_before)> seal;
  };
  explicit Archiver(Deps deps) : deps_(std::move(deps)) {}

  /// See Retention::ArchiveNext.
  Result<ArchiveWork> Next(const RetentionCutoffs& cutoffs, Time now, const GoOn& go_on, Duration wait);
  /// What was looked up about legal holds no longer counts.
  void HoldsChanged() { holds_version_.fetch_add(1); }

 private:
  /// Where the rows of a segment stand, looked at once.
  struct Stand {
    std::int64_t rows = 0, letters = 0;
    EventId first_open = 0, first_letter = 0;  // 0: none
    std::optional<std::int64_t> oldest_succeeded, newest_succeeded, oldest_closed, newest_closed, oldest_parked,
        newest_parked;
  };
  struct Held {
    std::int64_t version = 0;
    Time until{};
  };
  struct Round {
    const RetentionCutoffs& cutoffs;
    Time now;
    Pacer pacer;
    ArchiveWork work;
    std::int64_t checked_line = 0;     // whose files were read back
    std::vector<SidecarEvent> events;  // of the sidecar that was written or checked last, as read from the disk
  };

  Result<void> NextLocked(Round& round);
  Result<void> FinishMoves(Round& round);
  Result<bool> PruneNextLine(Round& round);
  Result<bool> CompressNext(Round& round);
  Result<bool> ArchiveNextSegment(Round& round);

  Result<bool> MayGo(Round& round, std::int64_t number, const SealedSegment& sealed);
  Result<Stand> StandOf(Round& round, std::int64_t number, const SealedSegment& sealed);
  Result<Stand> LookAtRows(Round& round, const SealedSegment& sealed);
  [[nodiscard]] bool IsDue(const Round& round, std::int64_t number, const Stand& stand) const;
  Result<bool> IsHeld(Round& round, std::int64_t number, const SealedSegment& sealed);

  Result<void> Compress(Round& round, std::int64_t number, const SealedSegment& sealed);
  Result<void> Move(Round& round, std::int64_t number);
  Result<ArchiveLine> WriteFiles(Round& round, std::int64_t number, const SealedSegment& sealed);
  Result<WrittenFile> WriteSidecar(Round& round, ArchiveLine& line, const SealedSegment& sealed);
  Result<void> ReadEvents(Round& round, const std::string& sidecar) const;
  Result<void> LeaveJournal(std::int64_t number);
  Result<void> Prune(Round& round, const ArchiveLine& line);
  Result<void> EndLine(const ArchiveLine& line, const PruneReport& pruned, Time now);

  Deps deps_;
  // One round at a time. Not a timed mutex: TSan of g++ 12 does not know its lock.
  std::mutex mutex_;  // guards busy_; who set it has the rest
  std::condition_variable free_;
  bool busy_ = false;
  bool settled_ = false;
  std::map<std::int64_t, Stand> stands_;
  std::map<std::int64_t, Held> held_;
  std::set<std::int64_t> damaged_;  // told, and left where they are
  std::atomic<std::int64_t> holds_version_{1};
};

}  // namespace dlo::store
