// How attempts end: fenced results, leases renewed, handed back and lost. Every write of an event names the state and
// the token that it expects.
#include <cstdlib>

#include "base/encoding.h"
#include "base/log.h"
#include "base/time_text.h"
#include "model/fingerprint.h"
#include "model/law.h"
#include "store/embedded/index_queue.h"
#include "store/embedded/index_values.h"
#include "store/embedded/lanes.h"
#include "store/embedded/replay_items.h"

namespace dlo::store {
namespace {

// Text of handlers as it is kept.
constexpr std::size_t kCodeBytes = 200;
constexpr std::size_t kMessageBytes = 1'000;
constexpr std::size_t kDetailBytes = 4'096;

struct OutcomeText {
  std::string code, message, detail, handler_version, effect;

  explicit OutcomeText(const Outcome& outcome)
      : code(CleanText(outcome.code, kCodeBytes)),
        message(CleanText(outcome.message, kMessageBytes)),
        detail(CleanText(outcome.detail, kDetailBytes)),
        handler_version(CleanText(outcome.handler_version, kCodeBytes)),
        effect(CleanText(outcome.effect, kMessageBytes)) {}
};

struct RunningRow {
  std::int64_t source = 0;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::int64_t token = 0;
  std::int64_t attempt_no = 0;
  std::optional<std::int64_t> lane;
  std::int64_t replay_id = 0;
  bool replaying = false;
};

/// nullopt when there is no such event.
Result<std::optional<RunningRow>> ReadRunning(Db& db, EventId id) {
  Statement row = db.Prepare(
      "SELECT source, state, class, token, attempt_no, lane, replay_id, replaying FROM events WHERE id = ?1");
  const Result<bool> found = row.Bind(1, id).Step();
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::nullopt;
  return RunningRow{.source = row.Int(0),
                    .state = static_cast<State>(row.Int(1)),
                    .failure_class = static_cast<FailureClass>(row.Int(2)),
                    .token = row.Int(3),
                    .attempt_no = row.Int(4),
                    .lane = row.OptInt(5),
                    .replay_id = row.Int(6),
                    .replaying = row.Int(7) != 0};
}

void CheckLaw(Act act, State to, bool well_formed, EventId id) {
  if (IsLegal(act, State::running, to) && well_formed) return;
  log::Error("illegal_move", {{"event", id}, {"act", Name(act)}, {"to", Name(to)}});
  std::abort();
}

/// The schema's checks, said before the database has to.
bool WellFormed(const Transition& t) {
  return (t.to == State::waiting) == t.due_at.has_value() &&
         (t.to == State::dead) == (t.failure_class != FailureClass::none);
}

FailureClass ClassAfter(const Transition& transition, FailureClass before) {
  if (transition.to == State::dead) return transition.failure_class;
  // What it was dead of stays with a letter while it is replayed and after.
  return transition.to == State::succeeded ? FailureClass::none : before;
}

/// A repeat of an answer that was recorded in time changes nothing; the answer of a worker that was given up is kept
/// beside its verdict "crashed".
Result<void> RecordLate(Db& db, const Transition& transition) {
  const OutcomeText text(transition.outcome);
  return db
      .Prepare(
          "UPDATE attempts SET late = 1, finished_at = ?3, outcome = ?4, code = ?5, message = ?6, detail = ?7, "
          "http_status = ?8, handler_version = ?9, effect = ?10 WHERE event_id = ?1 AND token = ?2 AND late = 0 "
          "AND (outcome IS NULL OR (outcome = ?11 AND ?4 <> ?11))")
      .Bind(1, transition.id)
      .Bind(2, transition.token)
      .Bind(3, ToMicros(transition.at))
      .Bind(4, static_cast<int>(transition.outcome.kind))
      .Bind(5, text.code)
      .Bind(6, text.message)
      .Bind(7, text.detail)
      .Bind(8, transition.outcome.http_status)
      .Bind(9, text.handler_version)
      .Bind(10, text.effect)
      .Bind(11, static_cast<int>(OutcomeKind::crashed))
      .Run();
}

Result<void> RecordAttempt(Db& db, const Transition& transition, std::int64_t number, const OutcomeText& text) {
  return db
      .Prepare(
          "UPDATE attempts SET finished_at = ?3, outcome = ?4, code = ?5, message = ?6, detail = ?7, "
          "http_status = ?8, handler_version = ?9, effect = ?10 WHERE event_id = ?1 AND number = ?2")
      .Bind(1, transition.id)
      .Bind(2, number)
      .Bind(3, ToMicros(transition.at))
      .Bind(4, static_cast<int>(transition.outcome.kind))
      .Bind(5, text.code)
      .Bind(6, text.message)
      .Bind(7, text.detail)
      .Bind(8, transition.outcome.http_status)
      .Bind(9, text.handler_version)
      .Bind(10, text.effect)
      .Run();
}

Result<void> RecordFailure(Db& db, const Transition& transition, const OutcomeText& text) {
  return db
      .Prepare(
          "INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail, handler_version) "
          "VALUES (?1, ?2, ?2, ?3, ?4, ?5, ?6) ON CONFLICT (event_id) DO UPDATE SET "
          "first_failed_at = CASE first_failed_at WHEN 0 THEN excluded.first_failed_at ELSE first_failed_at END, "
          "last_failed_at = excluded.last_failed_at, code = excluded.code, message = excluded.message, "
          "detail = excluded.detail, handler_version = excluded.handler_version")
      .Bind(1, transition.id)
      .Bind(2, ToMicros(transition.at))
      .Bind(3, text.code)
      .Bind(4, text.message)
      .Bind(5, text.detail)
      .Bind(6, text.handler_version)
      .Run();
}

Result<void> RecordResolve(Db& db, const Transition& transition, const OutcomeText& text) {
  return db
      .Prepare(
          "INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail, resolve_code, "
          "resolve_reason) VALUES (?1, 0, 0, '', '', '', ?2, ?3) ON CONFLICT (event_id) DO UPDATE SET "
          "resolve_code = excluded.resolve_code, resolve_reason = excluded.resolve_reason")
      .Bind(1, transition.id)
      .Bind(2, static_cast<int>(transition.resolve_code.value_or(ResolveCode::other)))
      .Bind(3, text.message)
      .Run();
}

// A step that leaves no letter does not name the columns of the letters' indexes, which then cost it nothing.
constexpr const char* kMove =
    "UPDATE events SET state = ?3, class = ?4, due_at = ?5, lane = ?6, behind = ?7, lease_until = NULL, worker = NULL, "
    "crashes = ?8, replays_failed = ?9, replaying = CASE WHEN ?10 THEN 0 ELSE replaying END, finished_at = ?11 "
    "WHERE id = ?1 AND state = 1 AND token = ?2";
constexpr const char* kMoveFailed =
    "UPDATE events SET state = ?3, class = ?4, due_at = ?5, lane = ?6, behind = ?7, lease_until = NULL, worker = NULL, "
    "crashes = ?8, replays_failed = ?9, replaying = CASE WHEN ?10 THEN 0 ELSE replaying END, finished_at = ?11, "
    "letter = CASE ?3 WHEN 3 THEN 3 END, fingerprint = coalesce(?12, fingerprint), "
    "parked_at = coalesce(parked_at, ?13) WHERE id = ?1 AND state = 1 AND token = ?2";

Result<void> MoveEvent(Db& db, const Transition& t, FailureClass failure_class, std::optional<std::int64_t> lane) {
  const std::int64_t at = ToMicros(t.at);
  const bool final_state = t.to == State::succeeded || t.to == State::replayed || t.to == State::resolved;
  const bool failed = t.to == State::dead || !t.fingerprint.empty();
  std::optional<std::int64_t> due;
  if (t.due_at) due = ToMicros(*t.due_at);
  Statement move = db.Prepare(failed ? kMoveFailed : kMove);
  move.Bind(1, t.id)
      .Bind(2, t.token)
      .Bind(3, static_cast<int>(t.to))
      .Bind(4, static_cast<int>(failure_class))
      .Bind(5, due)
      .Bind(6, lane)
      .Bind(7, t.to == State::waiting && lane.has_value())
      .Bind(8, t.crashes)
      .Bind(9, t.replays_failed)
      .Bind(10, t.replay_result != ReplayResult::none)
      .Bind(11, When(final_state, at));
  if (failed) move.Bind(12, FingerprintNumber(t.fingerprint)).Bind(13, When(t.to == State::dead, at));
  return move.Run();
}

Result<void> TellReplay(IndexContext& context, const Transition& t, const RunningRow& row) {
  if (!row.replaying || row.replay_id == 0) return {};
  if (t.replay_result == ReplayResult::none) {
    return RetryReplayItem(context.db, context.counts, row.replay_id, row.source, t.id);
  }
  return EndReplayItem(context.db, context.counts,
                       {.replay_id = row.replay_id,
                        .source = row.source,
                        .id = t.id,
                        .result = t.replay_result,
                        .failure_class = t.failure_class,
                        .suppressed = t.suppressed,
                        .at = t.at});
}

}  // namespace

Result<ApplyStatus> ApplyTransition(IndexContext& context, HotCache& hot, const Transition& transition) {
  CheckLaw(Act::apply, transition.to, WellFormed(transition), transition.id);
  const Result<std::optional<RunningRow>> found = ReadRunning(context.db, transition.id);
  if (!found) return std::unexpected(found.error());
  const std::optional<RunningRow>& row = *found;
  if (!row || row->state != State::running || row->token != transition.token) {
    if (Result<void> done = RecordLate(context.db, transition); !done) return std::unexpected(done.error());
    return ApplyStatus::late;
  }
  const bool stays = transition.to == State::waiting || (transition.to == State::dead && transition.keep_lane);
  const FailureClass failure_class = ClassAfter(transition, row->failure_class);
  const OutcomeText text(transition.outcome);
  Result<void> done = MoveEvent(context.db, transition, failure_class, stays ? row->lane : std::nullopt);
  if (done) done = RecordAttempt(context.db, transition, row->attempt_no, text);
  if (done && !transition.fingerprint.empty()) done = RecordFailure(context.db, transition, text);
  if (done && transition.to == State::resolved) done = RecordResolve(context.db, transition, text);
  if (!stays) context.lanes.Leave(row->lane, transition.id);
  if (done) done = context.lanes.Settle(context.db, row->lane);
  if (done) done = TellReplay(context, transition, *row);
  if (!done) return std::unexpected(done.error());
  context.counts.Move(row->source, State::running, row->failure_class, transition.to, failure_class);
  if (transition.to != State::waiting) hot.Release(transition.id);
  return ApplyStatus::applied;
}

Result<std::vector<LeaseRef>> RenewLeases(Db& db, std::span<const LeaseRef> leases, Time until) {
  std::vector<LeaseRef> lost;
  for (const LeaseRef& lease : leases) {
    Result<void> renewed =
        db.Prepare("UPDATE events SET lease_until = max(lease_until, ?3) WHERE id = ?1 AND token = ?2 AND state = 1")
            .Bind(1, lease.id)
            .Bind(2, lease.token)
            .Bind(3, ToMicros(until))
            .Run();
    if (!renewed) return std::unexpected(renewed.error());
    if (db.Changes() == 0) lost.push_back(lease);
  }
  return lost;
}

Result<std::vector<RunContext>> ReadExpiredLeases(Db& db, Time now, int max) {
  std::vector<RunContext> expired;
  Statement rows = db.Prepare(
      "SELECT e.id, n.name, r.kind, e.token, e.attempt_no, e.tries, e.crashes, e.replaying, e.replay_id, "
      "e.replays_failed, e.received_at FROM events e INDEXED BY events_lease JOIN receipts r ON r.id = e.id "
      "JOIN names n ON n.id = e.source "
      "WHERE e.lease_until < ?1 ORDER BY e.lease_until LIMIT ?2");
  rows.Bind(1, ToMicros(now)).Bind(2, max);
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) return expired;
    RunContext run;
    run.id = rows.Int(0);
    run.source = rows.String(1);
    run.kind = rows.String(2);
    run.token = rows.Int(3);
    run.attempt = static_cast<int>(rows.Int(4));
    run.tries = static_cast<int>(rows.Int(5));
    run.crashes = static_cast<int>(rows.Int(6));
    run.replaying = rows.Int(7) != 0;
    run.replay_id = run.replaying ? rows.Int(8) : 0;
    run.replays_failed = static_cast<int>(rows.Int(9));
    run.received_at = FromMicros(rows.Int(10));
    expired.push_back(std::move(run));
  }
}

