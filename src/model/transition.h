// What Decide makes and the store applies: one move of one event out of `running`, with the record of its attempt.
// Plain values. A store applies a transition only if the event is running under the same lease token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dlo/event.h"
#include "dlo/outcome.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo {

/// What Decide must know of a running event; made by Claim, and by the search for expired leases.
struct RunContext {
  EventId id = 0;
  std::string source;
  std::string kind;
  std::int64_t token = 0;  // lease token: strictly rises per event
  int attempt = 1;         // number of this attempt, over all dispatches
  int tries = 1;           // this one included, in the current dispatch
  int crashes = 0;         // before this attempt, in the current dispatch
  bool replaying = false;
  std::int64_t replay_id = 0;
  int replays_failed = 0;
  Time received_at{};
};

/// How a replayed letter's replay ended; none = it goes on (or no replay).
enum class ReplayResult : std::uint8_t {
  none = 0,
  committed = 1,
  already_applied = 2,
  skipped_gone = 3,  // terminal skip: subject gone upstream
  dead_again = 4,
  resolved = 5,  // the handler said not applicable
};

struct Transition {
  EventId id = 0;
  std::int64_t token = 0;
  State to = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::optional<Time> due_at;  // to == waiting
  int crashes = 0;             // new values
  int replays_failed = 0;
  ReplayResult replay_result = ReplayResult::none;
  std::optional<ResolveCode> resolve_code;  // to == resolved
  bool suppressed = false;                  // the handler was told to send no notifications
  bool keep_lane = false;                   // to == dead on a source with on_park = hold: followers go on waiting
  std::string fingerprint;                  // set when the outcome is a failure
  Time at{};                                // when the attempt ended
  Outcome outcome;                          // recorded with the attempt
};

/// What became of a transition.
enum class ApplyStatus : std::uint8_t { applied, late };  // late: the token no longer owns the event; recorded only

}  // namespace dlo
