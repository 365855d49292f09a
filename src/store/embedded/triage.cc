#include "store/embedded/triage.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/law.h"
#include "store/embedded/access.h"
#include "store/embedded/lanes.h"
#include "store/embedded/reads.h"
#include "store/embedded/replay_items.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxLink = 2'048, kMaxName = 200, kMaxReason = 4'096;

/// What an act changes of a row; the rest of the row stays.
struct Change {
  State to = State::dead;
  FailureClass failure_class = FailureClass::none;
  std::optional<std::int64_t> lane;
  std::optional<Time> finished_at;
  std::optional<Time> parked_at;  // unset: as it was
};

std::optional<std::int64_t> Micros(std::optional<Time> time) {
  if (!time) return std::nullopt;
  return ToMicros(*time);
}

std::unexpected<Error> Conflict(std::string code, std::string message) {
  return Fail(ErrorKind::conflict, std::move(code), std::move(message));
}

/// Why the law forbids the act in this state, and what to do instead.
std::unexpected<Error> Refuse(Act act, const LetterRow& row) {
  const std::string_view state = Name(row.state);
  if (row.state == State::replayed) {
    return Conflict(
        "already_replayed",
        fmt::format("Event {} was already replayed by replay {}; its effect is applied.", row.id, row.replay_id));
  }
  if (row.replaying && (row.state == State::waiting || row.state == State::running)) {
    return Conflict("in_replay", fmt::format("Event {} is being replayed by replay {}; wait for its outcome.", row.id,
                                             row.replay_id));
  }
  if (act == Act::hold && row.state == State::held) {
    return Conflict("already_held", fmt::format("Event {} is held already; release it first to hold it anew.", row.id));
  }
  if (act == Act::release) {
    return Conflict("not_held", fmt::format("Event {} is {}; only a held one can be released.", row.id, state));
  }
  if (act == Act::reopen) {
    return Conflict("not_resolved", fmt::format("Event {} is {}; only a resolved one can be reopened.", row.id, state));
  }
  std::string message = fmt::format("Event {} is {}, not a dead letter.", row.id, state);
  if (row.state == State::resolved) message += " Reopen it first.";
  return Conflict("not_dead_lettered", std::move(message));
}

/// What a failure row must have before it can hold the words of a person: a resolved test event never failed.
Result<void> EnsureFailureRow(Db& db, EventId id) {
  return db
      .Prepare(
          "INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail) "
          "VALUES (?1, 0, 0, '', '', '') ON CONFLICT (event_id) DO NOTHING")
      .Bind(1, id)
      .Run();
}

Result<void> ClearHold(Db& db, EventId id) {
  return db
      .Prepare(
          "UPDATE failures SET hold_link = '', hold_owner = '', hold_until = NULL, wake_on_handler = '' "
          "WHERE event_id = ?1")
      .Bind(1, id)
      .Run();
}

/// The fenced write of every act but replay, with counts and lanes.
Result<void> WriteChange(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const Change& change) {
  auto written = db.Prepare(
                       "UPDATE events SET state = ?3, class = ?4, lane = ?5, finished_at = ?6, "
                       "parked_at = coalesce(?7, parked_at), replaying = 0, letter = CASE WHEN ?3 IN (3, 4) THEN ?3 "
                       "END WHERE id = ?1 AND state = ?2")
                     .Bind(1, row.id)
                     .Bind(2, static_cast<int>(row.state))
                     .Bind(3, static_cast<int>(change.to))
                     .Bind(4, static_cast<int>(change.failure_class))
                     .Bind(5, change.lane)
                     .Bind(6, Micros(change.finished_at))
                     .Bind(7, Micros(change.parked_at))
                     .Run();
  if (!written) return written;
  if (db.Changes() != 1) {
    return Fail(ErrorKind::unavailable, "changed_meanwhile",
                fmt::format("Event {} changed meanwhile; try again.", row.id));
  }
  counts.Move(row.source, row.state, row.failure_class, change.to, change.failure_class);
  if (change.lane == row.lane) return {};
  lanes.Leave(row.lane, row.id);
  lanes.Enter(change.lane, row.id);
  if (auto settled = lanes.Settle(db, row.lane); !settled) return settled;
  return lanes.Settle(db, change.lane);
}

Result<void> Hold(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const TriageAct& act) {
  const HoldRequest& hold = act.hold;
  const std::string link = CleanText(hold.link, kMaxLink), owner = CleanText(hold.owner, kMaxName),
                    wake = CleanText(hold.wake_on_handler, kMaxName);
  Change change{.to = State::held, .failure_class = row.failure_class};
  if (act.keep_lane) change.lane = row.lane;
  if (auto written = WriteChange(db, counts, lanes, row, change); !written) return written;
  if (auto made = EnsureFailureRow(db, row.id); !made) return made;
  return db
      .Prepare(
          "UPDATE failures SET hold_link = ?2, hold_owner = ?3, hold_until = ?4, wake_on_handler = ?5 "
          "WHERE event_id = ?1")
      .Bind(1, row.id)
      .Bind(2, link)
      .Bind(3, owner)
      .Bind(4, Micros(hold.until))
      .Bind(5, wake)
      .Run();
}

