// Standing rules as rows, and the queue of letters that they are to look at. Functions that write work inside the
// caller's transaction on the writing connection.
#pragma once

#include <functional>

#include "store/embedded/index_context.h"
#include "store/embedded/sqlite.h"
#include "store/rules.h"

namespace dlo::store {

using HoldsLane = std::function<bool(const std::string& source)>;

/// In the transaction of a death: notes it for the rules, if there is one.
Result<void> QueueForRules(Db& db, EventId id);
/// Is there anything for ApplyRules? Reads two small tables.
Result<bool> RulesWait(Db& db, Time now);
Result<RuleStep> ApplyRules(IndexContext& context, const HoldsLane& holds_lane, int n, Time now);

Result<Rule> InsertRule(Db& db, const Rule& rule, const Actor& actor, Time now);
Result<Rule> EndRule(Db& db, std::int64_t id, const Actor& actor, Time now);
Result<std::vector<Rule>> ReadRules(Db& db, int limit);
Result<RuleTrial> TryRule(Db& db, const Rule& rule);

inline constexpr int kMaxLiveRules = 100;

}  // namespace dlo::store
