// The inside of the dispatcher, shared by its source files: dispatcher.cc (mail, rounds, drain), dispatcher_claims.cc
// (what to ask of the store and what to do with it), dispatcher_leases.cc (leases and pauses). Touched by the loop's
// thread only, except mailbox and view.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "dispatch/breaker.h"
#include "dispatch/decide.h"
#include "dispatch/dispatcher.h"
#include "dispatch/figures.h"
#include "dispatch/mailbox.h"
#include "dispatch/retry_budget.h"
#include "dispatch/systemic.h"
#include "dispatch/target.h"

namespace dlo::dispatch {

/// While many attempts run, their ends gather for so long before the store is asked again: a transaction costs nearly
/// the same for one of them as for ten.
inline constexpr Duration kGatherEnds = std::chrono::milliseconds(1);
inline constexpr std::size_t kGatherFrom = 16;
inline constexpr std::size_t kAnswersAtOnce = 32;  // meanwhile so many are judged at once
inline constexpr Duration kRescueEvery = std::chrono::seconds(1);
inline constexpr Duration kAskEvery =
    std::chrono::seconds(5);  // every source, in case a ring was lost or the clock was set

struct SourceState {
  std::string name;
  std::size_t target = 0;
  Policy policy;
  Duration notify_within{};
  Systemic systemic;
  bool may_have_work = true;
  std::optional<Time> due;  // not later than when its next event falls due
  // Decided, not yet in the store.
  std::optional<store::SourcePause> pause_to_write;
  bool resume_to_write = false;
};

struct TargetState {
  std::string name;
  std::unique_ptr<Target> target;
  Breaker breaker;
  RetryBudget budget{0, 0};
  Time next_budget_word{};  // in the log
  int running = 0;
  View::FlowNow flow;
  std::vector<std::size_t> sources;
  std::size_t next_start = 0;  // of the fair split
};

/// One attempt in the hands of a target.
struct Run {
  RunContext context;
  std::size_t source = 0;
  bool breaker_probe = false;
  bool systemic_probe = false;
  bool lost = false;        // its lease is another's
  bool suppressed = false;  // it was told to send no notifications
  Time lease_until{};       // as it was claimed
};

/// What one Exchange with the store is about. Shared with its answer, so that the request lives as long.
struct Batch {
  std::vector<Transition> finished;      // decided
  std::vector<std::string> finished_of;  // their sources, one for one
  std::vector<store::ClaimWant> wants;
  std::vector<std::size_t> want_sources;  // one for one
  Time lease_until{};                     // of what it claims
};

struct Dispatcher::State {
  State(const Config& config, DispatcherDeps d);

  DispatcherDeps deps;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::vector<SourceState> sources;
  std::vector<TargetState> targets;
  int max_running = 0;          // of all targets
  std::size_t next_target = 0;  // whose turn it is to ask first
  std::map<std::string, std::size_t, std::less<>> source_index;
  std::shared_ptr<View> view;
  std::optional<Figures> figures;
  store::Lease lease;

  std::unordered_map<std::uint64_t, Run> runs;
  std::uint64_t next_run = 1;
  Batch next;                              // gathers; what is decided is kept over a store that fails
  std::shared_ptr<Batch> exchanging;       // in the store's hands
  std::optional<Error> failed;             // it, not yet told
  Time answered_at{};                      // when the store's last answer was taken
  std::vector<store::Claimed> claimed;     // in `runs`, not yet started
  std::vector<std::uint64_t> claimed_run;  // one for one
  std::vector<store::LeaseRef> hand_back;  // claimed and never judged, or deferred; kept like `next`

  bool opened = false;
  bool draining = false;
  Time next_rescue{}, next_renew{}, next_ask{};

  Result<void> Open(Time now);
  void TakeMail(Time now);
  void TakeAnswer(Mail::Answer answer, Time now);
  void Judge(const Run& run, const Outcome& outcome, Time at, Time now);
  /// Handed back; due at once unless `due` says when.
  void Unjudged(const Run& run, std::optional<Time> due = {});
  Transition& Finish(std::size_t source, const RunContext& context, const Outcome& outcome, Time at, Time now,
                     bool probe);
  void NoteFlow(TargetState& target, const Outcome& outcome, Duration took);
  void JudgeSource(SourceState& source, const RunContext& context, const Transition& t, bool probe, Time now);
  void WritePauses(Time now);
  void Rescue(Time now);
  void RescueOne(const RunContext& context, Time now);
  void Renew(Time now);
  Result<void> HandBack(Time now);
  void NoteDue(Time now);
  void MakeWants(Time now);
  [[nodiscard]] bool Gathers(Time now) const;
  void StartExchange(Time now);
  void Exchanged(Result<store::ExchangeResult> result, Time now);
  void NoteApplied(const Batch& batch, const std::vector<ApplyStatus>& applied);
  void NoteClaimed(std::vector<store::Claimed> events, Time lease_until, Time now);
  [[nodiscard]] static bool WithinBudget(const SourceState& source, TargetState& target, const RunContext& run,
                                         Time now);
  void Defer(SourceState& source, const RunContext& run, Time now);
  void StartClaimed(Time now);
  void StartOne(std::uint64_t number, store::Claimed event, Time now);
  void DropClaimed();
  Run EndRun(std::uint64_t number);
  /// How many more may be claimed for it, when `wanted` are already asked for.
  [[nodiscard]] int Places(const TargetState& target, int wanted, Time now) const;
  [[nodiscard]] bool CanAsk(const SourceState& source, Time now) const;
  [[nodiscard]] bool MoreNow(Time now) const;
  [[nodiscard]] Time NextTime(Time now) const;
  void Show();
};

}  // namespace dlo::dispatch