Result<void> Release(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const TriageAct& act) {
  Change change{.to = State::dead, .failure_class = row.failure_class};
  if (act.keep_lane) change.lane = row.lane;
  if (auto written = WriteChange(db, counts, lanes, row, change); !written) return written;
  return ClearHold(db, row.id);
}

Result<void> Resolve(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const TriageAct& act,
                     const Actor& actor, Time now) {
  const Change change{.to = State::resolved, .failure_class = row.failure_class, .finished_at = now};
  if (auto written = WriteChange(db, counts, lanes, row, change); !written) return written;
  if (auto cleared = ClearHold(db, row.id); !cleared) return cleared;
  if (auto made = EnsureFailureRow(db, row.id); !made) return made;
  const std::string reason = CleanText(actor.reason, kMaxReason);
  return db.Prepare("UPDATE failures SET resolve_code = ?2, resolve_reason = ?3 WHERE event_id = ?1")
      .Bind(1, row.id)
      .Bind(2, static_cast<int>(*act.resolve_code))
      .Bind(3, reason)
      .Run();
}

FailureClass ReopenedClass(const LetterRow& row) {
  return row.failure_class == FailureClass::none ? FailureClass::permanent : row.failure_class;
}

Result<void> Reopen(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const TriageAct& act, Time now) {
  Change change{.to = State::dead, .failure_class = ReopenedClass(row), .parked_at = now};
  // A conflict never held its subject: the first event of its key did its work.
  if (act.keep_lane && change.failure_class != FailureClass::conflict)
    change.lane = LaneOf(row.source_name, row.subject);
  if (auto written = WriteChange(db, counts, lanes, row, change); !written) return written;
  if (auto made = EnsureFailureRow(db, row.id); !made) return made;
  return db.Prepare("UPDATE failures SET resolve_code = NULL, resolve_reason = '' WHERE event_id = ?1")
      .Bind(1, row.id)
      .Run();
}

Result<std::int64_t> ReplayOne(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const Actor& actor,
                               Time now) {
  auto replay_id = CreateSingleReplay(db, row.id, row.source, actor, now);
  if (!replay_id) return replay_id;
  auto moved = MoveToReplay(db, counts, lanes, row, *replay_id, now);
  if (!moved) return std::unexpected(moved.error());
  if (!*moved) {
    return Fail(ErrorKind::unavailable, "changed_meanwhile",
                fmt::format("Event {} changed meanwhile; try again.", row.id));
  }
  return replay_id;
}

/// A letter is in one replay at a time.
Result<void> CheckFree(Db& db, const LetterRow& row) {
  const auto holder = ReplayThatHolds(db, row.id, row.source);
  if (!holder) return std::unexpected(holder.error());
  if (!*holder) return {};
  return Conflict("in_replay", fmt::format("Event {} waits for its turn in replay {}; wait for it, or cancel that "
                                           "replay first.",
                                           row.id, **holder));
}

/// What can be refused for the request itself, once the state allows the act.
Result<void> CheckRequest(Db& db, const TriageAct& act, const LetterRow& row) {
  if (act.act == Act::replay && row.failure_class == FailureClass::corrupt) {
    return Conflict("corrupt",
                    fmt::format("The stored bytes of event {} fail their digest and are never sent; restore the "
                                "journal from a backup.",
                                row.id));
  }
  if (act.act == Act::replay) return CheckFree(db, row);
  if (act.act == Act::hold && act.hold.link.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Fail(ErrorKind::invalid, "link_missing", "Holding a letter needs the link to the issue that must be fixed.");
  }
  if (act.act == Act::resolve && !act.resolve_code) {
    return Fail(ErrorKind::invalid, "resolve_code_missing",
                "Resolving a letter needs a code: entity_deleted, test_event, unsupported_kind, duplicate, superseded, "
                "handled_manually or other.");
  }
  return {};
}

json::object StateAndClass(State state, FailureClass failure_class) {
  return {{"state", Name(state)}, {"class", Name(failure_class)}};
}

std::string Details(const TriageAct& act, const LetterRow& row, State to, std::int64_t replay_id) {
  json::object details;
  details["before"] = StateAndClass(row.state, row.failure_class);
  details["after"] = StateAndClass(to, act.act == Act::reopen ? ReopenedClass(row) : row.failure_class);
  if (act.act == Act::replay) details["replay"] = replay_id;
  if (act.act == Act::hold) {
    details["link"] = CleanText(act.hold.link, kMaxLink);
    details["owner"] = CleanText(act.hold.owner, kMaxName);
    if (act.hold.until) details["until"] = FormatTime(*act.hold.until);
    if (!act.hold.wake_on_handler.empty()) details["wake_on_handler"] = CleanText(act.hold.wake_on_handler, kMaxName);
  }
  if (act.act == Act::resolve) details["code"] = Name(*act.resolve_code);
  return json::serialize(details);
}

}  // namespace

