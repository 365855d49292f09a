// What a Journal holds, shared between its recovery (journal_open.cc) and its work (journal.cc).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/embedded/journal.h"
#include "store/embedded/journal_ahead.h"
#include "store/embedded/journal_segment.h"

namespace dlo::store {

/// A new, empty, durable segment of `bytes` bytes under its own name; of `spare` if given, which lies at `spare_path`.
Result<std::unique_ptr<File>> CreateSegment(Files& files, const std::string& folder, const SegmentHeader& header,
                                            std::uint64_t bytes, std::unique_ptr<File> spare = nullptr,
                                            const std::string& spare_path = {});

struct Journal::State {
  struct Segment {
    SegmentHeader header;
    std::uint64_t end = kSegmentHeaderBytes;  // of its batches; final unless it is the last
    std::shared_ptr<File> file;               // null until it is needed
    SegmentForm form = SegmentForm::plain;
  };

  State(Files& f, Clock& c, CrashPoints& p, JournalOptions o)
      : files(f),
        clock(c),
        crash_points(p),
        options(std::move(o)),
        ahead(f, options.folder, static_cast<std::uint64_t>(options.segment_bytes), options.work_ahead) {}

  [[nodiscard]] std::string PathOf(std::int64_t number) const { return options.folder + "/" + SegmentName(number); }
  [[nodiscard]] std::string PathOf(std::int64_t number, SegmentForm form) const;
  [[nodiscard]] std::string PathNow(std::int64_t number);
  /// Without the table of open files.
  Result<std::unique_ptr<File>> Open(std::int64_t number, SegmentForm form);
  [[nodiscard]] SegmentHeader NewHeader(std::uint64_t number, std::uint64_t first_seq) const;

  /// Recovery.
  Result<void> Recover();
  Result<std::vector<SegmentForm>> ListSegments();
  Result<void> ReadHeaders(const std::vector<SegmentForm>& forms);
  /// Header and, where the form knows it, the end of the segment. nullopt: the file is empty.
  Result<std::optional<Segment>> ReadSegment(std::int64_t number, SegmentForm form);
  Result<void> DropEmptyLast();
  Result<void> CheckNewestSealed();
  Result<void> RecoverLast();

  /// Appending.
  Result<void> MakeRoom(std::uint64_t bytes);
  Result<void> Roll(std::uint64_t bytes);
  Error FailForGood(const Error& cause);

  /// Of segment `number`, opened if need be.
  Result<std::shared_ptr<File>> FileOf(std::int64_t number);

  Files& files;
  Clock& clock;
  CrashPoints& crash_points;
  const JournalOptions options;

  mutable std::mutex mutex;       // guards the next four; never held over a write, a sync or a hash
  std::vector<Segment> segments;  // number n is at n - 1
  std::uint64_t last_seq = 0;
  std::size_t open_files = 0;
  std::size_t next_to_close = 0;

  // Of the appending thread.
  std::shared_ptr<File> active;
  std::uint64_t capacity = 0;  // space reserved in it
  bool failed = false;
  std::string failure;
  std::string heads;  // kept for their memory
  std::vector<iovec> parts;
  JournalAhead ahead;
};

}  // namespace dlo::store
