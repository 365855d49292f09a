// Hands the items of running replays back to the dispatcher: a batch, a pause, a batch, oldest receipt first. The pace
// is stored with the replay, so a restart goes on where it stood.
#pragma once

#include <mutex>

#include "dlo/result.h"
#include "dlo/time.h"
#include "store/replays.h"

namespace dlo::deadletter {

/// Thread-safe: the housekeeping loop and a waiting drain may both call it; a batch is never released early.
class ReplayPacer {
 public:
  explicit ReplayPacer(store::Replays& replays) : replays_(replays) {}

  /// Releases every batch that is due, then returns when the next one falls due, or `now` + kLookAgain if none is
  /// known.
  Result<Time> RunOnce(Time now);

  static constexpr Duration kLookAgain = std::chrono::seconds(1);

 private:
  store::Replays& replays_;
  std::mutex mutex_;
};

}  // namespace dlo::deadletter
