// Replays as rows: a frozen selection, its release in batches, and how each letter ended. Functions that write work
// inside the caller's transaction on the writing connection; errors other than refusals are the database's, and the
// caller then rolls back and clears the counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "model/transition.h"
#include "store/embedded/counts.h"
#include "store/embedded/lanes.h"
#include "store/embedded/sqlite.h"
#include "store/replays.h"

namespace dlo::store {

/// Values of replay_items.state.
enum class ItemState : std::uint8_t { open = 0, ended = 1 };
/// Values of replay_items.result beside those of ReplayResult.
inline constexpr int kSkippedState = 100;  // it is no longer a letter this replay may take
inline constexpr int kSkippedOtherReplay = 101;

/// Reads only. `over_cap` and `estimated_seconds` are by the default options; the caller who has others sets them anew
/// (store/pace.h).
Result<ReplayPlan> PlanReplay(Db& db, const Filter& filter);

/// Freezes the selection and writes the audit record. Keeps its own savepoint: after a refusal (too_large
/// "replay_too_large", invalid) nothing is left behind. An empty selection makes a replay that is done.
Result<ReplayPlan> CreateReplay(Db& db, const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                const Actor& actor, Time now);

/// A replay of one letter that is released in the same transaction (the caller moves it): its id.
Result<std::int64_t> CreateSingleReplay(Db& db, EventId id, const Actor& actor, Time now);

/// Running replays that have letters not yet released.
Result<std::vector<RunningReplay>> RunningReplays(Db& db);
/// Error not_found, "replay_not_found". A replay that is not running releases nothing and returns 0.
Result<std::int64_t> ReleaseReplayBatch(Db& db, Counts& counts, Lanes& lanes, std::int64_t replay_id, int n, Time now);

/// Call in the transaction that ends a replayed letter's replay (Transition::replay_result is not none). Marks its item
/// and, with the counts' flush, the replay as done if it was the last one. An item that does not exist or has ended
/// stays as it is.
Result<void> EndReplayItem(Db& db, Counts& counts, std::int64_t replay_id, EventId id, ReplayResult result,
                           FailureClass failure_class, Time now);

Result<ReplayProgress> GetReplay(Db& db, std::int64_t replay_id);
/// Newest first.
Result<std::vector<ReplayProgress>> RecentReplays(Db& db, int limit);

}  // namespace dlo::store
