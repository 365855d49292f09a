// Replays as people see and steer them: progress, letters, and the acts pause, resume, cancel. Those that write work
// inside the caller's transaction on the writing connection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"
#include "store/replays.h"

namespace dlo::store {

/// store/replays.h, Replays::Act. A refusal comes before the first write.
Result<ReplayProgress> ApplyReplayAct(Db& db, std::int64_t replay_id, ReplayAct act, const Actor& actor, Time now);

/// `now` tells the rate of late.
Result<ReplayProgress> GetReplay(Db& db, std::int64_t replay_id, Time now);
/// Newest first.
Result<std::vector<ReplayProgress>> RecentReplays(Db& db, int limit, Time now);
/// Oldest receipt first.
Result<ReplayItems> ReadReplayItems(Db& db, std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                                    const std::string& cursor);

}  // namespace dlo::store
