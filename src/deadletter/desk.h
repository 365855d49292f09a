// The rules of triage, in one place: what an act must say, what may be selected, how a drain ends. The admin API, the
// library and the command line all come through here; the store keeps the law of states.
#pragma once

#include <atomic>
#include <functional>
#include <string>

#include "deadletter/replay_pacer.h"
#include "dlo/dead_letters.h"
#include "env/clock.h"
#include "store/store.h"

namespace dlo::deadletter {

struct DeskDeps {
  store::Store& store;
  Clock& clock;
  ReplayPacer& pacer;
  /// Does the source keep followers of a parked event waiting (on_park = hold)?
  std::function<bool(const std::string& source)> holds_lane;
  /// Blocks the caller about that long, or until something happened; how a drain waits for outcomes.
  std::function<void(Duration)> wait;
  /// Called when letters became waiting, so that the housekeeping loop looks now. May be unset.
  std::function<void()> ring;
};

/// Thread-safe as its store is. Drain blocks its caller; everything else takes a store call or two.
class Desk final : public DeadLetters {
 public:
  explicit Desk(DeskDeps deps) : deps_(std::move(deps)) {}

  /// Ends every wait of a drain: it answers with what it has, and the replay goes on after the next start.
  void StopWaiting() { stopping_.store(true); }

  Result<Page> List(const Filter& filter, int limit, const std::string& cursor) override;
  Result<std::int64_t> Count(const Filter& filter) override;
  Result<std::vector<Group>> Groups(const Filter& filter, const std::string& by) override;
  Result<LetterDetail> Show(EventId id) override;
  Result<std::string> Payload(EventId id) override;
  Result<std::vector<AuditRecord>> AuditOf(EventId id) override;

  Result<Letter> Requeue(EventId id, const Actor& actor) override;
  Result<ReplayPlan> RequeueWhere(const Filter& filter, const ReplayOptions& options, const Actor& actor) override;
  Result<ReplayProgress> Replay(std::int64_t replay_id) override;
  Result<std::vector<ReplayProgress>> Replays(int limit) override;
  Result<ReplayItems> Items(std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                            const std::string& cursor) override;
  Result<ReplayProgress> Pause(std::int64_t replay_id, const Actor& actor) override;
  Result<ReplayProgress> Resume(std::int64_t replay_id, const Actor& actor) override;
  Result<ReplayProgress> Cancel(std::int64_t replay_id, const Actor& actor) override;
  Result<DrainStats> Drain(const std::string& source, Duration wait, const Actor& actor) override;

  Result<Letter> Hold(EventId id, const HoldRequest& request, const Actor& actor) override;
  Result<Letter> Release(EventId id, const Actor& actor) override;
  Result<Letter> Resolve(EventId id, ResolveCode code, const Actor& actor) override;
  Result<Letter> Reopen(EventId id, const Actor& actor) override;

 private:
  Result<Letter> Do(store::TriageAct act, const Actor& actor);
  Result<ReplayProgress> Steer(std::int64_t replay_id, store::ReplayAct act, const Actor& actor);
  Result<DrainStats> WaitFor(std::int64_t replay_id, Duration wait);

  DeskDeps deps_;
  std::atomic<bool> stopping_{false};
};

}  // namespace dlo::deadletter
