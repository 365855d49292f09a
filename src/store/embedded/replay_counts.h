// What ended of each replay during a transaction, gathered in memory and written with it: the counts of its row, the
// last ends by which it may stop itself, and the marks from which its rate is told.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "dlo/result.h"
#include "dlo/time.h"
#include "model/transition.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Values of replay_items.state.
enum class ItemState : std::uint8_t { queued = 0, open = 1, retrying = 2, ended = 3 };
/// Values of replay_items.result beside those of ReplayResult: why it was skipped.
inline constexpr int kSkippedState = 100;  // it is no longer a letter this replay may take
inline constexpr int kSkippedOtherReplay = 101;
inline constexpr int kSkippedPoison = 102;
inline constexpr int kSkippedErased = 103;
inline constexpr int kSkippedCancelled = 104;

struct ItemEnd {
  ItemState was = ItemState::open;
  bool canary = false;
  int result = 0;
  bool parked = false;      // dead again, and no longer class exhausted
  bool suppressed = false;  // the handler was told to send no notifications
};

class ReplayCounts {
 public:
  void End(std::int64_t replay_id, std::int64_t source, const ItemEnd& end, Time at);
  /// Of a letter handed over: its first failure since.
  void Retrying(std::int64_t replay_id, std::int64_t source) { ++sources_[{replay_id, source}].retrying; }
  /// Call before COMMIT. A replay is done with its last item.
  Result<void> Flush(Db& db);
  void Clear();

 private:
  struct Ended {
    std::int64_t n = 0, skipped = 0, committed = 0, already_applied = 0, gone = 0, resolved = 0, dead_again = 0;
    std::int64_t parked = 0, suppressed = 0, canary = 0, canary_ended = 0, canary_dead = 0;
    std::uint64_t recent = 0;
    int recent_n = 0;
    Time at{};
  };
  struct OfSource {
    std::int64_t open = 0, retrying = 0;  // changes
  };
  static Result<void> Write(Db& db, std::int64_t replay_id, const Ended& ended);

  std::map<std::int64_t, Ended> replays_;
  std::map<std::pair<std::int64_t, std::int64_t>, OfSource> sources_;
};

}  // namespace dlo::store
