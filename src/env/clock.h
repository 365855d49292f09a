// Time as a value passed in. Everything asks a Clock; only RealClock asks the machine.
#pragma once

#include <atomic>

#include "dlo/time.h"

namespace dlo {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Wall clock, UTC. May jump; used for what people read and for what is due.
  [[nodiscard]] virtual Time Now() const = 0;
  /// Never goes back; used for how long something took and for deadlines.
  [[nodiscard]] virtual Duration Monotonic() const = 0;
};

class RealClock final : public Clock {
 public:
  [[nodiscard]] Time Now() const override;
  [[nodiscard]] Duration Monotonic() const override;
};

/// Moves only when told to. Thread-safe.
class ManualClock final : public Clock {
 public:
  explicit ManualClock(Time start) : now_(start.time_since_epoch().count()) {}
  [[nodiscard]] Time Now() const override { return Time(Monotonic()); }
  [[nodiscard]] Duration Monotonic() const override { return Duration(now_.load()); }
  void Advance(Duration by) { now_ += by.count(); }

 private:
  std::atomic<Duration::rep> now_;
};

}  // namespace dlo
