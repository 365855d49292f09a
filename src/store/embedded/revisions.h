// Corrected payloads as rows. `events.revision` names the newest in effect and is NULL for all other events, so that a
// claim finds out from the row that it reads anyway.
#pragma once

#include "store/embedded/counts.h"
#include "store/embedded/lanes.h"
#include "store/embedded/sqlite.h"
#include "store/revisions.h"

namespace dlo::store {

/// In the caller's transaction. `original_whole`: its bytes passed their digest just now.
Result<Revision> InsertRevision(Db& db, Counts& counts, const RevisionRequest& request, bool original_whole,
                                const Actor& actor, Time now);
/// Newest first; none for an event that does not exist. Reads no body.
Result<std::vector<Revision>> ReadRevisions(Db& db, EventId id);
/// Checked against its digest: error corrupt. Error not_found, "no_such_revision", also for one that is the original.
Result<std::string> ReadRevisionBody(Db& db, EventId id, int number);

}  // namespace dlo::store
