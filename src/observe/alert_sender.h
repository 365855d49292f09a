// Carries alerts from the outbox to their receivers: one call of a receiver at a time, receivers apart from each other,
// each failure tried again later. An alert is marked sent after its receiver said so; who dies in between says it
// twice, with the same id.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "dlo/config.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "env/http_client.h"
#include "env/random.h"
#include "store/alarms.h"

namespace dlo::observe {

struct AlertSenderDeps {
  store::Alarms& store;
  HttpClient& http;
  Clock& clock;
  Random& random;
  CrashPoints& crash_points;
  Metrics& metrics;
  std::function<void()> ring;  // an answer came: RunOnce has work. Any thread; may be unset
};

/// From one thread. What is under way may end after it is gone; nobody is told then.
class AlertSender {
 public:
  AlertSender(const std::vector<AlertConfig>& receivers, AlertSenderDeps deps);
  ~AlertSender();

  /// Marks what ended and starts what is due; never waits for a receiver.
  Result<void> RunOnce(Time now);
  /// Longer each time, with chance, so that receivers that come back are not met by all at once; at least Retry-After.
  [[nodiscard]] static Duration Backoff(int attempts, double chance, std::optional<Duration> retry_after);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlo::observe
