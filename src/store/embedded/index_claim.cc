// Claims. A claim's cost is a few index look-ups per event taken, whatever waits: events_due holds only what may be
// dispatched, in the order in which it is taken.
#include <algorithm>
#include <cstdlib>

#include "base/log.h"
#include "base/time_text.h"
#include "store/embedded/index_queue.h"

namespace dlo::store {
namespace {

struct Candidate {
  EventId id = 0;
  Time received_at;
  std::int64_t token = 0;
  int attempt_no = 0, tries = 0, crashes = 0;
  bool replaying = false;
  std::int64_t replay_id = 0;
  int replays_failed = 0;
  FailureClass failure_class = FailureClass::none;
  std::optional<std::int64_t> lane;
};

Result<std::vector<Candidate>> ReadDue(Db& db, std::int64_t source, Time now, int max) {
  std::vector<Candidate> due;
  Statement rows = db.Prepare(
      "SELECT id, received_at, token, attempt_no, tries, crashes, replaying, replay_id, replays_failed, class, lane "
      "FROM events INDEXED BY events_due "
      "WHERE source = ?1 AND state = 0 AND behind = 0 AND due_at <= ?2 ORDER BY due_at, id LIMIT ?3");
  rows.Bind(1, source).Bind(2, ToMicros(now)).Bind(3, max);
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) return due;
    due.push_back({.id = rows.Int(0),
                   .received_at = FromMicros(rows.Int(1)),
                   .token = rows.Int(2),
                   .attempt_no = static_cast<int>(rows.Int(3)),
                   .tries = static_cast<int>(rows.Int(4)),
                   .crashes = static_cast<int>(rows.Int(5)),
                   .replaying = rows.Int(6) != 0,
                   .replay_id = rows.Int(7),
                   .replays_failed = static_cast<int>(rows.Int(8)),
                   .failure_class = static_cast<FailureClass>(rows.Int(9)),
                   .lane = rows.OptInt(10)});
  }
}

/// So far it looks for live events behind letters of replays: more than a window of theirs, unless handlers are so fast
/// that the rest does not matter.
constexpr int kLookAhead = 256;

/// Oldest due first; where letters of replays would take places for which live events wait, those first.
Result<std::vector<Candidate>> FindDue(Db& db, std::int64_t source, Time now, int max) {
  auto due = ReadDue(db, source, now, max);
  if (!due || std::ssize(*due) < max || std::ranges::none_of(*due, &Candidate::replaying)) return due;
  auto ahead = ReadDue(db, source, now, std::max(kLookAhead, 2 * max));
  if (!ahead) return ahead;
  std::ranges::stable_partition(*ahead, [](const Candidate& candidate) { return !candidate.replaying; });
  ahead->resize(std::min(ahead->size(), static_cast<std::size_t>(max)));
  return ahead;
}

struct LeaseNumbers {
  std::int64_t source = 0, target = 0, worker = 0;
  Time now, until;
};

/// Counts the attempt and writes its row.
Result<void> TakeLease(IndexContext& context, const Candidate& candidate, const LeaseNumbers& lease) {
  Result<void> taken =
      context.db
          .Prepare(
              "UPDATE events SET state = 1, due_at = NULL, token = token + 1, attempt_no = attempt_no + 1, "
              "tries = tries + 1, attempts = attempts + (1 - replaying), lease_until = ?2, worker = ?3 "
              "WHERE id = ?1 AND state = 0 AND behind = 0")
          .Bind(1, candidate.id)
          .Bind(2, ToMicros(lease.until))
          .Bind(3, lease.worker)
          .Run();
  if (!taken) return taken;
  if (context.db.Changes() != 1) {
    return Fail(ErrorKind::corrupt, "database_corrupt", "an index of the database names an event that is not waiting");
  }
  context.counts.Move(lease.source, State::waiting, candidate.failure_class, State::running, candidate.failure_class);
  return context.db
      .Prepare(
          "INSERT INTO attempts (event_id, number, token, started_at, worker, target, replay_id) "
          "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")
      .Bind(1, candidate.id)
      .Bind(2, candidate.attempt_no + 1)
      .Bind(3, candidate.token + 1)
      .Bind(4, ToMicros(lease.now))
      .Bind(5, lease.worker)
      .Bind(6, lease.target)
      .Bind(7, candidate.replaying ? candidate.replay_id : 0)
      .Run();
}