bool IsRefusal(const Error& error) {
  const bool kind = error.kind == ErrorKind::conflict || error.kind == ErrorKind::not_found ||
                    error.kind == ErrorKind::invalid || error.kind == ErrorKind::too_large;
  return kind && error.code != "constraint";  // that one is a check of the schema, met while writing
}

Result<std::optional<LetterRow>> ReadLetterRow(Db& db, EventId id) {
  Statement rows = db.Prepare(
      "SELECT e.source, n.name, r.subject, e.state, e.class, e.lane, e.replaying, e.replay_id, e.replays_failed "
      "FROM events e JOIN receipts r ON r.id = e.id LEFT JOIN names n ON n.id = e.source WHERE e.id = ?1");
  auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::optional<LetterRow>();
  return LetterRow{.id = id,
                   .source = rows.Int(0),
                   .source_name = rows.String(1),
                   .subject = rows.String(2),
                   .state = static_cast<State>(rows.Int(3)),
                   .failure_class = static_cast<FailureClass>(rows.Int(4)),
                   .lane = rows.OptInt(5),
                   .replaying = rows.Int(6) != 0,
                   .replay_id = rows.Int(7),
                   .replays_failed = static_cast<int>(rows.Int(8))};
}

Result<bool> MoveToReplay(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, std::int64_t replay_id,
                          Time now) {
  if (!IsLegal(Act::replay, row.state, State::waiting)) return false;
  const auto lane = LaneOf(row.source_name, row.subject);
  // Behind at first where others are in its lane; settling that brings the earliest to the front.
  const bool behind = lane && lanes.Occupied(*lane);
  auto moved = db.Prepare(
                     "UPDATE events SET state = 0, due_at = ?4, lane = ?5, behind = ?7, replaying = 1, "
                     "replay_id = ?6, replays = replays + 1, tries = 0, crashes = 0, lease_until = NULL, "
                     "worker = NULL, parked_at = NULL, letter = NULL WHERE id = ?1 AND state = ?2 AND class = ?3")
                   .Bind(1, row.id)
                   .Bind(2, static_cast<int>(row.state))
                   .Bind(3, static_cast<int>(row.failure_class))
                   .Bind(4, ToMicros(now))
                   .Bind(5, lane)
                   .Bind(6, replay_id)
                   .Bind(7, behind)
                   .Run();
  if (!moved) return std::unexpected(moved.error());
  if (db.Changes() != 1) return false;
  counts.Move(row.source, row.state, row.failure_class, State::waiting, row.failure_class);
  if (row.state == State::held) {
    if (auto cleared = ClearHold(db, row.id); !cleared) return std::unexpected(cleared.error());
  }
  if (lane && !behind) {
    lanes.EnterFront(*lane, row.id);
    return true;
  }
  lanes.Enter(lane, row.id);
  if (auto settled = lanes.Settle(db, lane); !settled) return std::unexpected(settled.error());
  return true;
}

Result<Letter> ApplyTriage(Db& db, Counts& counts, Lanes& lanes, const TriageAct& act, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  const auto row = ReadLetterRow(db, act.id);
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", act.id));
  const LetterRow& before = **row;
  const auto to = Target(act.act, before.state);
  if (!to) return Refuse(act.act, before);
  if (auto ok = CheckRequest(db, act, before); !ok) return std::unexpected(ok.error());

  Result<void> done;
  std::int64_t replay_id = 0;
  switch (act.act) {
    case Act::replay: {
      auto replayed = ReplayOne(db, counts, lanes, before, actor, now);
      if (!replayed) return std::unexpected(replayed.error());
      replay_id = *replayed;
      break;
    }
    case Act::hold:
      done = Hold(db, counts, lanes, before, act);
      break;
    case Act::release:
      done = Release(db, counts, lanes, before, act);
      break;
    case Act::resolve:
      done = Resolve(db, counts, lanes, before, act, actor, now);
      break;
    case Act::reopen:
      done = Reopen(db, counts, lanes, before, act, now);
      break;
    case Act::claim:
    case Act::apply:
    case Act::hand_back:
      return Refuse(act.act, before);  // not a person's
  }
  if (!done) return std::unexpected(done.error());
  if (auto audited = WriteAudit(db, actor, now, Name(act.act), act.id, Details(act, before, *to, replay_id));
      !audited) {
    return std::unexpected(audited.error());
  }
  return ReadLetter(db, act.id);
}

}  // namespace dlo::store
