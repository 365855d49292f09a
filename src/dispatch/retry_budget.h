// Bounds how many retries a target gets beside its first calls, so that a target which fails a part of what it is asked
// (too little to open the breaker) is not asked several times as often for it. A retry over the budget is put off: it
// is promised a later time, and no attempt is used. One thread; no clock of its own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "dlo/time.h"

namespace dlo::dispatch {

class RetryBudget {
 public:
  static constexpr Duration kWindow = std::chrono::minutes(1);
  /// Further ahead nothing is promised: what falls due then asks anew.
  static constexpr Duration kLongestWait = std::chrono::hours(1);

  /// In any kWindow at most `percent` of the first calls of the last one, or `per_second` of them a second, whichever
  /// is more, and never fewer than one. Both 0: no limit.
  RetryBudget(double percent, double per_second) : percent_(percent), per_second_(per_second) {}

  /// A first call was made.
  void First(Time now);
  /// May a retry go now? True counts it.
  [[nodiscard]] bool Take(Time now);
  /// A retry goes whatever is left: a probe, which something else paces.
  void Force(Time now);
  /// After Take said no: when to ask again, later than `now`. Earlier ones have earlier promises, evenly spaced.
  [[nodiscard]] Time Defer(Time now);

 private:
  /// Lets go of what is older than the window. Returns the time to work with.
  Time MoveTo(Time now);
  void Count(Time at);
  [[nodiscard]] std::size_t Allowed() const;
  [[nodiscard]] bool off() const { return percent_ <= 0 && per_second_ <= 0; }

  static constexpr std::size_t kSeconds = 60;
  double percent_, per_second_;
  Time last_{};
  std::int64_t second_ = 0;  // the newest of first_calls_
  std::array<std::int64_t, kSeconds> first_calls_{};
  std::int64_t first_total_ = 0;
  std::deque<Time> taken_;     // retries of the last window, oldest first
  std::deque<Time> promised_;  // earliest first; the front ones may be due
};

}  // namespace dlo::dispatch
