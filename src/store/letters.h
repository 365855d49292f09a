// Reading events and dead letters, and the acts of triage on them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/letters.h"
#include "dlo/result.h"
#include "model/law.h"

namespace dlo::store {

struct TriageAct {
  EventId id = 0;
  Act act = Act::replay;                    // replay, hold, release, resolve, reopen
  HoldRequest hold;                         // hold
  std::optional<ResolveCode> resolve_code;  // resolve
  bool keep_lane = false;                   // hold, release, reopen: the source says on_park = hold
};

class Letters {
 public:
  virtual ~Letters() = default;
  /// Newest receipt first; cursor is the last id of the page before, as decimal text. Error invalid for a bad cursor.
  virtual Result<Page> List(const Filter& filter, int limit, const std::string& cursor) = 0;
  virtual Result<std::int64_t> Count(const Filter& filter) = 0;
  virtual Result<std::vector<Group>> Groups(const Filter& filter, const std::string& by) = 0;
  virtual Result<LetterDetail> Show(EventId id) = 0;
  virtual Result<std::vector<Attempt>> Attempts(EventId id) = 0;
  virtual Result<std::string> Payload(EventId id) = 0;
  /// One transaction with full flush: each act's state is checked where it is written, and each leaves its audit record
  /// there. One result per act; a refused act changes nothing and stops no other. Errors of an act: not_found,
  /// already_replayed, not_dead_lettered, in_replay (conflict; the message names the replay), not_held, not_resolved.
  virtual Result<std::vector<Result<Letter>>> Triage(std::span<const TriageAct> acts, const Actor& actor, Time now) = 0;
  /// The limits of `on_park = hold`: letters of `source` that hold their subject with more than `max_behind` events
  /// waiting behind them, or that were parked before `older_than`, let their followers go. Returns the letters' ids;
  /// each leaves an audit record.
  virtual Result<std::vector<EventId>> ReleaseLanes(const std::string& source, std::int64_t max_behind, Time older_than,
                                                    const Actor& actor, Time now) = 0;
};

}  // namespace dlo::store
