#include "dispatch/systemic.h"

#include <algorithm>
#include <functional>
#include <string>
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
  slot = permanent ? Cause{transition.fingerprint, transition.outcome.message,
                           std::hash<std::string>()(transition.fingerprint)}
                   : Cause{};
  if (!slot.fingerprint.empty()) ++permanent_;
  next_ = (next_ + 1) % kWindow;
  seen_ = std::min(seen_ + 1, kWindow);
  if (seen_ < kWindow || permanent_ < kTrip) return Verdict::nothing;

  const Cause& cause = Majority();
  if (static_cast<std::size_t>(std::ranges::count(recent_, cause.number, &Cause::number)) < kTrip) {
    return Verdict::nothing;
  }
  Pause(cause, now);
  return Verdict::pause;
}

/// The one that makes up more than half of them, if there is one (Boyer and Moore's vote): each failure comes here, so
/// that counting every cause would show.
const Systemic::Cause& Systemic::Majority() const {
  static_assert(kTrip * 2 > kWindow);
  const Cause* candidate = &recent_.front();
  std::size_t votes = 0;
  for (const Cause& cause : recent_) {
    if (votes == 0) candidate = &cause;
    votes += candidate->number == cause.number ? 1 : std::size_t(-1);
  }
  return *candidate;
}

void Systemic::Load(std::string fingerprint, Time now) {
  Pause(Cause{.fingerprint = std::move(fingerprint), .message = {}}, now);
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
