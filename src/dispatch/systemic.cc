#include "dispatch/systemic.h"

#include <algorithm>
#include <utility>

namespace dlo::dispatch {

Systemic::Verdict Systemic::Ended(const RunContext& run, const Transition& transition, bool probe, Time now) {
  const OutcomeKind kind = transition.outcome.kind;
  const bool permanent = kind == OutcomeKind::permanent || (kind == OutcomeKind::gone && !run.replaying);
  if (paused_) {
    if (!probe) return Verdict::nothing;
    probing_ = false;
    const bool judged = kind != OutcomeKind::retryable && kind != OutcomeKind::crashed && kind != OutcomeKind::corrupt;
    const bool same = permanent && transition.fingerprint == cause_.fingerprint;
    return judged && !same ? Verdict::resume : Verdict::nothing;
  }

  if (run.replaying || run.attempt != 1) return Verdict::nothing;
  Cause& slot = recent_[next_];
  if (!slot.fingerprint.empty()) --permanent_;
  slot = permanent ? Cause{transition.fingerprint, transition.outcome.message} : Cause{};
  if (!slot.fingerprint.empty()) ++permanent_;
  next_ = (next_ + 1) % kWindow;
  seen_ = std::min(seen_ + 1, kWindow);
  if (seen_ < kWindow || permanent_ < kTrip) return Verdict::nothing;

  for (const Cause& cause : recent_) {
    if (cause.fingerprint.empty()) continue;
    const auto same = std::ranges::count(recent_, cause.fingerprint, &Cause::fingerprint);
    if (static_cast<std::size_t>(same) < kTrip) continue;
    Pause(cause, now);
    return Verdict::pause;
  }
  return Verdict::nothing;
}

void Systemic::Load(std::string fingerprint, Time now) {
  Pause(Cause{std::move(fingerprint), {}}, now);
  next_probe_at_ = now;  // a restart is often the mend
}

void Systemic::Clear() {
  *this = Systemic();
}

void Systemic::ProbeClaimed(Time now) {
  probing_ = true;
  next_probe_at_ = now + kProbeEvery;
}

void Systemic::Pause(Cause cause, Time now) {
  paused_ = true;
  probing_ = false;
  cause_ = std::move(cause);
  next_probe_at_ = now + kProbeEvery;
}

}  // namespace dlo::dispatch
