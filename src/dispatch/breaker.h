// Stops calling a target that does not answer, so that an outage costs waiting time and not attempts: while it is open
// nothing is claimed for the target. One thread; no clock, no chance of its own.
#pragma once

#include <array>
#include <cstddef>
#include <limits>

#include "dlo/outcome.h"
#include "dlo/time.h"

namespace dlo::dispatch {

/// Does this outcome say that the target (and not the event) is ill? Transport failures, timeouts, 5xx, 429, 408, 425,
/// and a retryable failure of an in-process handler. A `Dlo-Outcome: retryable` on an answer that is otherwise fine is
/// the handler's word on one event and does not count.
[[nodiscard]] bool IsTargetFailure(const Outcome& outcome);

struct BreakerLimits {
  int in_a_row = 10;                               // failures that open it
  int percent = 50;                                // or this share of the last kWindow attempts
  Duration first_open = std::chrono::seconds(30);  // then doubling
  Duration longest_open = std::chrono::minutes(5);
};

class Breaker {
 public:
  enum class State : unsigned char { closed = 0, half_open = 1, open = 2 };

  static constexpr std::size_t kWindow = 20;
  static constexpr int kUnlimited = std::numeric_limits<int>::max();

  explicit Breaker(const BreakerLimits& limits = {}) : limits_(limits) {}

  /// How many attempts may be claimed now: kUnlimited when closed, 1 when a probe is due, else 0.
  [[nodiscard]] int Permits(Time now) const;
  /// An attempt was claimed. True: it is the probe; say so when it ends.
  [[nodiscard]] bool Claimed(Time now);
  /// An attempt ended. Attempts begun before it opened that end while it is open say nothing new. `unit` in [0,1) draws
  /// the jitter (0.5 to 1.5 times). True if this opened it.
  bool Ended(bool probe, bool target_failed, Time now, double unit);
  /// A claimed attempt ended without the target having been asked: if it was the probe, another may go.
  void NotAsked(bool probe);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] Time retry_at() const { return retry_at_; }  // meaningful when open

 private:
  void Open(Time now, double unit);

  BreakerLimits limits_;
  State state_ = State::closed;
  int in_a_row_ = 0;
  std::array<bool, kWindow> failed_{};
  std::size_t seen_ = 0;  // in the window, saturating
  std::size_t next_ = 0;
  int openings_ = 0;  // since it was last closed
  Time opened_at_{};
  Time retry_at_{};
};

}  // namespace dlo::dispatch
