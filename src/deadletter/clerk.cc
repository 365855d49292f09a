#include "deadletter/clerk.h"

#include <optional>

namespace dlo::deadletter {

Result<Time> Clerk::RunOnce(Time now) {
  bool more = false;
  std::optional<Error> failed;
  const auto note = [&failed](const Error& error) {
    if (!failed) failed = error;
  };
  // Rules first: a letter that a rule is about to take should not be what a person decides on.
  if (const auto step = rules_.ApplyRules(kLettersAStep, now)) {
    more = step->more;
    for (const auto& [rule, id] : step->hits) {
      if (on_hit_) on_hit_(rule, id);
    }
  } else {
    note(step.error());
  }
  const auto open = decisions_.OpenDecisions();
  if (!open) return std::unexpected(open.error());
  for (const std::int64_t id : *open) {
    const auto step = decisions_.StepDecision(id, kLettersAStep, now);
    if (!step) {
      note(step.error());
      continue;
    }
    more = more || step->state == "running";
  }
  if (failed) return std::unexpected(*failed);
  return more ? now : now + kLookAgain;
}

}  // namespace dlo::deadletter
