// Reads a whole journal and says what is wrong with it: every checksum, every body's SHA-256, every link of the chain.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "dlo/result.h"
#include "env/files.h"
#include "store/embedded/journal_format.h"

namespace dlo::store {

struct JournalReport {
  std::int64_t segments = 0;
  std::int64_t records = 0;
  std::int64_t bytes = 0;                      // used, of all segments
  std::int64_t last_seq = 0;                   // of the newest record found
  std::int64_t torn_bytes = 0;                 // behind the last whole batch: cut at the next start
  std::vector<std::string> problems;           // for people, in journal order; empty = sound
  std::map<std::int64_t, Sha256Digest> links;  // what each segment's header says of the one before
};

/// Each whole record in order, with its segment and its offset there, before its digest is judged.
using JournalVisitor = std::function<void(const RecordView& record, std::int64_t segment, std::uint64_t position)>;

/// Changes nothing and needs no lock. Beside a running server the batch being written counts as torn. Goes on behind a
/// problem with the next segment. An error is of the disk alone.
/// Segments that left the folder are read where they are, in the folder `archive`; empty: there is none.
Result<JournalReport> VerifyJournal(Files& files, const std::string& folder, const std::string& archive = {},
                                    const JournalVisitor& visit = {});

}  // namespace dlo::store
