// Hands the letters of replays to the dispatcher, oldest receipt first: a batch, a pause, a batch, and never more at a
// time than the window of their target lets through. Judges canaries, and stops a replay of which too many die again.
// What it needs to go on after a restart is stored with the replay; its windows begin anew.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "deadletter/replay_window.h"
#include "dlo/result.h"
#include "dlo/time.h"
#include "store/replays.h"

namespace dlo::deadletter {

/// Thread-safe: the housekeeping loop and a waiting drain may both call it; a batch is never handed over early.
class ReplayPacer {
 public:
  using Flows = std::function<std::vector<dispatch::TargetFlow>()>;

  /// `flows` as of Dispatcher::Flows. Unset: no window is kept.
  explicit ReplayPacer(store::Replays& replays, Flows flows = {}) : replays_(replays), flows_(std::move(flows)) {}

  /// Hands over what is due and has room, then returns when to look again: at the next batch, soon while it waits for
  /// room, or `now` + kLookAgain if nothing is under way.
  Result<Time> RunOnce(Time now);

  static constexpr Duration kLookAgain = std::chrono::seconds(1);
  /// While a window is full: soon, and ever later as long as nothing ends.
  static constexpr Duration kLookSoon = std::chrono::milliseconds(5), kLookLate = std::chrono::milliseconds(200);
  /// Letters of one target that failed and wait for a retry are not in its window; over so many nothing follows.
  static constexpr std::int64_t kMostRetrying = 1'000;

 private:
  /// Room of each target, and of which target each source is.
  struct Room {
    bool limited = false;
    std::vector<dispatch::TargetFlow> flows;
    std::vector<std::int64_t> left;  // one for one
  };
  Result<Room> LookAround(const std::vector<store::RunningReplay>& running, Time now);
  /// True: it may hand over more.
  Result<bool> Judge(const store::RunningReplay& replay, Time now);
  Result<void> Say(std::int64_t replay_id, store::ReplayAct act, const std::string& why, Time now);
  static store::ReleaseOrder Order(const store::RunningReplay& replay, Room& room, Time now);

  store::Replays& replays_;
  Flows flows_;
  std::mutex mutex_;
  std::map<std::string, ReplayWindow> windows_;  // by target
  Duration wait_ = kLookSoon;
};

}  // namespace dlo::deadletter
