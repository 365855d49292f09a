#include "deadletter/replay_pacer.h"

#include <algorithm>

namespace dlo::deadletter {

Result<Time> ReplayPacer::RunOnce(Time now) {
  const std::lock_guard lock(mutex_);
  Time next = now + kLookAgain;
  auto running = replays_.Running();
  if (!running) return std::unexpected(running.error());
  for (const store::RunningReplay& replay : *running) {
    if (replay.next_batch_at > now) {
      next = std::min(next, replay.next_batch_at);
      continue;
    }
    // One batch a round each: a replay without a pause must not starve the others.
    auto left = replays_.ReleaseBatch(replay.id, replay.batch_size, now);
    if (!left) return std::unexpected(left.error());
    if (*left > 0) next = std::min(next, now + replay.stagger);
  }
  return next;
}

}  // namespace dlo::deadletter
