// Exact counts, gathered in memory during a transaction and written with it: events per (source, state, class), letters
// that came in per cause, and the items of each replay that have ended.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>

#include "dlo/result.h"
#include "dlo/states.h"
#include "dlo/time.h"
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
  /// `n` items of a replay ended at `at`.
  void EndItems(std::int64_t replay_id, std::int64_t n, Time at) {
    Ended& ended = ended_[replay_id];
    ended.n += n;
    ended.at = at;
  }
  /// Writes what gathered; call before COMMIT. A running replay is done with its last item.
  Result<void> Flush(Db& db);
  /// After a rollback.
  void Clear() {
    moves_.clear();
    arrived_.clear();
    ended_.clear();
  }

 private:
  Result<void> FlushArrivals(Db& db);

  struct Arrived {
    std::int64_t n = 0;
    Time first_at{}, last_at{};
    int failure_class = 0;
    std::int64_t sample = 0;
  };
  struct Ended {
    std::int64_t n = 0;
    Time at{};
  };
  std::map<std::tuple<std::int64_t, int, int>, std::int64_t> moves_;
  std::map<std::pair<std::int64_t, std::int64_t>, Arrived> arrived_;  // by source and fingerprint
  std::map<std::int64_t, Ended> ended_;                               // by replay
};

}  // namespace dlo::store
