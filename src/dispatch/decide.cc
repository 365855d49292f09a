#include "dispatch/decide.h"

#include <algorithm>

#include "model/fingerprint.h"

namespace dlo::dispatch {
namespace {

// No wait is longer: keeps the product of a configured wait and its jitter far from overflow.
constexpr Duration kLongestWait = std::chrono::hours(24 * 366);

// The class that names the cause. It does not follow what becomes of the letter: an event that was retried, exhausted
// its budget and at last became poison stays in the group of the one cause.
FailureClass CauseOf(OutcomeKind kind) {
  switch (kind) {
    case OutcomeKind::retryable:
      return FailureClass::exhausted;
    case OutcomeKind::permanent:
    case OutcomeKind::gone:
      return FailureClass::permanent;
    case OutcomeKind::crashed:
      return FailureClass::crashed;
    case OutcomeKind::corrupt:
      return FailureClass::corrupt;
    case OutcomeKind::applied:
    case OutcomeKind::already_applied:
    case OutcomeKind::not_applicable:
      break;
  }
  return FailureClass::none;
}

Duration WaitAfter(const Outcome& outcome, const Policy& policy, int tries, double unit) {
  const Duration base = std::clamp(policy.retry[static_cast<std::size_t>(tries - 1)], Duration(0), kLongestWait);
  const double jitter = std::clamp(policy.jitter, 0.0, 1.0);
  const double factor = 1.0 - jitter + 2.0 * jitter * unit;
  const Duration wait(static_cast<Duration::rep>(static_cast<double>(base.count()) * factor));
  const Duration most = std::clamp(policy.retry_after_max, Duration(0), kLongestWait);
  const Duration floor = std::clamp(outcome.retry_after.value_or(Duration(0)), Duration(0), most);
  return std::max(wait, floor);
}

void Finish(Transition& t, const RunContext& run, ReplayResult result) {
  t.to = run.replaying ? State::replayed : State::succeeded;
  t.replay_result = run.replaying ? result : ReplayResult::none;
}

void Die(Transition& t, const Policy& policy, const RunContext& run, FailureClass failure_class) {
  t.to = State::dead;
  t.failure_class = failure_class;
  t.keep_lane = policy.on_park == OnPark::hold;
  if (!run.replaying) return;
  t.replay_result = ReplayResult::dead_again;
  ++t.replays_failed;
  // Damaged bytes keep their own class: a person must first restore them, however often it was replayed.
  if (t.replays_failed >= kPoisonCap && failure_class != FailureClass::corrupt) t.failure_class = FailureClass::poison;
}

void RetryOrDie(Transition& t, const Outcome& outcome, const Policy& policy, const RunContext& run, double unit) {
  const int tries = std::max(run.tries, 1);
  if (static_cast<std::size_t>(tries) > policy.retry.size()) {
    Die(t, policy, run, FailureClass::exhausted);
    return;
  }
  t.to = State::waiting;
  t.due_at = t.at + WaitAfter(outcome, policy, tries, unit);
}

}  // namespace

Transition Decide(const Outcome& outcome, const Policy& policy, const RunContext& run, Time now, double unit) {
  Transition t;
  t.id = run.id;
  t.token = run.token;
  t.crashes = run.crashes;
  t.replays_failed = run.replays_failed;
  t.at = now;
  t.outcome = outcome;

  switch (outcome.kind) {
    case OutcomeKind::applied:
      Finish(t, run, ReplayResult::committed);
      return t;
    case OutcomeKind::already_applied:
      Finish(t, run, ReplayResult::already_applied);
      return t;
    case OutcomeKind::not_applicable:
      t.to = State::resolved;
      t.resolve_code = ResolveCode::other;
      if (run.replaying) t.replay_result = ReplayResult::resolved;
      return t;
    case OutcomeKind::gone:
      if (run.replaying) {
        Finish(t, run, ReplayResult::skipped_gone);
        return t;
      }
      Die(t, policy, run, FailureClass::permanent);
      break;
    case OutcomeKind::permanent:
      Die(t, policy, run, FailureClass::permanent);
      break;
    case OutcomeKind::corrupt:
      Die(t, policy, run, FailureClass::corrupt);
      break;
    case OutcomeKind::retryable:
      RetryOrDie(t, outcome, policy, run, unit);
      break;
    case OutcomeKind::crashed:
      // The attempt was counted when it was claimed, so the budget sees a crash as any other failed try.
      ++t.crashes;
      if (t.crashes >= kCrashCap) {
        Die(t, policy, run, FailureClass::crashed);
      } else {
        RetryOrDie(t, outcome, policy, run, unit);
      }
      break;
  }
  t.fingerprint = Fingerprint(CauseOf(outcome.kind), outcome.code, outcome.message, run.kind);
  return t;
}

}  // namespace dlo::dispatch
