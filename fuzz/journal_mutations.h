// The body of the journal's fuzz target, shared with a unit test that runs it over seeded mutations.
#pragma once

#include <string>
#include <string_view>

#include "env/clock.h"
#include "env/crash_points.h"
#include "env/memory_files.h"
#include "store/embedded/crc32c.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/journal_verify.h"

namespace dlo::store {

inline constexpr std::int64_t kFuzzSegmentBytes = 4096;

/// Opens a journal whose only segment has these bytes, reads all of it in both ways, and verifies it. The records, or
/// the error that Open or a reader gave.
inline Result<std::vector<JournalRecord>> ReadWhole(std::string_view segment) {
  MemoryFiles files;
  ManualClock clock{Time()};
  NoCrashPoints crash_points;
  files.SetContents("j/0000000001.seg", std::string(segment));
  static_cast<void>(VerifyJournal(files, "j"));
  auto journal = Journal::Open(files, clock, crash_points, {"j", kFuzzSegmentBytes, false});
  if (!journal) return std::unexpected(journal.error());
  std::vector<JournalRecord> all;
  Mark mark;
  while (true) {
    auto some = (*journal)->ReadFrom(mark, 1);
    if (!some) return std::unexpected(some.error());
    if (some->empty()) break;
    for (auto& record : *some) {
      if (auto alone = (*journal)->ReadAt(record.place); !alone) return std::unexpected(alone.error());
      all.push_back(std::move(record));
    }
  }
  return all;
}

/// A segment whose checksums are right and whose one record is `bytes`: reaches what lies behind the checksums.
inline std::string SegmentAround(std::string bytes) {
  const auto put = [](char* out, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) out[i] = static_cast<char>(value >> (8 * i));
  };
  if (bytes.size() >= 8) {
    put(bytes.data(), static_cast<std::uint32_t>(bytes.size()));
    put(bytes.data() + 4, Crc32c(std::string_view(bytes).substr(8), Crc32c(std::string_view(bytes).substr(0, 4))));
  }
  std::string segment(kSegmentHeaderBytes + kBatchHeaderBytes, '\0');
  SegmentHeader header;
  header.number = header.first_seq = 1;
  EncodeSegmentHeader(header, segment.data());
  BatchHeader batch;
  batch.bytes = kBatchHeaderBytes + bytes.size();
  batch.first_seq = batch.records = 1;
  batch.durable_upto = kSegmentHeaderBytes;
  batch.records_crc = bytes.size() >= 8 ? ContinueRecordsCrc(bytes.data(), 0) : 0;
  EncodeBatchHeader(batch, segment.data() + kSegmentHeaderBytes);
  return segment + bytes;
}

}  // namespace dlo::store
