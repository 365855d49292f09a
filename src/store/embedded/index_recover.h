// Opening: the index is brought up to the journal before anybody is served.
#pragma once

#include <functional>
#include <string_view>

#include "dlo/result.h"
#include "env/files.h"
#include "store/embedded/archive_manifest.h"
#include "store/embedded/index_thread.h"
#include "store/embedded/journal.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Takes in what the journal holds beyond the index's mark; all of it, with a warning first, where the index is empty.
/// Error corrupt: "journal_lost" when the index is ahead of the journal, "index_foreign" when it belongs to another
/// one.
///
/// Of segments in the archive the sidecars say how their events stood: those that are over come in as pruned, letters
/// as letters. Errors "archive_damaged" and "archive_missing" when one that is needed cannot be read: without it old
/// events would be handed out again.
Result<Mark> CatchUp(const Journal& journal, Files& files, const ArchiveManifest& manifest, Db& db, IndexThread& index,
                     const std::function<std::int64_t(std::string_view)>& key_digest);

}  // namespace dlo::store
