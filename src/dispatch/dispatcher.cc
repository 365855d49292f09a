// One round: take the mail (answers become transitions through Decide), rescue and renew leases, hand the store one
// Exchange that applies what ended and claims for free places, and start what the one before it claimed.
#include "dispatch/dispatcher.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include "base/log.h"
#include "dispatch/dispatcher_state.h"

namespace dlo::dispatch {
namespace {

constexpr int kMaxRunning = 64;
constexpr Duration kShortestLease = std::chrono::seconds(60);
constexpr Duration kLeaseMargin = std::chrono::seconds(30);  // a lease outlives the target's own deadline by this
// Moving averages of how long a target takes: over about so many attempts.
constexpr int kTookLately = 8, kTookUsually = 256;
constexpr Duration kDrainRetry = std::chrono::milliseconds(100);

}  // namespace

Dispatcher::State::State(const Config& config, DispatcherDeps d) : deps(d) {
  std::map<std::string, std::size_t> target_index;
  std::vector<std::string> target_names, source_names;
  lease.worker = fmt::format("{:016x}", deps.random.Next());
  lease.length = kShortestLease;
  for (const TargetConfig& target : config.targets) {
    target_index[target.name] = targets.size();
    target_names.push_back(target.name);
    TargetState& made = targets.emplace_back();
    made.name = target.name;
    made.target = MakeTarget(target, deps.http, deps.clock);
    made.breaker =
        Breaker({target.breaker_failures, target.breaker_percent, target.breaker_open, target.breaker_open_max});
    made.budget = RetryBudget(target.retry_budget_percent, target.retry_budget_min);
    max_running = std::max(max_running, made.target->capacity());
    if (target.type == TargetType::http) lease.length = std::max(lease.length, target.timeout + kLeaseMargin);
  }
  max_running = config.dispatch.max_running > 0 ? config.dispatch.max_running : std::max(max_running, kMaxRunning);
  for (const SourceConfig& source : config.sources) {
    const auto found = target_index.find(source.target);
    if (found == target_index.end()) {
      log::Error("source_without_target", {{"source", source.name},
                                           {"target", source.target},
                                           {"do", "name a configured target; its events wait until then"}});
      continue;
    }
    const auto& target = *std::ranges::find(config.targets, source.target, &TargetConfig::name);
    targets[found->second].sources.push_back(sources.size());
    source_index[source.name] = sources.size();
    source_names.push_back(source.name);
    SourceState& made = sources.emplace_back();
    made.name = source.name;
    made.target = found->second;
    made.policy = {target.retry, target.jitter, source.on_park, target.retry_after_max};
    made.notify_within = source.notify_within;
  }
  view = std::make_shared<View>(std::move(target_names), std::move(source_names));
  figures.emplace(deps.metrics, view);
  deps.queue.OnWork([mail = mailbox] { mail->Ring(); });
}

void Dispatcher::State::TakeMail(Time now) {
  Mail mail = mailbox->Take();
  if (mail.exchanged) Exchanged(std::move(*mail.exchanged), now);
  for (const std::string& name : mail.resumed) {
    const auto found = source_index.find(name);
    if (found == source_index.end()) continue;
    SourceState& source = sources[found->second];
    source.systemic.Clear();
    source.pause_to_write.reset();
    source.resume_to_write = false;
    source.may_have_work = true;
  }
  if (mail.rung) {
    for (SourceState& source : sources) source.may_have_work = true;
  }
  for (Mail::Answer& answer : mail.answers) TakeAnswer(std::move(answer), now);
}

void Dispatcher::State::TakeAnswer(Mail::Answer answer, Time now) {
  if (!runs.contains(answer.run)) return;  // handed back before it answered
  const Run run = EndRun(answer.run);
  if (!answer.ended.outcome) {
    Unjudged(run);
    return;
  }
  deps.crash_points.At("dispatch.after_handler");
  figures->Took(sources[run.source].target, answer.ended.took);
  NoteFlow(targets[sources[run.source].target], *answer.ended.outcome, answer.ended.took);
  Judge(run, Tidy(std::move(*answer.ended.outcome)), answer.ended.at, now);
}

/// Its place is free again.
Run Dispatcher::State::EndRun(std::uint64_t number) {
  const auto found = runs.find(number);
  Run run = std::move(found->second);
  runs.erase(found);
  --targets[sources[run.source].target].running;
  return run;
}

void Dispatcher::State::Judge(const Run& run, const Outcome& outcome, Time at, Time now) {
  TargetState& target = targets[sources[run.source].target];
  const bool ill = IsTargetFailure(outcome);
  if (target.breaker.Ended(run.breaker_probe, ill, now, deps.random.Unit())) {
    log::Warn("breaker_opened", {{"target", target.name},
                                 {"code", outcome.code},
                                 {"seconds", std::chrono::duration<double>(target.breaker.retry_at() - now).count()}});
  } else if (run.breaker_probe && !ill) {
    log::Info("breaker_closed", {{"target", target.name}});
  }
  Finish(run.source, run.context, outcome, at, now, run.systemic_probe).suppressed = run.suppressed;
}

void Dispatcher::State::Unjudged(const Run& run, std::optional<Time> due) {
  SourceState& source = sources[run.source];
  targets[source.target].breaker.NotAsked(run.breaker_probe);
  if (run.systemic_probe) source.systemic.ProbeLost();
  hand_back.push_back({run.context.id, run.context.token, due});
}

Transition& Dispatcher::State::Finish(std::size_t index, const RunContext& context, const Outcome& outcome, Time at,
                                      Time now, bool probe) {
  SourceState& source = sources[index];
  figures->Attempt(source.target, outcome.kind);
  Transition t = Decide(outcome, source.policy, context, at, deps.random.Unit());
  JudgeSource(source, context, t, probe, now);
  if (t.due_at) source.due = source.due ? std::min(*source.due, *t.due_at) : *t.due_at;
  next.finished.push_back(std::move(t));
  next.finished_of.push_back(source.name);
  return next.finished.back();
}

void Dispatcher::State::NoteFlow(TargetState& target, const Outcome& outcome, Duration took) {
  View::FlowNow& flow = target.flow;
  if (IsTargetFailure(outcome)) {
    ++flow.bad;
    return;
  }
  if (flow.good++ == 0) flow.took_lately = flow.took_usually = took;
  flow.took_lately += (took - flow.took_lately) / kTookLately;
  flow.took_usually += (took - flow.took_usually) / kTookUsually;
}

void Dispatcher::State::Show() {
  view->running.store(static_cast<int>(runs.size()), std::memory_order_relaxed);
  const std::lock_guard lock(view->mutex);
  for (std::size_t i = 0; i < targets.size(); ++i) {
    view->breakers[i] = {targets[i].breaker.state(), targets[i].breaker.retry_at()};
    view->flows[i] = targets[i].flow;
  }
  for (std::size_t i = 0; i < sources.size(); ++i) view->paused[i] = sources[i].systemic.paused() ? 1 : 0;
}

Dispatcher::Dispatcher(const Config& config, DispatcherDeps deps) : state_(std::make_unique<State>(config, deps)) {}

// The store may go on ringing a mailbox that nobody reads.
Dispatcher::~Dispatcher() {
  state_->mailbox->OnWake({});
}

Result<Time> Dispatcher::RunOnce(Time now) {
  State& s = *state_;
  if (!s.opened) {
    if (const auto ok = s.Open(now); !ok) return std::unexpected(ok.error());
  }
  s.TakeMail(now);
  s.WritePauses(now);
  s.Rescue(now);
  s.Renew(now);
  s.NoteDue(now);
  const auto handed_back = s.HandBack(now);
  if (!s.exchanging && !s.Gathers(now)) {
    s.MakeWants(now);
    s.StartExchange(now);
    s.TakeMail(now);  // the answer, from a store that does not make us wait for it
  }
  // While the store works on the next batch.
  s.StartClaimed(now);
  s.Show();
  if (s.failed) return std::unexpected(*std::exchange(s.failed, std::nullopt));
  if (!handed_back) return std::unexpected(handed_back.error());
  const bool waiting = s.mailbox->WakeForAnswers(s.exchanging || s.Gathers(now) ? kAnswersAtOnce : 1);
  return waiting ? now : s.NextTime(now);
}

void Dispatcher::OnWake(std::function<void()> wake) {
  state_->mailbox->OnWake(std::move(wake));
}

void Dispatcher::Drain(Duration grace) {
  State& s = *state_;
  s.draining = true;
  s.next.wants.clear();
  s.next.want_sources.clear();
  for (TargetState& target : s.targets) target.target->DropQueued();
  const Duration began = s.deps.clock.Monotonic();
  Duration waited{};
  bool clean = false;
  for (;;) {
    const Time now = s.deps.clock.Now();
    s.TakeMail(now);
    s.StartExchange(now);
    s.TakeMail(now);
    s.DropClaimed();
    const bool applied = !std::exchange(s.failed, std::nullopt) && !s.exchanging && s.next.finished.empty();
    // Tried whatever the store said of the other.
    clean = s.HandBack(now).has_value() && applied;
    if (clean && s.runs.empty()) break;
    const Duration left = grace - std::max(s.deps.clock.Monotonic() - began, waited);
    if (left <= Duration(0)) break;
    const Duration wait = clean || s.exchanging ? left : std::min(left, kDrainRetry);
    if (!s.mailbox->WaitForAnswer(wait)) waited += wait;
  }
  for (const auto& [number, run] : s.runs) s.Unjudged(run);
  for (TargetState& target : s.targets) {
    if (target.running > 0) target.target->Abandon();
    target.running = 0;
  }
  if (!s.runs.empty()) log::Warn("handed_back_at_stop", {{"events", s.runs.size()}});
  s.runs.clear();
  clean = s.HandBack(s.deps.clock.Now()).has_value() && s.next.finished.empty() && !s.exchanging;
  if (!clean)
    log::Error("stop_not_clean", {{"why", "the store could not commit"},
                                  {"then", "the leases are rescued at the next start; attempts may repeat"}});
  s.Show();
}

std::vector<BreakerView> Dispatcher::Breakers() const {
  const View& view = *state_->view;
  const std::lock_guard lock(view.mutex);
  std::vector<BreakerView> out;
  for (std::size_t i = 0; i < view.targets.size(); ++i) {
    const View::BreakerNow& now = view.breakers[i];
    out.push_back({view.targets[i], std::string(Name(now.state)),
                   now.state == Breaker::State::open ? std::optional(now.retry_at) : std::nullopt});
  }
  return out;
}

std::vector<TargetFlow> Dispatcher::Flows() const {
  const View& view = *state_->view;
  const std::lock_guard lock(view.mutex);
  std::vector<TargetFlow> out;
  for (std::size_t i = 0; i < view.targets.size(); ++i) {
    const View::FlowNow& now = view.flows[i];
    TargetFlow& flow = out.emplace_back();
    flow.target = view.targets[i];
    // Which sources a target has never changes.
    for (const std::size_t source : state_->targets[i].sources) {
      flow.sources.push_back({view.sources[source], view.paused[source] != 0});
    }
    flow.capacity = state_->targets[i].target->capacity();
    flow.closed = view.breakers[i].state == Breaker::State::closed;
    flow.good = now.good;
    flow.bad = now.bad;
    flow.live = now.live;
    flow.took_lately = now.took_lately;
    flow.took_usually = now.took_usually;
  }
  return out;
}

int Dispatcher::running() const {
  return state_->view->running.load(std::memory_order_relaxed);
}

bool Dispatcher::waits_for_store() const {
  return state_->exchanging != nullptr;
}

void Dispatcher::Resumed(const std::string& source) {
  state_->mailbox->PutResumed(source);
}

}  // namespace dlo::dispatch
