// Bulk replays as stored objects: plan -> canary -> running -> done, and paused | stopped | cancelled. The selection is
// frozen first, then handed to the dispatcher letter by letter as the pacer says.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

/// The last ends that decide whether a replay stops itself.
inline constexpr int kRecentEnds = 20;

/// A replay in state canary or running, as the pacer must know it.
struct RunningReplay {
  struct OfSource {
    std::string source;
    std::int64_t queued = 0;    // may be handed over now: in the canary, of the canary alone
    std::int64_t open = 0;      // handed over, not ended
    std::int64_t retrying = 0;  // of open: failed at least once since
  };
  std::int64_t id = 0;
  bool canary = false;  // its canary is not over
  int batch_size = 100;
  Duration stagger{};
  Time next_batch_at{};
  int stop_percent = 50;
  int recent = 0, recent_dead = 0;  // of the last kRecentEnds that ended, and of those dead again
  std::int64_t canary_left = 0, canary_ended = 0, canary_dead = 0;
  std::vector<OfSource> sources;
};

/// What to hand over next: at most `n` letters, and of a source at most what `most` says (none named = any).
struct ReleaseOrder {
  std::int64_t replay_id = 0;
  std::int64_t n = 0;
  std::map<std::string, std::int64_t> most;
  Time now{};
  std::optional<Time> next_batch_at;  // unset: after the replay's own pause
};

enum class ReplayAct : unsigned char {
  pause,
  resume,
  cancel,
  stop,      // the system's: too many are dead again
  continue_  // the system's: the canary held
};

class Replays {
 public:
  virtual ~Replays() = default;
  /// What a replay of `filter` would take, without changing anything.
  virtual Result<ReplayPlan> Plan(const Filter& filter) = 0;
  /// Freezes the ids (letters in state dead, or held where the filter names it; not those in another replay, not those
  /// at the poison cap unless the filter names class poison) of letters received before this began, in bounded steps
  /// that let others write in between, and then, in one transaction, starts the replay and writes the audit record.
  /// Until then it is a plan, which a crash drops at the next start. kind: "replay" | "drain". Error too_large, code
  /// replay_too_large, over options.max unless options.force.
  virtual Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                    const Actor& actor, Time now) = 0;
  /// In state canary or running: with letters to hand over, or with a canary to judge.
  virtual Result<std::vector<RunningReplay>> Running() = 0;
  /// Moves items to waiting, oldest receipt first; those that are no letters of this replay any more are marked
  /// skipped. Returns how many are still to be handed over. A replay that is not in state canary or running hands over
  /// nothing and returns 0.
  virtual Result<std::int64_t> Release(const ReleaseOrder& order) = 0;
  Result<std::int64_t> ReleaseBatch(std::int64_t replay_id, std::int64_t n, Time now) {
    return Release({.replay_id = replay_id, .n = n, .most = {}, .now = now, .next_batch_at = {}});
  }
  /// Fenced by the state that the act expects, with its audit record in the same transaction. Errors: not_found
  /// replay_not_found; conflict replay_not_running, replay_not_paused, replay_ended.
  virtual Result<ReplayProgress> Act(std::int64_t replay_id, ReplayAct act, const Actor& actor, Time now) = 0;
  virtual Result<ReplayProgress> Get(std::int64_t replay_id) = 0;
  virtual Result<std::vector<ReplayProgress>> Recent(int limit) = 0;
  /// Oldest receipt first. Error invalid: bad_cursor, bad_filter.
  virtual Result<ReplayItems> Items(std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                                    const std::string& cursor) = 0;
  /// Live events (not those of replays) of each source that could be claimed now, counted up to `at_most`.
  virtual Result<std::map<std::string, std::int64_t>> LiveDue(std::span<const std::string> sources, Time now,
                                                              int at_most) = 0;
};

}  // namespace dlo::store
