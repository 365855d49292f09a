#include "deadletter/replay_pacer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "dispatch/shares.h"

namespace dlo::deadletter {
namespace {

constexpr int kLiveCounted = 64;

std::string TooMany(const char* of, std::int64_t dead, std::int64_t ended, int percent) {
  return fmt::format("{} of {} {} are dead again, more than {} %: look at them, then resume or cancel", dead, ended, of,
                     percent);
}

bool Over(std::int64_t dead, std::int64_t ended, int percent) {
  return ended > 0 && dead * 100 > ended * percent;
}

}  // namespace

Result<ReplayPacer::Room> ReplayPacer::LookAround(const std::vector<store::RunningReplay>& running, Time now) {
  Room room;
  if (!flows_) return room;
  room.limited = true;
  room.flows = flows_();
  std::map<std::string, store::RunningReplay::OfSource> under_way;
  std::vector<std::string> names;
  for (const store::RunningReplay& replay : running) {
    for (const auto& of : replay.sources) {
      auto& sum = under_way[of.source];
      sum.open += of.open;
      sum.retrying += of.retrying;
    }
  }
  for (const auto& [name, of] : under_way) names.push_back(name);
  const auto live = replays_.LiveDue(names, now, kLiveCounted);
  if (!live) return std::unexpected(live.error());
  for (const dispatch::TargetFlow& flow : room.flows) {
    std::int64_t open = 0, retrying = 0, live_due = 0;
    bool concerned = false;
    for (const auto& source : flow.sources) {
      const auto found = under_way.find(source.source);
      if (found == under_way.end()) continue;
      concerned = true;
      open += found->second.open - found->second.retrying;
      retrying += found->second.retrying;
      // Those of a paused source wait for a person, not for a place.
      if (const auto due = live->find(source.source); due != live->end() && !source.paused) live_due += due->second;
    }
    const std::int64_t window = concerned ? windows_[flow.target].Look(flow, live_due, now) : 0;
    room.left.push_back(retrying >= kMostRetrying ? 0 : std::max<std::int64_t>(window - open, 0));
  }
  return room;
}

Result<void> ReplayPacer::Say(std::int64_t replay_id, store::ReplayAct act, const std::string& why, Time now) {
  const bool stop = act == store::ReplayAct::stop;
  const auto done = replays_.Act(replay_id, act, {.name = "system", .role = "admin", .reason = why}, now);
  // Somebody else was first; what he said holds.
  if (!done && done.error().kind == ErrorKind::conflict) return {};
  if (!done) return std::unexpected(done.error());
  if (stop) {
    log::Error("replay_stopped", {{"replay", replay_id},
                                  {"why", why},
                                  {"do", fmt::format("see `dlo replays items {} --result dead_again`", replay_id)}});
  } else {
    log::Info("replay_canary_held", {{"replay", replay_id}, {"why", why}});
  }
  return {};
}

Result<bool> ReplayPacer::Judge(const store::RunningReplay& replay, Time now) {
  const auto say = [&](store::ReplayAct act, const std::string& why) -> Result<bool> {
    if (auto said = Say(replay.id, act, why, now); !said) return std::unexpected(said.error());
    return false;
  };
  if (replay.recent >= store::kRecentEnds && Over(replay.recent_dead, replay.recent, replay.stop_percent)) {
    return say(store::ReplayAct::stop,
               TooMany("that ended last", replay.recent_dead, replay.recent, replay.stop_percent));
  }
  if (!replay.canary || replay.canary_left > 0) return true;
  if (Over(replay.canary_dead, replay.canary_ended, replay.stop_percent)) {
    return say(store::ReplayAct::stop,
               TooMany("of the canary", replay.canary_dead, replay.canary_ended, replay.stop_percent));
  }
  return say(store::ReplayAct::continue_,
             fmt::format("the canary held: {} of {} are dead again", replay.canary_dead, replay.canary_ended));
}

store::ReleaseOrder ReplayPacer::Order(const store::RunningReplay& replay, Room& room, Time now) {
  store::ReleaseOrder order{
      .replay_id = replay.id, .n = replay.batch_size, .most = {}, .now = now, .next_batch_at = {}};
  if (!room.limited) return order;
  std::int64_t batch = replay.batch_size;
  order.n = 0;
  for (std::size_t t = 0; t < room.flows.size(); ++t) {
    std::vector<dispatch::Share> shares;
    std::vector<std::string> names;
    for (const auto& of : replay.sources) {
      const auto mine = std::ranges::find(room.flows[t].sources, of.source, &dispatch::TargetFlow::OfSource::source);
      if (of.queued == 0 || mine == room.flows[t].sources.end() || mine->paused) continue;
      shares.push_back({shares.size(), static_cast<int>(std::min<std::int64_t>(of.queued, batch)), 0});
      names.push_back(of.source);
    }
    dispatch::SplitFairly(static_cast<int>(std::min(batch, room.left[t])), 0, shares);
    for (const dispatch::Share& share : shares) {
      if (share.share == 0) continue;
      order.most[names[share.source]] = share.share;
      order.n += share.share;
      room.left[t] -= share.share;
      batch -= share.share;
    }
  }
  // A part of a batch is followed by that part of the pause.
  order.next_batch_at = now + replay.stagger * order.n / replay.batch_size;
  return order;
}

Result<Time> ReplayPacer::RunOnce(Time now) {
  const std::lock_guard lock(mutex_);
  Time next = now + kLookAgain;
  auto running = replays_.Running();
  if (!running) return std::unexpected(running.error());
  if (running->empty()) {
    windows_.clear();
    return next;
  }
  auto room = LookAround(*running, now);
  if (!room) return std::unexpected(room.error());
  bool waits = false, moved = false;
  for (const store::RunningReplay& replay : *running) {
    const auto goes_on = Judge(replay, now);
    if (!goes_on) return std::unexpected(goes_on.error());
    if (!*goes_on) {
      next = now;  // to see what it is now
      continue;
    }
    // A clock that was set back must not hold it up.
    if (replay.next_batch_at > now && replay.next_batch_at <= now + replay.stagger) {
      next = std::min(next, replay.next_batch_at);
      continue;
    }
    const store::ReleaseOrder order = Order(replay, *room, now);
    if (order.n == 0) {
      waits = true;
      continue;
    }
    // One batch a round each: a replay without a pause must not starve the others.
    auto left = replays_.Release(order);
    if (!left) return std::unexpected(left.error());
    moved = true;
    if (*left > 0) next = std::min(next, order.next_batch_at.value_or(now + replay.stagger));
  }
  wait_ = moved ? kLookSoon : std::min(wait_ * 2, kLookLate);
  if (waits || (moved && room->limited)) next = std::min(next, now + wait_);
  if (room->limited && next > now) next = std::max(next, now + kLookSoon);
  return next;
}

}  // namespace dlo::deadletter
