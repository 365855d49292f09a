#include "deadletter/desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/time_text.h"
#include "store/pace.h"

namespace dlo::deadletter {
namespace {

constexpr int kMaxPage = 500;
constexpr std::size_t kMaxReason = 1000;
constexpr std::size_t kMaxLink = 1000;
constexpr std::size_t kMaxName = 200;
constexpr std::size_t kMaxSearch = 200;
constexpr std::int64_t kMaxSelection = 100'000'000;
constexpr int kDrainBatch = 500;
constexpr Duration kDrainPoll = std::chrono::milliseconds(50);

std::unexpected<Error> Invalid(std::string code, std::string message) {
  return Fail(ErrorKind::invalid, std::move(code), std::move(message));
}

/// Characters, not bytes: a limit that people see must not depend on their language.
std::size_t Length(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool Blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Result<void> Check(const Actor& actor) {
  if (Blank(actor.name)) return Invalid("no_actor", "An act needs the name of who acts, for the audit log.");
  if (Length(actor.reason) > kMaxReason) {
    return Invalid("reason_too_long",
                   fmt::format("The reason is longer than {} characters; put the rest behind a link.", kMaxReason));
  }
  return {};
}

Result<void> CheckId(EventId id) {
  if (id < 1) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", id));
  return {};
}

Result<void> CheckLimit(int limit) {
  if (limit < 1 || limit > kMaxPage) {
    return Invalid("bad_limit", fmt::format("limit is {}; it must be from 1 to {}.", limit, kMaxPage));
  }
  return {};
}

Result<Filter> Letters(Filter filter) {
  if (filter.q && Length(*filter.q) > kMaxSearch) {
    return Invalid("bad_filter", fmt::format("q is longer than {} characters.", kMaxSearch));
  }
  if (filter.states.empty()) filter.states = {State::dead, State::held};
  return filter;
}

Result<void> CheckReplayed(const Filter& filter) {
  for (const State state : filter.states) {
    if (state != State::dead && state != State::held) {
      return Invalid("bad_filter",
                     fmt::format("A replay takes letters in state dead or held; the filter names {}.", Name(state)));
    }
  }
  return {};
}

}  // namespace

Result<Page> Desk::List(const Filter& filter, int limit, const std::string& cursor) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  auto letters = Letters(filter);
  if (!letters) return std::unexpected(letters.error());
  return deps_.store.List(*letters, limit, cursor);
}

Result<std::int64_t> Desk::Count(const Filter& filter) {
  auto letters = Letters(filter);
  if (!letters) return std::unexpected(letters.error());
  return deps_.store.Count(*letters);
}

Result<std::vector<Group>> Desk::Groups(const Filter& filter, const std::string& by) {
  static constexpr std::array<std::string_view, 5> kBy = {"fingerprint", "type", "account", "source", "class"};
  if (std::ranges::find(kBy, by) == kBy.end()) {
    return Invalid("bad_group", "by is \"" + by + "\"; it must be fingerprint, type, account, source or class.");
  }
  auto letters = Letters(filter);
  if (!letters) return std::unexpected(letters.error());
  return deps_.store.Groups(*letters, by);
}

Result<LetterDetail> Desk::Show(EventId id) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  return deps_.store.Show(id);
}

Result<std::string> Desk::Payload(EventId id) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  return deps_.store.Payload(id);
}

Result<std::vector<AuditRecord>> Desk::AuditOf(EventId id) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  // Of an event that does not exist, "nothing was done" would be a lie.
  if (auto shown = deps_.store.Show(id); !shown) return std::unexpected(shown.error());
  return deps_.store.Audit(id, 0, kMaxPage);
}

Result<Letter> Desk::Do(store::TriageAct act, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckId(act.id); !ok) return std::unexpected(ok.error());
  const auto shown = deps_.store.Show(act.id);  // a source never changes, so reading it before the act is safe
  if (!shown) return std::unexpected(shown.error());
  act.keep_lane = deps_.holds_lane && deps_.holds_lane(shown->letter.source);
  auto done = deps_.store.Triage(std::span(&act, 1), actor, deps_.clock.Now());
  if (!done) return std::unexpected(done.error());
  return std::move(done->front());
}

Result<Letter> Desk::Requeue(EventId id, const Actor& actor) {
  return Do({.id = id, .act = Act::replay}, actor);
}

Result<Letter> Desk::Hold(EventId id, const HoldRequest& request, const Actor& actor) {
  if (Blank(request.link)) {
    return Invalid("link_missing", "A hold needs `link`: the issue whose fix this letter waits for.");
  }
  if (Length(request.link) > kMaxLink || Length(request.owner) > kMaxName ||
      Length(request.wake_on_handler) > kMaxName) {
    return Invalid("hold_too_long",
                   fmt::format("link takes at most {} characters, owner and wake_on_handler {}.", kMaxLink, kMaxName));
  }
  if (request.until && *request.until <= deps_.clock.Now()) {
    return Invalid("until_past", "`until` is " + FormatTime(*request.until) + ", which is over already.");
  }
  return Do({.id = id, .act = Act::hold, .hold = request}, actor);
}

