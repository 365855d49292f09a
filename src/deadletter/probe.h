// Proof that the dead-letter path is alive: an event of our own goes the whole way, receipt, dispatch, dead letter,
// resolution, through the same code as every other. A store that is always empty is then known to be healthy, rather
// than hoped to be.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "dlo/config.h"
#include "dlo/dead_letters.h"
#include "env/clock.h"
#include "env/random.h"
#include "intake/receiver.h"
#include "store/store.h"

namespace dlo::deadletter {

/// The configuration with the probe's own source and target, which no user's may be named like.
[[nodiscard]] Config WithProbe(Config config);

struct ProbeReport {
  EventId id = 0;
  std::string failed;   // empty = it went the whole way; else which step did not end and how
  Duration receipt{};   // until it was stored durably
  Duration dispatch{};  // from then until its handler was called
  Duration dead{};      // until it was a dead letter
  Duration resolve{};   // until it was resolved, with its audit record
  int left_over = 0;    // letters of earlier probes that had stopped half way, resolved now
};

struct ProbeDeps {
  intake::Receiver& receiver;
  store::Store& store;
  Clock& clock;
  Random& random;
  std::function<std::optional<Error>()> refusal;  // receipts are refused just now: no probe adds to that
  std::function<void(Duration)> wait;             // blocks the caller about that long, or until something happened
};

class Probe {
 public:
  static constexpr Duration kLongest = std::chrono::seconds(10);

  explicit Probe(ProbeDeps deps) : deps_(std::move(deps)) {}
  /// Blocks for at most about kLongest. How it ended is noted in the store, for the alarm `probe`. Errors: conflict
  /// "probe_running"; what refuses receipts; the store's own.
  Result<ProbeReport> Run(const Actor& actor);
  /// Ends the wait of one that is under way; what it found is not noted.
  void StopWaiting() { stopping_.store(true); }
  /// Is it time for one by itself? `last`: the newest arrival or probe, unset = none ever.
  [[nodiscard]] static bool Due(Duration every, std::optional<Time> last_arrival, std::optional<Time> last_probe,
                                bool failed, Time now);

 private:
  struct Going;
  Result<int> Sweep(const Actor& actor);
  Result<void> Receive(Going& going);
  Result<void> AwaitDeath(Going& going);
  Result<void> Resolve(EventId id, const Actor& actor);

  ProbeDeps deps_;
  [[nodiscard]] bool TimeIsUp(const Going& going) const;
  std::mutex one_at_a_time_;
  std::atomic<bool> stopping_{false};
};

}  // namespace dlo::deadletter
