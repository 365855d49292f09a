// The alarms of an office: looks at it about once a second, keeps what the rules say in the store, and has the outbox
// sent. Without receivers it only forgets arrivals, so that nothing gathers.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "observe/alarm_rules.h"
#include "observe/alert_sender.h"
#include "store/store.h"

namespace dlo::observe {

struct AlarmDeps {
  store::Store& store;
  HttpClient& http;
  Clock& clock;
  Random& random;
  CrashPoints& crash_points;
  Metrics& metrics;
  std::function<int()> disk_level;     // Gate::disk_level
  std::function<void(Duration)> wait;  // blocks the caller about that long
  std::function<void()> ring;          // RunOnce has work
};

/// RunOnce from one thread; Test from any.
class Alarms {
 public:
  Alarms(const Config& config, AlarmDeps deps);

  /// One look, without waiting for any receiver. Returns when it wants to look again.
  Result<Time> RunOnce(Time now);

  /// Sends a test to the receiver of that name ("" = the only one) by the same way as every alert, and returns it with
  /// what the receiver answered. Errors: not_found "no_receiver"; unavailable "no_answer" when none came in time: the
  /// test is still in the outbox.
  Result<store::Alert> Test(const std::string& receiver, const Actor& actor);

 private:
  struct Watched {
    std::string source;
    Duration limit{};
    Counter* received = nullptr;
    std::uint64_t seen = 0;
    Time last{};
  };
  Result<void> Begin(Time now);
  Result<AlarmFacts> Look(Time now, const store::AlarmsNow& alarms);

  const std::vector<AlertConfig> receivers_;
  AlarmDeps deps_;
  AlertSender sender_;
  std::vector<Watched> watched_;
  bool begun_ = false;
};

}  // namespace dlo::observe