Result<Letter> Desk::Release(EventId id, const Actor& actor) {
  return Do({.id = id, .act = Act::release}, actor);
}

Result<Letter> Desk::Resolve(EventId id, ResolveCode code, const Actor& actor) {
  if (code == ResolveCode::other && Blank(actor.reason)) {
    return Invalid("reason_missing", "The code `other` says nothing by itself: give a reason.");
  }
  return Do({.id = id, .act = Act::resolve, .resolve_code = code}, actor);
}

Result<Letter> Desk::Reopen(EventId id, const Actor& actor) {
  return Do({.id = id, .act = Act::reopen}, actor);
}

Result<ReplayPlan> Desk::RequeueWhere(const Filter& filter, const ReplayOptions& options, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckReplayed(filter); !ok) return std::unexpected(ok.error());
  if (options.max < 1 || options.max > kMaxSelection) {
    return Invalid("bad_replay_options",
                   fmt::format("max is {}; it must be from 1 to {}.", options.max, kMaxSelection));
  }
  const auto pace = store::PaceOf(options);
  if (!pace) return std::unexpected(pace.error());
  auto plan = options.dry_run ? deps_.store.Plan(filter)
                              : deps_.store.Create(filter, options, "replay", actor, deps_.clock.Now());
  if (!plan) return plan;
  plan->over_cap = plan->count > options.max;
  plan->estimated_seconds = store::EstimateSeconds(plan->count, *pace);
  if (!options.dry_run && deps_.ring) deps_.ring();
  return plan;
}

Result<ReplayProgress> Desk::Replay(std::int64_t replay_id) {
  return deps_.store.Get(replay_id);
}

Result<std::vector<ReplayProgress>> Desk::Replays(int limit) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.Recent(limit);
}

Result<ReplayItems> Desk::Items(std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                                const std::string& cursor) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.Items(replay_id, filter, limit, cursor);
}

Result<ReplayProgress> Desk::Steer(std::int64_t replay_id, store::ReplayAct act, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  auto done = deps_.store.Act(replay_id, act, actor, deps_.clock.Now());
  if (done && deps_.ring) deps_.ring();
  return done;
}

Result<ReplayProgress> Desk::Pause(std::int64_t replay_id, const Actor& actor) {
  return Steer(replay_id, store::ReplayAct::pause, actor);
}

Result<ReplayProgress> Desk::Resume(std::int64_t replay_id, const Actor& actor) {
  return Steer(replay_id, store::ReplayAct::resume, actor);
}

Result<ReplayProgress> Desk::Cancel(std::int64_t replay_id, const Actor& actor) {
  return Steer(replay_id, store::ReplayAct::cancel, actor);
}

Result<DrainStats> Desk::Drain(const std::string& source, Duration wait, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (wait < Duration(0)) return Invalid("bad_wait", "wait must not be negative.");
  Filter exhausted;
  exhausted.classes = {FailureClass::exhausted};
  exhausted.states = {State::dead};
  if (!source.empty()) exhausted.sources = {source};
  const auto plan = deps_.store.Plan(exhausted);
  if (!plan) return std::unexpected(plan.error());
  if (plan->count == 0) return DrainStats{};  // nothing was done, so nothing is recorded

  // It tries each once, and says how many are dead again; it does not stop itself for that.
  const ReplayOptions options{
      .batch_size = kDrainBatch, .stagger_ms = 0, .max = kMaxSelection, .force = true, .stop_percent = 100};
  const auto replay = deps_.store.Create(exhausted, options, "drain", actor, deps_.clock.Now());
  if (!replay) return std::unexpected(replay.error());
  return WaitFor(replay->id, wait);
}

Result<DrainStats> Desk::WaitFor(std::int64_t replay_id, Duration wait) {
  const Duration end = deps_.clock.Monotonic() + wait;
  while (true) {
    if (auto paced = deps_.pacer.RunOnce(deps_.clock.Now()); !paced) return std::unexpected(paced.error());
    const auto progress = deps_.store.Get(replay_id);
    if (!progress) return std::unexpected(progress.error());
    const DrainStats stats{.committed = progress->committed,
                           .requeued = progress->dead_again - progress->parked,
                           .parked = progress->parked,
                           .replay_id = replay_id,
                           .finished = progress->state == "done" || progress->state == "cancelled"};
    const Duration left = end - deps_.clock.Monotonic();
    if (stats.finished || left <= Duration(0) || stopping_.load()) return stats;
    deps_.wait(std::min(left, kDrainPoll));
  }
}

}  // namespace dlo::deadletter
