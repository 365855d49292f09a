// One act of triage on many letters, as a stored object: the selection is frozen, then worked off in steps.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "model/law.h"

namespace dlo::store {

struct BulkAct {
  Act act = Act::hold;  // hold, release, resolve, reopen
  HoldRequest hold;
  std::optional<ResolveCode> resolve_code;
};

class Decisions {
 public:
  virtual ~Decisions() = default;
  /// What the act would take, without changing anything. Error invalid, "state_not_fit", when the filter names states
  /// and the act leads from none of them.
  virtual Result<Decision> PlanDecision(const Filter& filter, Act act) = 0;
  /// Freezes the letters of one moment and writes the audit record of the whole. After a crash on the way nothing of it
  /// is left; once it is answered it goes on after any. Error too_large, "too_many", over options.max unless force.
  virtual Result<Decision> CreateDecision(const Filter& filter, const BulkAct& act, const DecisionOptions& options,
                                          const Actor& actor, Time now) = 0;
  /// Those with letters still to come, oldest first.
  virtual Result<std::vector<std::int64_t>> OpenDecisions() = 0;
  /// The next `n` letters in one transaction, each with its audit record. One whose state changed since the freeze, or
  /// that was tried since, is skipped: whoever moved it decided later. Error not_found, "no_such_decision".
  virtual Result<Decision> StepDecision(std::int64_t decision_id, int n, Time now) = 0;
  virtual Result<Decision> GetDecision(std::int64_t decision_id) = 0;
  virtual Result<std::vector<Decision>> RecentDecisions(int limit) = 0;
};

}  // namespace dlo::store