Result<int> HandBackLeases(IndexContext& context, std::span<const LeaseRef> leases, Time due) {
  CheckLaw(Act::hand_back, State::waiting, true, 0);
  int handed_back = 0;
  for (const LeaseRef& lease : leases) {
    const Result<std::optional<RunningRow>> found = ReadRunning(context.db, lease.id);
    if (!found) return std::unexpected(found.error());
    const std::optional<RunningRow>& row = *found;
    if (!row || row->state != State::running || row->token != lease.token) continue;
    Result<void> done =
        context.db
            .Prepare(
                "UPDATE events SET state = 0, due_at = ?3, behind = (lane IS NOT NULL), lease_until = NULL, "
                "worker = NULL, tries = tries - 1, attempts = attempts - (1 - replaying) "
                "WHERE id = ?1 AND state = 1 AND token = ?2")
            .Bind(1, lease.id)
            .Bind(2, lease.token)
            .Bind(3, ToMicros(lease.due.value_or(due)))
            .Run();
    if (done) {
      done = context.db.Prepare("UPDATE attempts SET finished_at = ?3, code = ?4 WHERE event_id = ?1 AND number = ?2")
                 .Bind(1, lease.id)
                 .Bind(2, row->attempt_no)
                 .Bind(3, ToMicros(context.clock.Now()))
                 .Bind(4, lease.due ? "deferred" : "handed_back")
                 .Run();
    }
    if (done) done = context.lanes.Settle(context.db, row->lane);
    if (!done) return std::unexpected(done.error());
    context.counts.Move(row->source, State::running, row->failure_class, State::waiting, row->failure_class);
    ++handed_back;
  }
  if (handed_back > 0) context.NotifyWork();
  return handed_back;
}

Result<int> ExpireLeases(Db& db, Time now) {
  // A microsecond before now: a lease that ends at `now` has not ended before it.
  Result<void> done = db.Prepare("UPDATE events SET lease_until = min(lease_until, ?1) WHERE lease_until NOT NULL")
                          .Bind(1, ToMicros(now) - 1)
                          .Run();
  if (!done) return std::unexpected(done.error());
  return static_cast<int>(db.Changes());
}

}  // namespace dlo::store
