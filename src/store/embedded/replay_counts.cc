#include "store/embedded/replay_counts.h"

#include <algorithm>

#include "base/time_text.h"

namespace dlo::store {
namespace {

constexpr int kRecentBits = 32;  // kept; the pacer looks at the last kRecentEnds
/// The rate is told over the last 5 to 10 seconds.
constexpr std::int64_t kMarkEvery = 5'000'000;

}  // namespace

void ReplayCounts::End(std::int64_t replay_id, std::int64_t source, const ItemEnd& end, Time at) {
  Ended& ended = replays_[replay_id];
  const bool skipped = end.result >= kSkippedState;
  const auto result = static_cast<ReplayResult>(skipped ? 0 : end.result);
  const bool dead = result == ReplayResult::dead_again;
  ++ended.n;
  ended.skipped += skipped;
  ended.committed += result == ReplayResult::committed;
  ended.already_applied += result == ReplayResult::already_applied;
  ended.gone += result == ReplayResult::skipped_gone;
  ended.resolved += result == ReplayResult::resolved;
  ended.dead_again += dead;
  ended.parked += dead && end.parked;
  ended.suppressed += end.suppressed && result == ReplayResult::committed;
  ended.canary += end.canary;
  ended.canary_ended += end.canary && !skipped;
  ended.canary_dead += end.canary && dead;
  ended.at = std::max(ended.at, at);
  if (!skipped) {
    ended.recent = ended.recent << 1 | static_cast<std::uint64_t>(dead);
    ended.recent_n = std::min(ended.recent_n + 1, kRecentBits);
  }
  if (end.was == ItemState::queued) return;
  OfSource& of = sources_[{replay_id, source}];
  --of.open;
  of.retrying -= end.was == ItemState::retrying;
}

Result<void> ReplayCounts::Write(Db& db, std::int64_t replay_id, const Ended& ended) {
  static constexpr std::int64_t kMask = (std::int64_t{1} << kRecentBits) - 1;
  return db
      .Prepare(
          "UPDATE replays SET ended = ended + ?2, skipped = skipped + ?3, committed = committed + ?4, "
          "already_applied = already_applied + ?5, gone = gone + ?6, resolved = resolved + ?7, "
          "dead_again = dead_again + ?8, parked = parked + ?9, suppressed = suppressed + ?10, "
          "canary_left = canary_left - ?11, canary_ended = canary_ended + ?12, canary_dead = canary_dead + ?13, "
          "recent = ((recent << ?15) | ?14) & ?16, recent_n = min(recent_n + ?15, 32), "
          "mark_at = CASE WHEN ?17 >= next_mark_at + ?18 THEN next_mark_at ELSE mark_at END, "
          "mark_ended = CASE WHEN ?17 >= next_mark_at + ?18 THEN next_mark_ended ELSE mark_ended END, "
          "next_mark_ended = CASE WHEN ?17 >= next_mark_at + ?18 THEN ended + ?2 ELSE next_mark_ended END, "
          "next_mark_at = CASE WHEN ?17 >= next_mark_at + ?18 THEN ?17 ELSE next_mark_at END, "
          "finished_at = CASE WHEN state <> 'plan' AND ended + ?2 = count THEN ?17 ELSE finished_at END, "
          "state = CASE WHEN state IN ('canary', 'running', 'paused', 'stopped') AND ended + ?2 = count THEN 'done' "
          "ELSE state END WHERE id = ?1")
      .Bind(1, replay_id)
      .Bind(2, ended.n)
      .Bind(3, ended.skipped)
      .Bind(4, ended.committed)
      .Bind(5, ended.already_applied)
      .Bind(6, ended.gone)
      .Bind(7, ended.resolved)
      .Bind(8, ended.dead_again)
      .Bind(9, ended.parked)
      .Bind(10, ended.suppressed)
      .Bind(11, ended.canary)
      .Bind(12, ended.canary_ended)
      .Bind(13, ended.canary_dead)
      .Bind(14, static_cast<std::int64_t>(ended.recent) & kMask)
      .Bind(15, ended.recent_n)
      .Bind(16, kMask)
      .Bind(17, ToMicros(ended.at))
      .Bind(18, kMarkEvery)
      .Run();
}

Result<void> ReplayCounts::Flush(Db& db) {
  for (const auto& [replay_id, ended] : replays_) {
    if (Result<void> written = Write(db, replay_id, ended); !written) return written;
  }
  for (const auto& [key, of] : sources_) {
    Result<void> written = db.Prepare(
                                 "UPDATE replay_sources SET open = open + ?3, retrying = retrying + ?4 "
                                 "WHERE replay_id = ?1 AND source = ?2")
                               .Bind(1, key.first)
                               .Bind(2, key.second)
                               .Bind(3, of.open)
                               .Bind(4, of.retrying)
                               .Run();
    if (!written) return written;
  }
  Clear();
  return {};
}

void ReplayCounts::Clear() {
  replays_.clear();
  sources_.clear();
}

}  // namespace dlo::store
