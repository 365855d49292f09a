// What to ask of the store, and what becomes of the answer. A source is asked only while there may be work for it:
// after a ring, when something of it falls due or ended, or when it gave all it was asked for. So a round without news
// costs the store nothing, and rounds that follow each other at once come to an end.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "dispatch/dispatcher_state.h"
#include "dispatch/shares.h"

namespace dlo::dispatch {

void Dispatcher::State::NoteDue(Time now) {
  const bool all = now >= next_ask;
  if (all) next_ask = now + kAskEvery;
  for (SourceState& source : sources) {
    if (all || (source.due && *source.due <= now)) source.may_have_work = true;
  }
}

bool Dispatcher::State::CanAsk(const SourceState& source, Time now) const {
  return source.may_have_work && (!source.systemic.paused() || source.systemic.ProbeDue(now));
}

void Dispatcher::State::MakeWants(Time now) {
  wants.clear();
  want_sources.clear();
  if (draining) return;
  std::vector<Share> shares;
  for (TargetState& target : targets) {
    const int free = std::min(target.target->capacity() - target.running, target.breaker.Permits(now));
    if (free <= 0) continue;
    shares.clear();
    for (const std::size_t index : target.sources) {
      if (CanAsk(sources[index], now)) shares.push_back({index, sources[index].systemic.paused() ? 1 : free, 0});
    }
    if (shares.empty()) continue;
    SplitFairly(free, target.next_start++, shares);
    for (const Share& share : shares) {
      if (share.share == 0) continue;
      wants.push_back({sources[share.source].name, target.name, share.share});
      want_sources.push_back(share.source);
    }
  }
}

Result<void> Dispatcher::State::Exchange(Time now) {
  if (finished.empty() && wants.empty()) return {};
  if (!finished.empty()) deps.crash_points.At("dispatch.before_apply");
  auto result = deps.queue.Exchange({finished, wants, lease, now});
  if (!result) return std::unexpected(std::move(result.error()));
  if (!result->claimed.empty()) deps.crash_points.At("dispatch.after_claim");
  NoteApplied(result->applied);
  finished.clear();
  finished_of.clear();

  std::vector<int> got(sources.size(), 0);
  for (const store::Claimed& claimed : result->claimed) {
    const auto found = source_index.find(claimed.run.source);
    if (found != source_index.end()) ++got[found->second];
  }
  for (std::size_t i = 0; i < wants.size(); ++i) {
    SourceState& source = sources[want_sources[i]];
    if (got[want_sources[i]] >= wants[i].max) continue;
    source.may_have_work = false;
    source.due = result->next_due;
  }
  StartClaimed(std::move(result->claimed), now);
  return {};
}

void Dispatcher::State::NoteApplied(const std::vector<ApplyStatus>& applied) {
  for (std::size_t i = 0; i < finished.size() && i < applied.size(); ++i) {
    const Transition& t = finished[i];
    const auto found = source_index.find(finished_of[i]);
    // An end lets the next event of its subject go.
    if (found != source_index.end()) sources[found->second].may_have_work = true;
    if (applied[i] == ApplyStatus::late) {
      figures->Late();
      log::Warn("late_answer", {{"event", t.id}, {"source", finished_of[i]}, {"outcome", Name(t.outcome.kind)}});
      continue;
    }
    if (t.replay_result != ReplayResult::none) figures->Replayed(t.replay_result);
    if (t.to != dlo::State::dead) continue;
    figures->DeadLettered(finished_of[i], t.failure_class);
    log::Info("dead_lettered", {{"event", t.id},
                                {"source", finished_of[i]},
                                {"class", dlo::Name(t.failure_class)},
                                {"code", t.outcome.code},
                                {"fingerprint", t.fingerprint}});
  }
}

void Dispatcher::State::StartClaimed(std::vector<store::Claimed> claimed, Time now) {
  for (store::Claimed& event : claimed) {
    const auto found = source_index.find(event.run.source);
    if (found == source_index.end()) {
      hand_back.push_back({event.run.id, event.run.token});
      continue;
    }
    SourceState& source = sources[found->second];
    TargetState& target = targets[source.target];
    Run run{std::move(event.run), found->second};
    run.breaker_probe = target.breaker.Claimed(now);
    if (source.systemic.ProbeDue(now)) {
      source.systemic.ProbeClaimed(now);
      run.systemic_probe = true;
    }
    if (event.corrupt) {
      Outcome outcome;
      outcome.kind = OutcomeKind::corrupt;
      outcome.code = "corrupt";
      outcome.message = "the stored bytes fail their digest; the handler was not called";
      target.breaker.NotAsked(run.breaker_probe);
      log::Error("corrupt_event", {{"event", run.context.id},
                                   {"source", source.name},
                                   {"do", "restore the journal from a backup, then replay; see dlo verify"}});
      Finish(run.source, run.context, outcome, now, now, run.systemic_probe);
      continue;
    }
    Delivery delivery;
    delivery.attempt = run.context.attempt;
    delivery.replay = run.context.replaying;
    delivery.replay_id = run.context.replaying ? run.context.replay_id : 0;
    delivery.age = std::max(Duration(0), now - event.receipt->received_at);
    delivery.suppress_notifications = delivery.replay && delivery.age > source.notify_within;
    delivery.receipt = std::move(event.receipt);
    deps.crash_points.At("dispatch.before_handler");
    const std::uint64_t number = next_run++;
    runs.emplace(number, std::move(run));
    ++target.running;
    target.target->Start(std::move(delivery),
                         [mail = mailbox, number](Ended ended) { mail->Put(number, std::move(ended)); });
  }
}

bool Dispatcher::State::MoreNow(Time now) const {
  if (draining) return false;
  return std::ranges::any_of(targets, [&](const TargetState& target) {
    if (std::min(target.target->capacity() - target.running, target.breaker.Permits(now)) <= 0) return false;
    return std::ranges::any_of(target.sources, [&](std::size_t index) { return CanAsk(sources[index], now); });
  });
}

Time Dispatcher::State::NextTime(Time now) const {
  if (!finished.empty() || MoreNow(now)) return now;
  // What is overdue here waits for something else (work, a place), which wakes the loop; it must hide no later time.
  Time next = now + kAskEvery;
  const auto not_after = [&](Time time) {
    if (time > now) next = std::min(next, time);
  };
  not_after(next_rescue);
  not_after(next_renew);
  not_after(next_ask);
  for (const TargetState& target : targets) {
    if (target.breaker.state() == Breaker::State::open) not_after(target.breaker.retry_at());
  }
  for (const SourceState& source : sources) {
    if (source.due) not_after(*source.due);
    if (const auto probe = source.systemic.next_probe_at()) not_after(*probe);
  }
  return next;
}

}  // namespace dlo::dispatch
