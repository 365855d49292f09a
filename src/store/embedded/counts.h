// Exact counts, gathered in memory during a transaction and written with it: events per (source, state, class), letters
// that came in per cause, and what ended of each replay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

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
  /// A letter came in: what alerts are made of, by cause.
  void Arrive(std::int64_t source, std::int64_t fingerprint, FailureClass failure_class, std::int64_t event, Time at) {
    Arrived& arrived = arrived_[{source, fingerprint}];
    if (arrived.n++ == 0) arrived.first_at = at;
    arrived.last_at = at;
    arrived.failure_class = static_cast<int>(failure_class);
    arrived.sample = std::max(arrived.sample, event);
  }
  [[nodiscard]] ReplayCounts& replays() { return replays_; }
  /// Writes what gathered; call before COMMIT.
  Result<void> Flush(Db& db);
  /// After a rollback.
  void Clear() {
    moves_.clear();
    arrived_.clear();
    replays_.Clear();
  }

 private:
  Result<void> FlushArrivals(Db& db);

  struct Arrived {
    std::int64_t n = 0;
    Time first_at{}, last_at{};
    int failure_class = 0;
    std::int64_t sample = 0;
  };
  std::map<std::tuple<std::int64_t, int, int>, std::int64_t> moves_;
  std::map<std::pair<std::int64_t, std::int64_t>, Arrived> arrived_;  // by source and fingerprint
  ReplayCounts replays_;
};

}  // namespace dlo::store
