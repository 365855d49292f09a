// The letters of a replay: handed over in order of receipt, and how each ended. Functions that write work inside the
// caller's transaction on the writing connection; errors other than refusals are the database's, and the caller then
// rolls back and clears the counts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
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

/// A replay of one letter that is handed over in the same transaction (the caller moves it): its id.
Result<std::int64_t> CreateSingleReplay(Db& db, EventId id, std::int64_t source, const Actor& actor, Time now);
/// The replay in which the letter waits for its turn.
Result<std::optional<std::int64_t>> ReplayThatHolds(Db& db, EventId id, std::int64_t source);

/// For the pacer: store/replays.h.
Result<std::vector<RunningReplay>> RunningReplays(Db& db);
Result<std::map<std::string, std::int64_t>> CountLiveDue(Db& db, std::span<const std::string> sources, Time now,
                                                         int at_most);

/// Error not_found, "replay_not_found".
Result<std::int64_t> ReleaseItems(Db& db, Counts& counts, Lanes& lanes, const ReleaseOrder& order);

struct ReplayEnd {
  std::int64_t replay_id = 0, source = 0;
  EventId id = 0;
  ReplayResult result = ReplayResult::none;
  FailureClass failure_class = FailureClass::none;
  bool suppressed = false;
  Time at{};
};
/// Call in the transaction that ends a replayed letter's replay (Transition::replay_result is not none). Marks its item
/// and, with the counts' flush, the replay as done if it was the last one. An item that does not exist, waits or has
/// ended stays as it is.
Result<void> EndReplayItem(Db& db, Counts& counts, const ReplayEnd& end);
/// Likewise in the one in which its attempt failed and it waits for the next.
Result<void> RetryReplayItem(Db& db, Counts& counts, std::int64_t replay_id, std::int64_t source, EventId id);

}  // namespace dlo::store
