// What the archive folder holds: one line of JSON per move, each with the digests of its files and of the line before.
// A segment has a line when its bytes were moved, and another each time rows of it are pruned later on.
//
// A line is in the file only after the files that it names are durable and were read back; and only what has a line is
// ever removed from the journal or pruned from the index. A line carries its own digest: a last one that does not match
// it is a torn write and is ignored, any other is damage.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "dlo/result.h"
#include "dlo/time.h"
#include "env/files.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/seekable.h"

namespace dlo::store {

struct ArchiveLine {
  std::int64_t line = 0;  // from 1
  Time at{};
  std::int64_t segment = 0, part = 1;  // part 1 moved the segment's bytes
  std::string header;                  // of the segment, its 128 bytes
  std::int64_t last_seq = 0;
  WrittenFile data;                                  // the segment; the same in each part
  WrittenFile sidecar;                               // of this part
  std::int64_t events = 0, letters = 0, pruned = 0;  // in the sidecar; of them letters, and such that may be pruned
  Sha256Digest previous{};                           // of the line before; zeros in the first

  [[nodiscard]] SegmentHeader Header() const;
};

/// "0000000001.seg.zst", "0000000001.1.ndjson.zst".
[[nodiscard]] std::string ArchivedName(std::int64_t segment);
[[nodiscard]] std::string SidecarName(std::int64_t segment, std::int64_t part);
inline constexpr const char* kManifestName = "manifest.ndjson";

/// Thread-safe.
class ArchiveManifest {
 public:
  /// A folder that does not exist, or an empty one, is an empty archive. Error corrupt, "archive_damaged", for a line
  /// that is not as it was written.
  static Result<std::unique_ptr<ArchiveManifest>> Open(Files& files, std::string folder);

  /// Writes the line durably; sets its number and what it is chained to.
  Result<void> Append(ArchiveLine line);
  /// What Open found may be in the system's memory alone, if the process before died: makes it durable.
  Result<void> Settle();

  [[nodiscard]] const std::string& folder() const { return folder_; }
  [[nodiscard]] std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  [[nodiscard]] std::vector<ArchiveLine> lines() const;
  [[nodiscard]] std::size_t size() const;
  /// Of that number, which is at most size().
  [[nodiscard]] ArchiveLine Line(std::size_t number) const;
  /// SHA-256 of the last line, hex; empty for no lines. Kept elsewhere it tells whether lines were cut off.
  [[nodiscard]] std::string Head() const;
  /// nullopt: not in the archive.
  [[nodiscard]] std::optional<ArchiveLine> Moved(std::int64_t segment) const;
  /// The line that moved the segment of an event; nullopt likewise.
  [[nodiscard]] std::optional<ArchiveLine> WithEvent(std::int64_t seq) const;
  /// All parts of a segment, oldest first.
  [[nodiscard]] std::vector<ArchiveLine> Parts(std::int64_t segment) const;
  /// Bytes behind the last whole line.
  [[nodiscard]] std::uint64_t torn_bytes() const { return torn_bytes_; }

 private:
  ArchiveManifest(Files& files, std::string folder) : files_(files), folder_(std::move(folder)) {}
  Result<void> Read();
  Result<void> WriteLine(const std::string& text, bool cut_torn);

  Files& files_;
  const std::string folder_;
  std::uint64_t torn_bytes_ = 0;
  mutable std::mutex mutex_;  // guards the rest
  std::vector<ArchiveLine> lines_;
  std::map<std::int64_t, std::vector<std::size_t>> by_segment_;
  std::uint64_t end_ = 0;
  std::string last_text_;
};

}  // namespace dlo::store
