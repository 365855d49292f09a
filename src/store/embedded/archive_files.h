// Making and checking the files of the archive, a small piece at a time: between two pieces `go_on` is asked.
#pragma once

#include <string>

#include "dlo/result.h"
#include "env/clock.h"
#include "env/files.h"
#include "store/embedded/journal.h"
#include "store/embedded/seekable.h"
#include "store/retention.h"

namespace dlo::store {

inline constexpr const char* kStopping = "archive_stopping";

/// Tells `go_on` how long each piece of work took.
class Pacer {
 public:
  Pacer() = default;  // at full speed
  Pacer(Clock& clock, const GoOn& go_on) : clock_(&clock), go_on_(go_on), began_(clock.Monotonic()) {}
  /// After a piece. Error unavailable, kStopping, when the work is to end.
  Result<void> Breathe();

 private:
  Clock* clock_ = nullptr;
  GoOn go_on_;
  Duration began_{};
};

/// Compresses a whole segment into `out`, whose records each lie within one frame. Error corrupt, "journal_corrupt", if
/// a batch is damaged or the whole is not what the next segment is chained to.
Result<WrittenFile> CompressSegment(const File& segment, const std::string& path, const SealedSegment& sealed,
                                    File& out, Pacer& pacer);

/// A copy of a file, synced. `original` is what it decompresses to, as far as is known before it is read back.
Result<WrittenFile> CopyFile(const File& from, File& to, const WrittenFile& original, Pacer& pacer);

/// Reads a file back from the disk, all of it twice: as it is, and decompressed. Error corrupt, "archive_damaged".
Result<void> CheckFile(Files& files, const std::string& path, const WrittenFile& expected, Pacer& pacer);

/// Creates a file that must not be there yet; one that a crash left, and that no manifest names, goes first.
Result<std::unique_ptr<File>> CreateAnew(Files& files, const std::string& path);

}  // namespace dlo::store
