// What binds the dispatcher to the store over time: leases of this process and of dead ones, and stored pauses.
#include <algorithm>
#include <utility>

#include "base/log.h"
#include "dispatch/dispatcher_state.h"

namespace dlo::dispatch {
namespace {

constexpr Duration kRenewEvery = std::chrono::seconds(20);
constexpr int kRescueBatch = 200;
constexpr char kPauseReason[] = "at least 40 of the last 50 new events failed for one permanent cause";

}  // namespace

// Leases in a store that only this process may open are those of a process that died.
Result<void> Dispatcher::State::Open(Time now) {
  if (const auto expired = deps.queue.ExpireAllLeases(now); !expired) return std::unexpected(expired.error());
  const auto pauses = deps.sources.Pauses();
  if (!pauses) return std::unexpected(pauses.error());
  for (const store::SourcePause& pause : *pauses) {
    const auto found = source_index.find(pause.source);
    if (found == source_index.end()) continue;
    sources[found->second].systemic.Load(pause.fingerprint, now);
    log::Warn(
        "source_still_paused",
        {{"source", pause.source}, {"fingerprint", pause.fingerprint}, {"do", "dlo source resume " + pause.source}});
  }
  opened = true;
  return {};
}

void Dispatcher::State::JudgeSource(SourceState& source, const RunContext& context, const Transition& t, bool probe,
                                    Time now) {
  if (source.name == kProbeName) return;  // fails every time, on purpose
  const std::string fingerprint = source.systemic.fingerprint();
  switch (source.systemic.Ended(context, t, probe, now)) {
    case Systemic::Verdict::nothing:
      return;
    case Systemic::Verdict::pause:
      source.pause_to_write = {source.name, source.systemic.fingerprint(), source.systemic.message(), now};
      source.resume_to_write = false;
      log::Error("source_paused",
                 {{"source", source.name},
                  {"fingerprint", source.systemic.fingerprint()},
                  {"why", kPauseReason},
                  {"do", "mend the handler; a probe each minute looks, or run: dlo source resume " + source.name}});
      return;
    case Systemic::Verdict::resume:
      source.systemic.Clear();
      source.resume_to_write = !source.pause_to_write;  // a pause that was never written needs no end
      source.pause_to_write.reset();
      source.may_have_work = true;
      log::Info("source_resumed",
                {{"source", source.name}, {"fingerprint", fingerprint}, {"why", "a probe went through"}});
      return;
  }
}

void Dispatcher::State::WritePauses(Time now) {
  for (SourceState& source : sources) {
    Result<void> written;
    if (source.pause_to_write) {
      const Actor actor{"system", "system", kPauseReason};
      written = deps.sources.Pause(*source.pause_to_write, actor);
      if (written) source.pause_to_write.reset();
    } else if (source.resume_to_write) {
      written = deps.sources.Resume(source.name, {"system", "system", "a probe went through"}, now);
      // not_found: a person was faster.
      if (written || written.error().kind == ErrorKind::not_found) source.resume_to_write = false;
    }
    if (!written && written.error().kind != ErrorKind::not_found) {
      log::Warn("source_pause_not_stored", {{"source", source.name}, {"why", written.error().message}});
    }
  }
}

void Dispatcher::State::Rescue(Time now) {
  if (now < next_rescue) return;
  const auto expired = deps.queue.ExpiredLeases(now, kRescueBatch);
  next_rescue = now + kRescueEvery;
  if (!expired) {
    log::Warn("rescue_failed", {{"why", expired.error().message}});
    return;
  }
  std::size_t rescued = 0;
  for (const RunContext& context : *expired) {
    // Ours, alive, and only its renewal was late (the store was away), or it ended and waits to be applied.
    const auto is_it = [&](std::int64_t id, std::int64_t token) { return id == context.id && token == context.token; };
    if (std::ranges::any_of(runs, [&](const auto& r) { return is_it(r.second.context.id, r.second.context.token); })) {
      next_renew = now;
      continue;
    }
    const auto ended = [&](const Batch& batch) {
      return std::ranges::any_of(batch.finished, [&](const Transition& t) { return is_it(t.id, t.token); });
    };
    const auto dropped = [&](const std::vector<store::LeaseRef>& leases) {
      return std::ranges::any_of(leases, [&](const store::LeaseRef& l) { return is_it(l.id, l.token); });
    };
    if (ended(next) || (exchanging && ended(*exchanging)) || dropped(hand_back)) continue;
    RescueOne(context, now);
    ++rescued;
  }
  if (rescued > 0) log::Warn("leases_rescued", {{"events", rescued}});
  if (rescued == kRescueBatch) next_rescue = now;
}

void Dispatcher::State::RescueOne(const RunContext& context, Time now) {
  Outcome outcome;
  outcome.kind = OutcomeKind::crashed;
  outcome.code = "crashed";
  outcome.message = "the worker stopped before it answered";
  const auto found = source_index.find(context.source);
  if (found != source_index.end()) {
    Finish(found->second, context, outcome, now, now, false);
    return;
  }
  // Its source is not configured any more; it waits, with everybody's budget, until it is again.
  const TargetConfig defaults;
  next.finished.push_back(Decide(outcome, {defaults.retry, defaults.jitter, OnPark::release, defaults.retry_after_max},
                                 context, now, deps.random.Unit()));
  next.finished_of.push_back(context.source);
}

void Dispatcher::State::Renew(Time now) {
  if (runs.empty()) {
    next_renew = now + kRenewEvery;
    return;
  }
  if (now < next_renew) return;
  std::vector<store::LeaseRef> refs;
  for (const auto& [number, run] : runs) {
    if (!run.lost) refs.push_back({run.context.id, run.context.token});
  }
  const auto lost = deps.queue.Renew(refs, now + lease.length);
  if (!lost) {
    log::Warn("lease_renewal_failed", {{"why", lost.error().message}});
    next_renew = now + kRescueEvery;
    return;
  }
  next_renew = now + kRenewEvery;
  for (const store::LeaseRef& ref : *lost) {
    log::Warn("lease_lost", {{"event", ref.id}});
    for (auto& [number, run] : runs) {
      if (run.context.id == ref.id && run.context.token == ref.token) run.lost = true;
    }
  }
}

Result<void> Dispatcher::State::HandBack(Time now) {
  if (hand_back.empty()) return {};
  const auto done = deps.queue.HandBack(hand_back, now);
  if (!done) return std::unexpected(done.error());
  hand_back.clear();
  return {};
}

}  // namespace dlo::dispatch
