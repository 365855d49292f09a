// Legal holds as rows, and the question whether one of them is on an event.
#pragma once

#include <cstdint>
#include <unordered_set>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Newest first, ended ones included.
Result<std::vector<LegalHold>> ReadLegalHolds(Db& db);
/// Error invalid: "reason_missing", "actor_missing", or a filter that cannot be read.
Result<LegalHold> AddLegalHold(Db& db, const Filter& filter, const Actor& actor, Time now);
/// Errors: not_found; conflict, "already_ended"; invalid as above.
Result<LegalHold> EndLegalHold(Db& db, std::int64_t id, const Actor& actor, Time now);

/// Of the events from `first` to `last`, those that a hold in force matches, in order; at most `limit`.
Result<std::vector<EventId>> EventsOnHold(Db& db, EventId first, EventId last, std::int64_t limit = INT64_MAX);

}  // namespace dlo::store
