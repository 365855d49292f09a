// How many letters of replays a target may have at once: handed over and not yet ended. It grows by what ends well, as
// long as all is well, and is halved when the target fails, slows down, or makes live events wait; while there is live
// traffic at all, half of the target's places stay free of letters. One per target; no clock of its own.
#pragma once

#include <cstdint>
#include <optional>

#include "dispatch/dispatcher.h"
#include "dlo/time.h"

namespace dlo::deadletter {

class ReplayWindow {
 public:
  /// Its size now. 0 while the target's breaker is not closed. `live_due`: live events that wait for a place.
  std::int64_t Look(const dispatch::TargetFlow& flow, std::int64_t live_due, Time now);

  /// Halved once in so long at most: what it has let through by then must first have been answered.
  static constexpr Duration kShrinkEvery = std::chrono::milliseconds(100);
  static constexpr double kMost = 1'024;
  /// Live traffic: a live event was begun in the last second.
  static constexpr Duration kLiveLately = std::chrono::seconds(1);

 private:
  void Shrink(const dispatch::TargetFlow& flow, Time now);

  double size_ = 0;  // 0: it has not looked yet
  std::uint64_t good_ = 0, bad_ = 0, live_ = 0;
  Time shrunk_at_{};
  std::optional<Time> live_at_;
};

}  // namespace dlo::deadletter
