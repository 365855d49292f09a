#include "store/embedded/replay_planner.h"

#include <algorithm>
#include <thread>

#include "base/log.h"
#include "store/pace.h"

namespace dlo::store {

/// Each step is a transaction of its own, small enough that receipts and claims between two of them hardly wait.
/// `frozen` tells how far it is.
Result<void> ReplayPlanner::Freeze(PlanInMaking& plan, const Filter& filter, std::int64_t at_most,
                                   std::atomic<EventId>& frozen) {
  Result<void> done;
  while (done && !plan.complete && (at_most < 0 || plan.frozen < at_most)) {
    const std::int64_t left = at_most < 0 ? -1 : at_most - plan.frozen;
    done =
        index_.Run(Flush::normal, [&](IndexContext& c) { return FreezeStep(c.db, filter, plan, kFreezeStep, left); });
    if (!done) break;
    frozen.store(plan.looked_at);
    frozen.notify_one();
  }
  frozen.store(INT64_MAX);
  frozen.notify_one();
  return done;
}

/// The index thread freezes, and this one sums up what was frozen before.
Result<Frozen> ReplayPlanner::FreezeAndSumUp(PlanInMaking& plan, const Filter& filter, std::int64_t at_most,
                                             int canary) {
  std::atomic<EventId> frozen{0};
  Result<void> done;
  std::thread freezer;
  if (threads_) {
    freezer = std::thread([&] { done = Freeze(plan, filter, at_most, frozen); });
  } else {
    done = Freeze(plan, filter, at_most, frozen);
  }
  PlanSum sum(plan.id, canary);
  Result<void> summed;
  for (EventId through = 0; through != INT64_MAX && summed;) {
    frozen.wait(through);
    through = frozen.load();
    summed = readers_.Read([&](Db& db) { return sum.Advance(db, through); });
  }
  if (freezer.joinable()) freezer.join();
  if (!done) return std::unexpected(done.error());
  if (!summed) return std::unexpected(summed.error());
  return readers_.Read([&](Db& db) -> Result<Frozen> {
    auto all = sum.Finish(db);
    if (!all) return all;
    const auto others = CountInOthers(db, filter, plan.id);
    if (!others) return std::unexpected(others.error());
    all->plan.in_other_replay = *others;
    return all;
  });
}

Result<ReplayPlan> ReplayPlanner::Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                         const Actor& actor, Time now) {
  Filter selected = filter;
  if (kind == "drain") selected.classes = {FailureClass::exhausted};  // whatever else was asked for
  std::ranges::sort(selected.ids);
  selected.ids.erase(std::ranges::unique(selected.ids).begin(), selected.ids.end());
  DropUnfinished();
  auto plan = index_.Run(Flush::normal, [&](IndexContext& c) {
    auto begun = BeginPlan(c.db, selected, options, kind, actor, now);
    const std::lock_guard lock(mutex_);
    if (begun) planning_.insert(begun->id);
    return begun;
  });
  if (!plan) return std::unexpected(plan.error());
  auto made = Make(*plan, selected, options, kind, actor, now);
  if (!made) (void)Drop(plan->id);  // else it is dropped before the next plan, or at the next start
  const std::lock_guard lock(mutex_);
  planning_.erase(plan->id);
  return made;
}

Result<ReplayPlan> ReplayPlanner::Make(PlanInMaking& plan, const Filter& filter, const ReplayOptions& options,
                                       const std::string& kind, const Actor& actor, Time now) {
  // A max of all there is must not wrap around when one is added.
  const std::int64_t at_most = options.force ? -1 : std::min(options.max, INT64_MAX - 1) + 1;
  auto frozen = FreezeAndSumUp(plan, filter, at_most, options.canary);
  if (!frozen) return std::unexpected(frozen.error());
  if (!options.force && plan.frozen > options.max) {
    if (auto dropped = Drop(plan.id); !dropped) return std::unexpected(dropped.error());  // they would not count
    const auto all = readers_.Read([&](Db& db) { return PlanReplay(db, filter); });
    return std::unexpected(all ? TooLarge(all->count, options.max) : all.error());
  }
  auto started = index_.Run(
      Flush::full, [&](IndexContext& c) { return StartPlan(c.db, *frozen, filter, options, kind, actor, now); });
  if (!started) return std::unexpected(started.error());
  ReplayPlan made = std::move(frozen->plan);
  made.over_cap = made.count > options.max;
  if (const auto pace = PaceOf(options)) made.estimated_seconds = EstimateSeconds(made.count, *pace);
  return made;
}

Result<void> ReplayPlanner::Drop(std::int64_t replay_id) {
  for (;;) {
    const auto gone =
        index_.Run(Flush::normal, [&](IndexContext& c) { return DropPlanStep(c.db, replay_id, kFreezeStep); });
    if (!gone) return std::unexpected(gone.error());
    if (*gone) return {};
  }
}

/// At the start, and before each new plan in case that dropping one failed. Nobody was told of them: whoever asked had
/// no answer.
void ReplayPlanner::DropUnfinished() {
  auto plans = readers_.Read([](Db& db) { return UnfinishedPlans(db); });
  if (!plans) return;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(*plans, [this](std::int64_t id) { return planning_.contains(id); });
  }
  for (const std::int64_t id : *plans) {
    const auto dropped = Drop(id);
    log::Info("replay_plan_dropped", {{"replay", id},
                                      {"why", "its making was cut off before it was complete"},
                                      {"result", dropped ? "dropped" : dropped.error().message}});
  }
}

}  // namespace dlo::store
