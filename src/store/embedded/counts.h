// Exact counts, gathered in memory during a transaction and written with it: events per (source, state, class), and
// what ended of each replay.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>

#include "dlo/result.h"
#include "dlo/states.h"
#include "store/embedded/replay_counts.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

class Counts {
 public:
  /// source is names.id.
  void Add(std::int64_t source, State state, FailureClass failure_class, std::int64_t delta) {
    moves_[{source, static_cast<int>(state), static_cast<int>(failure_class)}] += delta;
  }
  void Move(std::int64_t source, State from, FailureClass from_class, State to, FailureClass to_class) {
    Add(source, from, from_class, -1);
    Add(source, to, to_class, 1);
  }
  [[nodiscard]] ReplayCounts& replays() { return replays_; }
  /// Writes what gathered; call before COMMIT.
  Result<void> Flush(Db& db);
  /// After a rollback.
  void Clear() {
    moves_.clear();
    replays_.Clear();
  }

 private:
  std::map<std::tuple<std::int64_t, int, int>, std::int64_t> moves_;
  ReplayCounts replays_;
};

}  // namespace dlo::store
