// What to ask of the store, and what becomes of the answer. A source is asked only while there may be work for it:
// after a ring, when something of it falls due or ended, or when it gave all it was asked for. So a round without news
// costs the store nothing, and rounds that follow each other at once come to an end.
#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.h"
#include "dispatch/dispatcher_state.h"
#include "dispatch/shares.h"

namespace dlo::dispatch {
namespace {

constexpr Duration kBudgetWordEvery = std::chrono::minutes(1);

}  // namespace

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

int Dispatcher::State::Places(const TargetState& target, int wanted, Time now) const {
  const int own = std::min(target.target->capacity() - target.running, target.breaker.Permits(now));
  const int in_all = max_running - static_cast<int>(runs.size()) - wanted;
  // Targets that hang hold their places; the others must not wait for them.
  return std::min(own, std::max(in_all, target.running == 0 ? 1 : 0));
}

void Dispatcher::State::MakeWants(Time now) {
  next.wants.clear();
  next.want_sources.clear();
  if (draining) return;
  std::vector<Share> shares;
  int wanted = 0;
  const std::size_t first = next_target++;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    TargetState& target = targets[(first + i) % targets.size()];
    const int free = Places(target, wanted, now);
    if (free <= 0) continue;
    shares.clear();
    for (const std::size_t index : target.sources) {
      if (CanAsk(sources[index], now)) shares.push_back({index, sources[index].systemic.paused() ? 1 : free, 0});
    }
    if (shares.empty()) continue;
    SplitFairly(free, target.next_start++, shares);
    for (const Share& share : shares) {
      if (share.share == 0) continue;
      wanted += share.share;
      next.wants.push_back({sources[share.source].name, target.name, share.share});
      next.want_sources.push_back(share.source);
    }
  }
}

bool Dispatcher::State::Gathers(Time now) const {
  return runs.size() >= kGatherFrom && next.finished.size() < runs.size() && answered_at <= now &&
         now < answered_at + kGatherEnds;
}

void Dispatcher::State::StartExchange(Time now) {
  if (exchanging || (next.finished.empty() && next.wants.empty())) return;
  if (!next.finished.empty()) deps.crash_points.At("dispatch.before_apply");
  const auto batch = std::make_shared<Batch>(std::exchange(next, {}));
  exchanging = batch;
  batch->lease_until = now + lease.length;
  // What comes from now on may come too late for its claims.
  for (const std::size_t source : batch->want_sources) sources[source].may_have_work = false;
  deps.queue.StartExchange({batch->finished, batch->wants, lease, now},
                           [mail = mailbox, batch, on = std::this_thread::get_id()](auto result) {
                             mail->PutExchanged(std::move(result), on);
                           });
}

void Dispatcher::State::Exchanged(Result<store::ExchangeResult> result, Time now) {
  const std::shared_ptr<Batch> batch = std::exchange(exchanging, nullptr);
  answered_at = now;
  if (!result) {
    failed = std::move(result.error());
    std::ranges::move(next.finished, std::back_inserter(batch->finished));
    std::ranges::move(next.finished_of, std::back_inserter(batch->finished_of));
    next.finished = std::move(batch->finished);
    next.finished_of = std::move(batch->finished_of);
    for (const std::size_t source : batch->want_sources) sources[source].may_have_work = true;
    return;
  }
  if (!result->claimed.empty()) deps.crash_points.At("dispatch.after_claim");
  NoteApplied(*batch, result->applied);

  std::vector<int> got(sources.size(), 0);
  for (const store::Claimed& event : result->claimed) {
    const auto found = source_index.find(event.run.source);
    if (found != source_index.end()) ++got[found->second];
  }
  for (std::size_t i = 0; i < batch->wants.size(); ++i) {
    SourceState& source = sources[batch->want_sources[i]];
    if (got[batch->want_sources[i]] >= batch->wants[i].max) {
      source.may_have_work = true;
    } else {
      source.due = result->next_due;
    }
  }
  NoteClaimed(std::move(result->claimed), batch->lease_until, now);
}

void Dispatcher::State::NoteApplied(const Batch& batch, const std::vector<ApplyStatus>& applied) {
  for (std::size_t i = 0; i < batch.finished.size() && i < applied.size(); ++i) {
    const Transition& t = batch.finished[i];
    const auto found = source_index.find(batch.finished_of[i]);
    // An end lets the next event of its subject go. Where this Exchange also claimed, it has seen to that.
    if (found != source_index.end() &&
        std::ranges::find(batch.want_sources, found->second) == batch.want_sources.end()) {
      sources[found->second].may_have_work = true;
    }
    if (applied[i] == ApplyStatus::late) {
      figures->Late();
      log::Warn("late_answer", {{"event", t.id}, {"source", batch.finished_of[i]}, {"outcome", Name(t.outcome.kind)}});
      continue;
    }
    if (t.replay_result != ReplayResult::none) figures->Replayed(t.replay_result);
    if (t.suppressed && t.replay_result == ReplayResult::committed) figures->Suppressed(batch.finished_of[i]);
    if (t.to != dlo::State::dead) continue;
    figures->DeadLettered(batch.finished_of[i], t.failure_class);
    log::Info("dead_lettered", {{"event", t.id},
                                {"source", batch.finished_of[i]},
                                {"class", dlo::Name(t.failure_class)},
                                {"code", t.outcome.code},
                                {"fingerprint", t.fingerprint}});
  }
}