RunContext ContextOf(const Candidate& candidate, const std::string& source) {
  RunContext run;
  run.id = candidate.id;
  run.source = source;
  run.token = candidate.token + 1;
  run.attempt = candidate.attempt_no + 1;
  run.tries = candidate.tries + 1;
  run.crashes = candidate.crashes;
  run.replaying = candidate.replaying;
  run.replay_id = candidate.replaying ? candidate.replay_id : 0;
  run.replays_failed = candidate.replays_failed;
  run.received_at = candidate.received_at;
  return run;
}

Result<std::optional<Time>> NextDue(Db& db, std::int64_t source) {
  Statement row = db.Prepare(
      "SELECT due_at FROM events INDEXED BY events_due WHERE source = ?1 AND state = 0 AND behind = 0 "
      "ORDER BY due_at, id LIMIT 1");
  const Result<bool> found = row.Bind(1, source).Step();
  if (!found) return std::unexpected(found.error());
  if (!*found) return std::nullopt;
  return FromMicros(row.Int(0));
}

}  // namespace

Result<void> ClaimDue(IndexContext& context, const HotCache& hot, const ClaimWant& want, const Lease& lease, Time now,
                      std::vector<Claimed>& claimed) {
  const Result<std::optional<std::int64_t>> source = context.names.Find(context.db, want.source);
  if (!source) return std::unexpected(source.error());
  if (!*source || want.max <= 0) return {};
  const Result<std::vector<Candidate>> due = FindDue(context.db, **source, now, want.max);
  if (!due) return std::unexpected(due.error());
  if (due->empty()) return {};
  const Result<std::int64_t> target = context.NameId(want.target);
  if (!target) return std::unexpected(target.error());
  const Result<std::int64_t> worker = context.NameId(lease.worker);
  if (!worker) return std::unexpected(worker.error());
  const LeaseNumbers numbers{**source, *target, *worker, now, now + lease.length};
  for (const Candidate& candidate : *due) {
    if (candidate.lane && !context.lanes.IsFront(*candidate.lane, candidate.id)) {
      log::Error("lane_mended", {{"event", candidate.id},
                                 {"source", want.source},
                                 {"was", "free to run beside another event of its subject; it waits behind it now"},
                                 {"do", "report this with the log around it"}});
      if (Result<void> done = context.lanes.PutBehind(context.db, *candidate.lane, candidate.id); !done) return done;
      continue;
    }
    if (Result<void> done = TakeLease(context, candidate, numbers); !done) return done;
    Claimed& taken = claimed.emplace_back();
    taken.run = ContextOf(candidate, want.source);
    taken.receipt = hot.Get(candidate.id);
    if (taken.receipt) taken.run.kind = taken.receipt->kind;
  }
  return {};
}

Result<ExchangeResult> ExchangeWork(IndexContext& context, HotCache& hot, const ExchangeRequest& request) {
  ExchangeResult result;
  result.applied.reserve(request.finished.size());
  for (const Transition& transition : request.finished) {
    const Result<ApplyStatus> status = ApplyTransition(context, hot, transition);
    if (!status) return std::unexpected(status.error());
    result.applied.push_back(*status);
  }
  std::size_t wanted = 0;
  for (const ClaimWant& want : request.wants) {
    wanted += static_cast<std::size_t>(std::max(0, want.max));
    Result<void> done = ClaimDue(context, hot, want, request.lease, request.now, result.claimed);
    if (!done) return std::unexpected(done.error());
  }
  for (const ClaimWant& want : request.wants) {
    const Result<std::optional<std::int64_t>> source = context.names.Find(context.db, want.source);
    if (!source) return std::unexpected(source.error());
    if (!*source) continue;
    const Result<std::optional<Time>> next = NextDue(context.db, **source);
    if (!next) return std::unexpected(next.error());
    if (*next) result.next_due = result.next_due ? std::min(*result.next_due, **next) : **next;
  }
  if (wanted > 0) context.wanted = result.claimed.size() < wanted;
  if (!request.finished.empty()) context.applied = true;
  if (!result.claimed.empty()) context.claimed = true;
  return result;
}

}  // namespace dlo::store
