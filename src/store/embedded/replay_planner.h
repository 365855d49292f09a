// Makes the plan of a replay: the index thread freezes the selection in small steps, the caller's thread sums it up.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <set>
#include <string>

#include "store/embedded/index_thread.h"
#include "store/embedded/reader_pool.h"
#include "store/embedded/replay_plan.h"

namespace dlo::store {

/// Thread-safe. Without threads it freezes first and sums up then.
class ReplayPlanner {
 public:
  ReplayPlanner(IndexThread& index, ReaderPool& readers, bool threads)
      : index_(index), readers_(readers), threads_(threads) {}

  Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                            const Actor& actor, Time now);
  void DropUnfinished();

 private:
  Result<void> Freeze(PlanInMaking& plan, const Filter& filter, std::int64_t at_most, std::atomic<EventId>& frozen);
  Result<Frozen> FreezeAndSumUp(PlanInMaking& plan, const Filter& filter, std::int64_t at_most, int canary);
  Result<ReplayPlan> Make(PlanInMaking& plan, const Filter& filter, const ReplayOptions& options,
                          const std::string& kind, const Actor& actor, Time now);
  Result<void> Drop(std::int64_t replay_id);

  IndexThread& index_;
  ReaderPool& readers_;
  const bool threads_;
  std::mutex mutex_;                 // guards the next
  std::set<std::int64_t> planning_;  // plans that a call makes just now
};

}  // namespace dlo::store
