// The limits of `on_park = hold`: a letter whose followers became too many or too old gives its lane up.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "store/embedded/lanes.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Releases the lanes of `source`'s parked letters with more than `max_behind` waiting behind them or parked before
/// `older_than`: the letter stays where it is, its followers go on. One audit record each, in the caller's transaction.
/// Returns the letters' ids. Costs one look-up per parked letter that holds a lane.
Result<std::vector<EventId>> ReleaseLanes(Db& db, Lanes& lanes, const std::string& source, std::int64_t max_behind,
                                          Time older_than, const Actor& actor, Time now);

}  // namespace dlo::store
