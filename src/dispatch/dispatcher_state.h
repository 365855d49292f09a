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
#include "dispatch/systemic.h"
#include "dispatch/target.h"

namespace dlo::dispatch {

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
  int running = 0;
  std::vector<std::size_t> sources;
  std::size_t next_start = 0;  // of the fair split
};

/// One attempt in the hands of a target.
struct Run {
  RunContext context;
  std::size_t source = 0;
  bool breaker_probe = false;
  bool systemic_probe = false;
  bool lost = false;  // its lease is another's
};

struct Dispatcher::State {
  State(const Config& config, DispatcherDeps d);

  DispatcherDeps deps;
  std::shared_ptr<Mailbox> mailbox = std::make_shared<Mailbox>();
  std::vector<SourceState> sources;
  std::vector<TargetState> targets;
  std::map<std::string, std::size_t, std::less<>> source_index;
  std::shared_ptr<View> view;
  std::optional<Figures> figures;
  store::Lease lease;

  std::unordered_map<std::uint64_t, Run> runs;
  std::uint64_t next_run = 1;
  std::vector<Transition> finished;        // decided, not yet applied; kept over a store that fails
  std::vector<std::string> finished_of;    // their sources, one for one
  std::vector<store::LeaseRef> hand_back;  // claimed and never judged; kept likewise
  std::vector<store::ClaimWant> wants;
  std::vector<std::size_t> want_sources;  // one for one

  bool opened = false;
  bool draining = false;
  Time next_rescue{}, next_renew{}, next_ask{};

  Result<void> Open(Time now);
  void TakeMail(Time now);
  void Judge(const Run& run, const Outcome& outcome, Time at, Time now);
  void Unjudged(const Run& run);
  void Finish(std::size_t source, const RunContext& context, const Outcome& outcome, Time at, Time now, bool probe);
  void JudgeSource(SourceState& source, const RunContext& context, const Transition& t, bool probe, Time now);
  void WritePauses(Time now);
  void Rescue(Time now);
  void RescueOne(const RunContext& context, Time now);
  void Renew(Time now);
  Result<void> HandBack(Time now);
  void NoteDue(Time now);
  void MakeWants(Time now);
  Result<void> Exchange(Time now);
  void NoteApplied(const std::vector<ApplyStatus>& applied);
  void StartClaimed(std::vector<store::Claimed> claimed, Time now);
  [[nodiscard]] bool CanAsk(const SourceState& source, Time now) const;
  [[nodiscard]] bool MoreNow(Time now) const;
  [[nodiscard]] Time NextTime(Time now) const;
  void Show();
};

}  // namespace dlo::dispatch
