// The truth for receipts: append-only segments of checksummed batches. Layout in docs/formats.md.
//
// One thread at a time appends (the store's journal thread); reading a record by its place is
// safe from any thread beside it. An append is durable when Append returns ok. The first failed sync is final: every
// later Append fails with code "store_failed", since Linux may have dropped the dirty pages. A full disk is not final:
// nothing of the batch is acknowledged, its place is written over by the next one, code "disk_full".
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/files.h"
#include "store/embedded/journal_format.h"

namespace dlo::store {

/// Where a record is.
struct Place {
  std::int64_t segment = 0;   // from 1
  std::int64_t position = 0;  // byte offset of the record in its segment file
  std::int64_t length = 0;    // of the whole record
};

/// Up to where a reader has come: the next batch begins here. seq = the last record before it.
struct Mark {
  std::int64_t segment = 1;
  std::int64_t offset = 0;  // 0 = start of the segment's batches
  std::int64_t seq = 0;
};

struct JournalRecord {
  std::shared_ptr<const Receipt> receipt;
  Place place;
  Sha256Digest body_sha256{};
};

/// Where the bytes of a segment are, all of them the same bytes to a reader.
enum class SegmentForm : unsigned char {
  plain,       // journal/<n>.seg
  compressed,  // journal/<n>.seg.zst
  archived     // <archive>/<n>.seg.zst
};

/// A segment that is never written again.
struct SealedSegment {
  SegmentHeader header;
  std::int64_t last_seq = 0;
  std::uint64_t end = 0;       // used bytes
  Sha256Digest sha256{};       // of those: what the next one is chained to
  std::int64_t sealed_at = 0;  // microseconds since 1970
  SegmentForm form = SegmentForm::plain;
};

class ArchiveManifest;

struct JournalOptions {
  std::string folder;
  std::int64_t segment_bytes = std::int64_t{64} << 20;
  /// A thread hashes the segment and prepares the next one while it fills. Off: all that at its end, for simulations.
  bool work_ahead = true;
  /// Knows the segments that left the folder. Null: none did. Outlives the journal.
  const ArchiveManifest* archive = nullptr;
};

class Journal {
 public:
  /// Opens or creates; cuts a torn tail of the last segment (logs how much). Error corrupt for a bad record before an
  /// offset that a later batch header declares durable, for a gap in seq, a missing segment, a foreign or newer file:
  /// names the file, offset and what to do.
  static Result<std::unique_ptr<Journal>> Open(Files& files, Clock& clock, CrashPoints& crash_points,
                                               JournalOptions options);

  /// Gives the receipts their ids (contiguous seq), writes them as one batch and syncs. On ok `places` and `digests`
  /// have one entry per receipt, and all are durable. On error none may be acknowledged; ids are given again.
  Result<void> Append(std::span<const std::shared_ptr<Receipt>> receipts, std::vector<Place>& places,
                      std::vector<Sha256Digest>& digests);

  /// Reads batches from `mark` on, in order, until `max_bytes` are read or the end; advances `mark`. Empty = at the
  /// end.
  Result<std::vector<JournalRecord>> ReadFrom(Mark& mark, std::size_t max_bytes) const;
  /// One record, checked against its checksum and its body's digest: error corrupt.
  Result<JournalRecord> ReadAt(const Place& place) const;

  /// Of the appending thread: the last segment takes no more, if it holds anything and was begun before `begun_before`.
  Result<void> Seal(Time begun_before);
  /// nullopt: there is none, or it is still written.
  [[nodiscard]] std::optional<SealedSegment> Sealed(std::int64_t number) const;
  [[nodiscard]] std::int64_t newest_segment() const;
  /// A sealed segment as its bytes were written, wherever they are.
  Result<std::shared_ptr<File>> OpenSegment(std::int64_t number) const;
  /// From now on it is read from there. Who reads goes on with what he has open.
  void SetForm(std::int64_t number, SegmentForm form);
  [[nodiscard]] std::string PathOf(std::int64_t number, SegmentForm form) const;

  [[nodiscard]] std::int64_t last_seq() const;
  [[nodiscard]] Mark end() const;
  [[nodiscard]] const std::string& folder() const;

  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

 private:
  struct State;
  explicit Journal(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace dlo::store
