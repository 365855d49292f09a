// Where deliveries go. A target runs what it is given and answers each once; it decides nothing and knows no store.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/outcome.h"
#include "env/clock.h"
#include "env/http_client.h"

namespace dlo::dispatch {

/// How a delivery ended. Without an outcome it was never judged (the target was stopped first): hand it back.
struct Ended {
  std::optional<Outcome> outcome;
  Duration took{};
  Time at{};
};

class Target {
 public:
  using Done = std::move_only_function<void(Ended)>;
  virtual ~Target() = default;
  /// How many deliveries may be in its hands at once.
  [[nodiscard]] virtual int capacity() const = 0;
  /// Returns at once. `done` is called exactly once, on any thread, maybe before Start returns, maybe after this target
  /// is gone.
  virtual void Start(Delivery delivery, Done done) = 0;
  /// Answers (without an outcome) what no handler has seen yet, and takes nothing more.
  virtual void DropQueued() = 0;
  /// The grace is over: the destructor must not wait for handlers that still run.
  virtual void Abandon() = 0;
};

/// The config must name a type http or in_process.
[[nodiscard]] std::unique_ptr<Target> MakeTarget(const TargetConfig& config, HttpClient& http, Clock& clock);

/// What may come in from a handler, made fit to keep: clean text of bounded length, and none of the kinds that only the
/// dispatcher may say (those become permanent, code "bad_outcome").
[[nodiscard]] Outcome Tidy(Outcome outcome);

}  // namespace dlo::dispatch