bool Dispatcher::State::WithinBudget(const SourceState& source, TargetState& target, const RunContext& run, Time now) {
  if (run.tries <= 1) {
    target.budget.First(now);
    return true;
  }
  // A probe is paced by its breaker; put off, it would keep the target closed.
  if (target.breaker.state() != Breaker::State::closed || source.systemic.ProbeDue(now)) {
    target.budget.Force(now);
    return true;
  }
  return target.budget.Take(now);
}

// It was claimed before it could be known for a retry: to leave it out of the claim, the store would have to step over
// all that wait for the budget, each time. So it goes back at once, uncounted, and falls due when the budget has room.
void Dispatcher::State::Defer(SourceState& source, const RunContext& run, Time now) {
  TargetState& target = targets[source.target];
  const Time due = target.budget.Defer(now);
  hand_back.push_back({run.id, run.token, due});
  source.due = source.due ? std::min(*source.due, due) : due;
  figures->Deferred(source.target);
  if (now < target.next_budget_word) return;
  target.next_budget_word = now + kBudgetWordEvery;
  log::Warn("retries_deferred",
            {{"target", target.name},
             {"why", "retries are over their share of the first calls"},
             {"do", "see what the handler fails at; target.retry_budget_percent and retry_budget_min set the share"}});
}

/// Ours from here on: counted, renewed, and handed back if they cannot be started.
void Dispatcher::State::NoteClaimed(std::vector<store::Claimed> events, Time lease_until, Time now) {
  for (store::Claimed& event : events) {
    const auto found = source_index.find(event.run.source);
    if (found == source_index.end()) {
      hand_back.push_back({event.run.id, event.run.token});
      continue;
    }
    SourceState& source = sources[found->second];
    TargetState& target = targets[source.target];
    if (!WithinBudget(source, target, event.run, now)) {
      Defer(source, event.run, now);
      continue;
    }
    Run run{.context = event.run, .source = found->second, .lease_until = lease_until};
    run.breaker_probe = target.breaker.Claimed(now);
    if (source.systemic.ProbeDue(now)) {
      source.systemic.ProbeClaimed(now);
      run.systemic_probe = true;
    }
    ++target.running;
    runs.emplace(next_run, std::move(run));
    claimed.push_back(std::move(event));
    claimed_run.push_back(next_run++);
  }
}

void Dispatcher::State::StartClaimed(Time now) {
  if (claimed.empty()) return;
  std::vector<store::Claimed> events = std::exchange(claimed, {});
  const std::vector<std::uint64_t> numbers = std::exchange(claimed_run, {});
  deps.queue.Load(events);
  for (std::size_t i = 0; i < events.size(); ++i) StartOne(numbers[i], std::move(events[i]), now);
}

void Dispatcher::State::StartOne(std::uint64_t number, store::Claimed event, Time now) {
  if (!event.receipt) {
    Unjudged(EndRun(number), now + store::kUnreadableWait);
    return;
  }
  Run& run = runs.at(number);
  run.context.kind = event.receipt->kind;  // a claim that came without its receipt could not say
  if (now >= run.lease_until) {            // this process stood still
    log::Warn("claimed_too_long_ago", {{"event", run.context.id}});
    Unjudged(EndRun(number));
    return;
  }
  const SourceState& source = sources[run.source];
  TargetState& target = targets[source.target];
  if (event.corrupt) {
    Outcome outcome;
    outcome.kind = OutcomeKind::corrupt;
    outcome.code = "corrupt";
    outcome.message = "the stored bytes fail their digest; the handler was not called";
    log::Error("corrupt_event", {{"event", run.context.id},
                                 {"source", source.name},
                                 {"do", "restore the journal from a backup, then replay; see dlo verify"}});
    const Run ended = EndRun(number);
    target.breaker.NotAsked(ended.breaker_probe);
    Finish(ended.source, ended.context, outcome, now, now, ended.systemic_probe);
    return;
  }
  Delivery delivery;
  delivery.attempt = run.context.attempt;
  delivery.replay = run.context.replaying;
  delivery.replay_id = run.context.replaying ? run.context.replay_id : 0;
  delivery.age = std::max(Duration(0), now - event.receipt->received_at);
  delivery.suppress_notifications = delivery.replay && delivery.age > source.notify_within;
  target.flow.live += delivery.replay ? 0 : 1;
  run.suppressed = delivery.suppress_notifications;
  delivery.receipt = std::move(event.receipt);
  deps.crash_points.At("dispatch.before_handler");
  target.target->Start(std::move(delivery),
                       [mail = mailbox, number](Ended ended) { mail->Put(number, std::move(ended)); });
}

/// Claimed too late to be started.
void Dispatcher::State::DropClaimed() {
  claimed.clear();
  for (const std::uint64_t number : std::exchange(claimed_run, {})) Unjudged(EndRun(number));
}

bool Dispatcher::State::MoreNow(Time now) const {
  if (draining) return false;
  return std::ranges::any_of(targets, [&](const TargetState& target) {
    if (Places(target, 0, now) <= 0) return false;
    return std::ranges::any_of(target.sources, [&](std::size_t index) { return CanAsk(sources[index], now); });
  });
}

Time Dispatcher::State::NextTime(Time now) const {
  if (!exchanging && (!next.finished.empty() || !hand_back.empty() || MoreNow(now))) {
    return Gathers(now) ? answered_at + kGatherEnds : now;
  }
  // What is overdue here waits for something else (work, a place), which wakes the loop; it must hide no later time.
  Time at = now + kAskEvery;
  const auto not_after = [&](Time time) {
    if (time > now) at = std::min(at, time);
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
  return at;
}

}  // namespace dlo::dispatch
