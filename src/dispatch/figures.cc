#include "dispatch/figures.h"

#include <chrono>
#include <utility>

namespace dlo::dispatch {
namespace {

void RegisterGauges(Metrics& metrics, const std::shared_ptr<const View>& view) {
  metrics.gauge("dlo_breaker_state", "0 closed, 1 half open, 2 open (nothing is claimed for the target)", [view] {
    const std::lock_guard lock(view->mutex);
    std::vector<Sample> samples;
    samples.reserve(view->targets.size());
    for (std::size_t i = 0; i < view->targets.size(); ++i) {
      samples.push_back({{{"target", view->targets[i]}}, static_cast<double>(view->breakers[i].state)});
    }
    return samples;
  });
  metrics.gauge("dlo_source_paused", "1 while the systemic breaker has stopped dispatch of the source", [view] {
    const std::lock_guard lock(view->mutex);
    std::vector<Sample> samples;
    samples.reserve(view->sources.size());
    for (std::size_t i = 0; i < view->sources.size(); ++i) {
      samples.push_back({{{"source", view->sources[i]}}, view->paused[i] != 0 ? 1.0 : 0.0});
    }
    return samples;
  });
  metrics.gauge("dlo_running", "attempts in the hands of targets", [view] {
    return std::vector<Sample>{{{}, static_cast<double>(view->running.load(std::memory_order_relaxed))}};
  });
}

}  // namespace

std::string_view Name(OutcomeKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "applied", "already_applied", "not_applicable", "retryable", "permanent", "gone", "crashed", "corrupt"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string_view Name(Breaker::State state) {
  static constexpr std::array<std::string_view, 3> kNames = {"closed", "half_open", "open"};
  return kNames[static_cast<std::size_t>(state)];
}

std::string_view Name(ReplayResult result) {
  static constexpr std::array<std::string_view, 6> kNames = {"none",         "committed",  "already_applied",
                                                             "skipped_gone", "dead_again", "resolved"};
  return kNames[static_cast<std::size_t>(result)];
}

Figures::Figures(Metrics& metrics, const std::shared_ptr<const View>& view)
    : metrics_(metrics),
      late_(metrics.counter("dlo_late_total", "answers that came after their lease was lost: recorded, not applied")) {
  for (const std::string& target : view->targets) {
    OfTarget& of = targets_.emplace_back();
    for (std::size_t kind = 0; kind < of.attempts.size(); ++kind) {
      of.attempts[kind] =
          &metrics.counter("dlo_attempts_total", "attempts that ended",
                           {{"target", target}, {"outcome", std::string(Name(static_cast<OutcomeKind>(kind)))}});
    }
    of.deferred = &metrics.counter("dlo_retries_deferred_total",
                                   "retries that were put off, uncounted: the target's retry budget was spent",
                                   {{"target", target}});
    of.seconds = &metrics.histogram("dlo_attempt_seconds", "how long the handler took", {{"target", target}});
  }
  RegisterGauges(metrics, view);
}

void Figures::Took(std::size_t target, Duration took) {
  targets_[target].seconds->Observe(std::chrono::duration<double>(took).count());
}

void Figures::DeadLettered(const std::string& source, FailureClass failure_class) {
  metrics_
      .counter("dlo_dead_lettered_total", "Arrivals in the dead letters",
               {{"source", source}, {"class", std::string(dlo::Name(failure_class))}})
      .Add();
}

void Figures::Suppressed(const std::string& source) {
  metrics_
      .counter("dlo_notifications_suppressed_total",
               "Replayed events that took effect and whose handler was told to send no notifications",
               {{"source", source}})
      .Add();
}

void Figures::Replayed(ReplayResult result) {
  metrics_.counter("dlo_replayed_total", "replays that ended", {{"outcome", std::string(Name(result))}}).Add();
}

}  // namespace dlo::dispatch
