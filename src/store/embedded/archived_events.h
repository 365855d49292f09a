// Reading the archive by event: what is where, and what it says of an event whose rows are gone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "env/files.h"
#include "store/embedded/archive_manifest.h"

namespace dlo::store {

/// The line that moved the segment of an event. nullopt: it is in the journal, or there is none such.
[[nodiscard]] std::optional<ArchiveLine> ArchivedWith(const ArchiveManifest& manifest, EventId id);
/// Oldest first, after segment `after`.
Result<std::vector<ArchivedSegment>> ListArchive(const ArchiveManifest& manifest, std::int64_t after, int limit);
/// From the newest sidecar that has it; error not_found, corrupt "archive_damaged", or
/// unavailable "archive_missing".
Result<LetterDetail> ShowArchived(Files& files, const ArchiveManifest& manifest, EventId id, const Receipt* receipt);
/// Its records as JSON, of all sidecars, oldest first. Errors as above.
Result<std::vector<std::string>> RecordsOf(Files& files, const ArchiveManifest& manifest, EventId id);

}  // namespace dlo::store
