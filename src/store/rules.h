// Decisions made ahead. A letter that dies while a rule is live is queued in the transaction of its death; ApplyRules
// looks at the queue in bounded steps.
#pragma once

#include <cstdint>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

struct RuleStep {
  int looked_at = 0;
  std::vector<std::pair<std::string, EventId>> hits;  // the rule's name, the letter
  bool more = false;
};

class RuleBook {
 public:
  virtual ~RuleBook() = default;
  /// Audited. Errors conflict: "name_taken", "too_many_rules".
  virtual Result<Rule> AddRule(const Rule& rule, const Actor& actor, Time now) = 0;
  virtual Result<RuleTrial> TryRule(const Rule& rule) = 0;
  /// Audited. Errors: not_found, "no_such_rule"; conflict, "rule_ended".
  virtual Result<Rule> EndRule(std::int64_t rule_id, const Actor& actor, Time now) = 0;
  /// Live ones first, then newest first.
  virtual Result<std::vector<Rule>> ListRules(int limit) = 0;
  /// Ends what has expired, then looks at the next `n` queued letters: the first live rule that matches one that is
  /// still dead takes it, at most once per letter and rule; the letter, its audit record (actor "rule:<name>") and its
  /// leaving the queue are one transaction. Costs one small read while there is nothing to do.
  virtual Result<RuleStep> ApplyRules(int n, Time now) = 0;
};

}  // namespace dlo::store
