// What the dispatcher shows of itself: counters, and a view of breakers and pauses that any thread may read.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "dispatch/breaker.h"
#include "dlo/outcome.h"
#include "dlo/states.h"
#include "model/transition.h"

namespace dlo::dispatch {

[[nodiscard]] std::string_view Name(OutcomeKind kind);
[[nodiscard]] std::string_view Name(Breaker::State state);
[[nodiscard]] std::string_view Name(ReplayResult result);

/// Written by the loop, read by anyone. Outlives the dispatcher where a scrape still holds it.
struct View {
  struct BreakerNow {
    Breaker::State state = Breaker::State::closed;
    Time retry_at{};
  };
  /// Of the attempts that were answered.
  struct FlowNow {
    std::uint64_t good = 0, bad = 0, live = 0;
    Duration took_lately{}, took_usually{};
  };
  View(std::vector<std::string> target_names, std::vector<std::string> source_names)
      : targets(std::move(target_names)),
        sources(std::move(source_names)),
        breakers(targets.size()),
        flows(targets.size()),
        paused(sources.size()) {}

  const std::vector<std::string> targets, sources;
  std::atomic<int> running{0};
  mutable std::mutex mutex;
  std::vector<BreakerNow> breakers;  // by target, under mutex
  std::vector<FlowNow> flows;        // by target, under mutex
  std::vector<char> paused;          // by source, under mutex
};

class Figures {
 public:
  Figures(Metrics& metrics, const std::shared_ptr<const View>& view);

  void Attempt(std::size_t target, OutcomeKind kind) {
    targets_[target].attempts[static_cast<std::size_t>(kind)]->Add();
  }
  void Took(std::size_t target, Duration took);
  void DeadLettered(const std::string& source, FailureClass failure_class);
  void Replayed(ReplayResult result);
  void Suppressed(const std::string& source);
  void Deferred(std::size_t target) { targets_[target].deferred->Add(); }
  void Late() { late_.Add(); }

 private:
  struct OfTarget {
    std::array<Counter*, 8> attempts{};
    Histogram* seconds = nullptr;
    Counter* deferred = nullptr;
  };
  Metrics& metrics_;
  std::vector<OfTarget> targets_;
  Counter& late_;
};

}  // namespace dlo::dispatch
