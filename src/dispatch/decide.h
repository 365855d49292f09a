// The only place where the outcome of an attempt becomes a state. Pure: dispatcher, rescuer, replay and simulator call
// it; none repeats it.
#pragma once

#include <vector>

#include "dlo/config.h"
#include "dlo/outcome.h"
#include "model/transition.h"

namespace dlo::dispatch {

inline constexpr int kPoisonCap = 5;  // failed replays (S1)
inline constexpr int kCrashCap = 3;   // workers that died in one dispatch

struct Policy {
  std::vector<Duration> retry;  // 1 first try + these
  double jitter = 0.5;
  OnPark on_park = OnPark::release;
  Duration retry_after_max = std::chrono::hours(1);
};

/// `unit` in [0,1) draws the jitter. `now` is when the attempt ended.
[[nodiscard]] Transition Decide(const Outcome& outcome, const Policy& policy, const RunContext& run, Time now,
                                double unit);

}  // namespace dlo::dispatch
