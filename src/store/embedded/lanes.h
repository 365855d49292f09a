// Order per subject inside the index. A lane is a subject of a source; the events in it are those that are not finished
// (waiting, running, and parked ones whose source says `hold`). Two laws, kept by these functions inside the caller's
// transaction and checked by tests: at most one event of a lane is running, and a waiting one has behind = 0 only if it
// is the first of its lane by receipt and none is running. Every function costs a fixed number of index look-ups,
// whatever waits in the lane.
//
// Whoever writes a row that becomes `waiting` with a lane writes it with behind = 1 and calls SettleLane, which frees
// it if it is its turn: the unique index events_lane_front lets no second event of a lane be free or running, not even
// for the length of a transaction. Without a lane behind is 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// The number of a subject's lane; nullopt for an empty subject (no order). Two subjects that collide share a lane,
/// which delays and never harms.
[[nodiscard]] std::optional<std::int64_t> LaneOf(std::string_view source, std::string_view subject);

/// Call after a row entered `lane`, left it, or changed state in it: makes `behind` of the lane's waiting events true
/// again. `lane` nullopt does nothing. Touches at most the lane's first event and the one that was first before.
Result<void> SettleLane(Db& db, std::optional<std::int64_t> lane);

/// For a row about to be inserted as waiting with the newest id: whether it must be behind.
Result<bool> LaneOccupied(Db& db, std::int64_t lane);

}  // namespace dlo::store
