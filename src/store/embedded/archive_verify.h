// Reads the archive by itself: the manifest's chain, every file's digest, and what each decompresses to; and writes it
// out for tools that know nothing of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/result.h"
#include "env/files.h"

namespace dlo::store {

struct ArchiveReport {
  std::int64_t lines = 0, segments = 0, files = 0;
  std::int64_t bytes = 0, original_bytes = 0;
  std::string head;                   // SHA-256 of the manifest's last line: keep it elsewhere to know of a cut
  std::vector<std::string> problems;  // for people, in the manifest's order; empty = sound
};

/// Changes nothing, also beside a running server. An error is of the disk alone.
Result<ArchiveReport> VerifyArchive(Files& files, const std::string& folder);

/// Writes every segment and sidecar, decompressed, and SHA256SUMS for `sha256sum -c` into `to`, which must be empty or
/// not there. Each is checked against the manifest while it is read: error corrupt, "archive_damaged".
Result<ArchiveReport> ExportArchive(Files& files, const std::string& folder, const std::string& to);

}  // namespace dlo::store
