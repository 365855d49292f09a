// Works off what was decided: open decisions on many letters, and what died under a standing rule. In bounded steps, so
// that the store's thread is never held long; each step is a transaction, so that a crash costs nothing.
#pragma once

#include <functional>
#include <string>

#include "dlo/result.h"
#include "dlo/time.h"
#include "store/decisions.h"
#include "store/rules.h"

namespace dlo::deadletter {

class Clerk {
 public:
  /// `on_hit` is told of each letter that a rule took; may be unset.
  Clerk(store::Decisions& decisions, store::RuleBook& rules,
        std::function<void(const std::string& rule, EventId id)> on_hit = {})
      : decisions_(decisions), rules_(rules), on_hit_(std::move(on_hit)) {}

  /// One step of each open decision and of the rules. Returns `now` when there is more to do, else now + kLookAgain.
  /// One that fails stops no other; the first error is returned.
  Result<Time> RunOnce(Time now);

  static constexpr int kLettersAStep = 100;
  static constexpr Duration kLookAgain = std::chrono::seconds(1);

 private:
  store::Decisions& decisions_;
  store::RuleBook& rules_;
  std::function<void(const std::string&, EventId)> on_hit_;
};

}  // namespace dlo::deadletter
