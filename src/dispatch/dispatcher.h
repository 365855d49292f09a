// The only code that calls a handler. Claim -> handler -> Decide -> fenced Apply, for live traffic and replays alike.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
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
#include "store/queue.h"
#include "store/sources.h"

namespace dlo::dispatch {

/// What a person sees of a target's breaker.
struct BreakerView {
  std::string target;
  std::string state;  // closed | open | half_open
  std::optional<Time> retry_at;
};

/// What the dispatcher has seen of a target since it began, for whoever paces work towards it.
struct TargetFlow {
  struct OfSource {
    std::string source;
    bool paused = false;  // by the systemic breaker
  };
  std::string target;
  std::vector<OfSource> sources;
  int capacity = 0;
  bool closed = true;                      // its breaker; else nothing should come
  std::uint64_t good = 0, bad = 0;         // answered attempts; bad: the target itself failed
  std::uint64_t live = 0;                  // attempts begun that were none of replays
  Duration took_lately{}, took_usually{};  // of the good ones, over the last few and over many
};

struct DispatcherDeps {
  store::Queue& queue;
  store::Sources& sources;
  HttpClient& http;
  Clock& clock;
  Random& random;
  CrashPoints& crash_points;
  Metrics& metrics;
};

/// RunOnce and Drain from one thread; Ring, Breakers and Flows from any.
class Dispatcher {
 public:
  Dispatcher(const Config& config, DispatcherDeps deps);
  ~Dispatcher();

  /// One round, without waiting: rescues expired leases, renews ours, applies what ended, claims for free capacity,
  /// starts handlers. Returns when it should run again at the latest; Ring wakes the loop earlier.
  Result<Time> RunOnce(Time now);
  /// Called by whoever runs the loop: `wake` is called when an attempt ended or work arrived.
  void OnWake(std::function<void()> wake);
  /// Stops claiming; waits up to `grace` for what runs, hands the rest back uncounted, and applies what ended.
  void Drain(Duration grace);
  [[nodiscard]] std::vector<BreakerView> Breakers() const;
  [[nodiscard]] std::vector<TargetFlow> Flows() const;
  [[nodiscard]] int running() const;
  /// The store works on a batch, and its answer will wake the loop. Asked on the loop's thread.
  [[nodiscard]] bool waits_for_store() const;
  /// Forget the systemic breaker's memory of a source (it was resumed).
  void Resumed(const std::string& source);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlo::dispatch
