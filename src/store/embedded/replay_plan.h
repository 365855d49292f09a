// How a replay's selection is frozen without anybody having to wait for it: a plan is made, letters go into it in steps
// of bounded work, a reader sums it up, and one last transaction starts it. What a crash leaves is a plan, and plans
// are dropped at the next start.
//
// Functions that write work inside the caller's transaction on the writing connection.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/embedded/counts.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// A plan that is being frozen.
struct PlanInMaking {
  std::int64_t id = 0;
  EventId through = 0;  // letters up to this one are looked at
  EventId looked_at = 0;
  std::size_t ids = 0;  // of the filter's ids: looked at
  std::int64_t frozen = 0;
  bool complete = false;
};

/// Reads only. `over_cap` and `estimated_seconds` are by the default options; the caller who has others sets them anew
/// (store/pace.h).
Result<ReplayPlan> PlanReplay(Db& db, const Filter& filter);

/// Error invalid: bad_kind, actor_missing, bad_replay_options, and what is wrong with the filter.
Result<PlanInMaking> BeginPlan(Db& db, const Filter& filter, const ReplayOptions& options, const std::string& kind,
                               const Actor& actor, Time now);
/// Looks at the next `step` letters and takes those selected, at most `at_most` (negative: all). The filter's ids must
/// be sorted.
Result<void> FreezeStep(Db& db, const Filter& filter, PlanInMaking& plan, int step, std::int64_t at_most);
inline constexpr int kFreezeStep = 8'192;

/// What a plan has frozen.
struct Frozen {
  ReplayPlan plan;
  std::map<std::int64_t, std::int64_t> by_source;
  std::vector<std::pair<std::int64_t, EventId>> canary;  // source, letter
};
/// Sums a plan up while it is being frozen. Reads only, on any connection: nobody changes a plan's letters. Its memory
/// does not grow with the plan.
class PlanSum {
 public:
  PlanSum(std::int64_t replay_id, int canary);
  ~PlanSum();
  PlanSum(PlanSum&&) noexcept;
  /// Takes in what has been frozen of letters up to `through`.
  Result<void> Advance(Db& db, EventId through);
  /// Once all is frozen, and taken in.
  Result<Frozen> Finish(Db& db);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
/// Letters that `filter` selects and another replay has.
Result<std::int64_t> CountInOthers(Db& db, const Filter& filter, std::int64_t replay_id);

/// Starts it: canary or running, or done if there is nothing to do. With its audit record.
Result<void> StartPlan(Db& db, const Frozen& frozen, const Filter& filter, const ReplayOptions& options,
                       const std::string& kind, const Actor& actor, Time now);
/// Deletes some of a plan's letters, and the plan with the last of them. True: it is gone.
Result<bool> DropPlanStep(Db& db, std::int64_t replay_id, int step);
Result<std::vector<std::int64_t>> UnfinishedPlans(Db& db);

/// "The filter selects 10 letters and the cap is 9. ..."
Error TooLarge(std::int64_t count, std::int64_t max);

}  // namespace dlo::store
