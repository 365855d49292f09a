// Bulk replays as stored objects: the selection is frozen in one statement, then released in batches by the pacer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

struct RunningReplay {
  std::int64_t id = 0;
  int batch_size = 100;
  Duration stagger{};
  Time next_batch_at{};
};

class Replays {
 public:
  virtual ~Replays() = default;
  /// What a replay of `filter` would take, without changing anything.
  virtual Result<ReplayPlan> Plan(const Filter& filter) = 0;
  /// Freezes the ids (letters in state dead, or held where the filter names it; not those in another running replay,
  /// not those at the poison cap unless the filter names class poison) and writes the audit record, in one transaction.
  /// kind: "replay" | "drain". Error too_large, code replay_too_large, over options.max unless options.force.
  virtual Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                    const Actor& actor, Time now) = 0;
  /// Those with items not yet released, for the pacer.
  virtual Result<std::vector<RunningReplay>> Running() = 0;
  /// Moves the next `n` items, oldest receipt first, to waiting; those whose state changed since are marked skipped.
  /// Sets next_batch_at to now + stagger. Returns how many are still to be released.
  virtual Result<std::int64_t> ReleaseBatch(std::int64_t replay_id, int n, Time now) = 0;
  virtual Result<ReplayProgress> Get(std::int64_t replay_id) = 0;
  virtual Result<std::vector<ReplayProgress>> Recent(int limit) = 0;
};

}  // namespace dlo::store
