#include "store/embedded/bulk_decisions.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "store/embedded/access.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/id_digest.h"
#include "store/embedded/triage.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxLink = 2'048, kMaxName = 200, kMaxReason = 4'096;
constexpr Act kActs[] = {Act::hold, Act::release, Act::resolve, Act::reopen};

std::unexpected<Error> NoSuchDecision(std::int64_t id) {
  return Fail(ErrorKind::not_found, "no_such_decision", fmt::format("There is no decision {}.", id));
}

/// The filter's states, as far as the act leads from them; all such states where it names none.
Result<Filter> FitStates(Filter filter, Act act) {
  std::vector<State> fit;
  std::string names;
  for (int s = 0; s < kStateCount; ++s) {
    const auto state = static_cast<State>(s);
    if (!Target(act, state)) continue;
    names += (names.empty() ? "" : " or ") + std::string(Name(state));
    if (filter.states.empty() || std::ranges::find(filter.states, state) != filter.states.end()) fit.push_back(state);
  }
  if (fit.empty()) {
    return Fail(
        ErrorKind::invalid, "state_not_fit",
        fmt::format("{} takes letters in state {}; leave \"state\" out or name one of them.", Name(act), names));
  }
  filter.states = std::move(fit);
  return filter;
}

constexpr char kDecisionColumns[] =
    "SELECT id, act, state, created_at, actor, role, reason, filter, link, owner, until, wake_on_handler, "
    "resolve_code, "
    "digest, count, changed, skipped, done_through FROM decisions ";

struct Stored {
  Decision decision;
  BulkAct act;
  std::string role;
  EventId done_through = 0;
};

Stored ReadStored(const Statement& row) {
  Stored stored;
  Decision& d = stored.decision;
  d.id = row.Int(0);
  d.act = row.String(1);
  d.state = row.String(2);
  d.created_at = FromMicros(row.Int(3));
  d.actor = row.String(4);
  stored.role = row.String(5);
  d.reason = row.String(6);
  d.filter = row.String(7);
  stored.act.hold.link = row.String(8);
  stored.act.hold.owner = row.String(9);
  if (const auto until = row.OptInt(10)) stored.act.hold.until = FromMicros(*until);
  stored.act.hold.wake_on_handler = row.String(11);
  if (const auto code = row.OptInt(12)) stored.act.resolve_code = static_cast<ResolveCode>(*code);
  d.digest = row.String(13);
  d.count = row.Int(14);
  d.changed = row.Int(15);
  d.skipped = row.Int(16);
  stored.done_through = row.Int(17);
  for (const Act act : kActs) {
    if (Name(act) == d.act) stored.act.act = act;
  }
  return stored;
}

Result<Stored> ReadOne(Db& db, std::int64_t id) {
  static const std::string kSql = std::string(kDecisionColumns) + "WHERE id = ?1 AND state <> 'freezing'";
  Statement rows = db.Prepare(kSql);
  const auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return NoSuchDecision(id);
  return ReadStored(rows);
}

Result<std::vector<FrozenLetter>> NextLetters(Db& db, std::int64_t id, EventId after, int n) {
  Statement rows = db.Prepare(
      "SELECT event_id, state, attempt_no FROM decision_items WHERE decision_id = ?1 AND event_id > ?2 ORDER BY "
      "event_id "
      "LIMIT ?3");
  rows.Bind(1, id).Bind(2, after).Bind(3, n);
  std::vector<FrozenLetter> letters;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return letters;
    letters.push_back({rows.Int(0), static_cast<State>(rows.Int(1)), static_cast<int>(rows.Int(2))});
  }
}

Result<void> TellSkipped(Db& db, Decision& decision) {
  if (decision.skipped == 0) return {};
  Statement rows = db.Prepare(
      "SELECT event_id FROM decision_items WHERE decision_id = ?1 AND skipped = 1 ORDER BY event_id LIMIT 100");
  rows.Bind(1, decision.id);
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    decision.skipped_ids.push_back(rows.Int(0));
  }
}

/// True: changed. False: it has moved since the freeze, and stays as it is.
Result<bool> DoOne(IndexContext& context, const HoldsLane& holds_lane, const Stored& stored, const FrozenLetter& frozen,
                   Time now) {
  const auto row = ReadLetterRow(context.db, frozen.id);
  if (!row) return std::unexpected(row.error());
  if (!*row || (*row)->state != frozen.state || (*row)->attempt_no != frozen.attempt_no) {
    auto marked = context.db.Prepare("UPDATE decision_items SET skipped = 1 WHERE decision_id = ?1 AND event_id = ?2")
                      .Bind(1, stored.decision.id)
                      .Bind(2, frozen.id)
                      .Run();
    if (!marked) return std::unexpected(marked.error());
    return false;
  }
  const TriageAct act{.id = frozen.id,
                      .act = stored.act.act,
                      .hold = stored.act.hold,
                      .resolve_code = stored.act.resolve_code,
                      .keep_lane = holds_lane && holds_lane((*row)->source_name)};
  const Actor actor{.name = stored.decision.actor, .role = stored.role, .reason = stored.decision.reason};
  auto done =
      ApplyToRow(context.db, context.counts, context.lanes, **row, act, actor, now, {"decision", stored.decision.id});
  if (!done) return std::unexpected(done.error());
  return true;
}

json::object Words(const BulkAct& act) {
  json::object words;
  if (act.act == Act::hold) {
    words["link"] = CleanText(act.hold.link, kMaxLink);
    words["owner"] = CleanText(act.hold.owner, kMaxName);
    if (act.hold.until) words["until"] = FormatTime(*act.hold.until);
    words["wake_on_handler"] = CleanText(act.hold.wake_on_handler, kMaxName);
  }
  if (act.act == Act::resolve) words["code"] = Name(*act.resolve_code);
  return words;
}

}  // namespace

Result<Selection> SelectLetters(Db& db, const Filter& filter, Act act, std::int64_t keep) {
  const auto fit = FitStates(filter, act);
  if (!fit) return std::unexpected(fit.error());
  const auto sql = FilterSql::ForLetters(*fit);
  if (!sql) return std::unexpected(sql.error());
  auto rows = db.PrepareOnce(
      fmt::format("SELECT e.id, e.class, r.kind, e.state, e.attempt_no FROM events e{} WHERE {} ORDER BY e.id",
                  sql->Joins(true), sql->where()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  Selection selection;
  Decision& plan = selection.plan;
  plan.act = Name(act);
  IdDigest digest;
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    ++plan.count;
    ++plan.by_class[std::string(Name(static_cast<FailureClass>(rows->Int(1))))];
    ++plan.by_type[rows->String(2)];
    digest.Add(rows->Int(0));
    if (plan.count > keep) {
      selection.too_many = true;
      continue;
    }
    selection.letters.push_back({rows->Int(0), static_cast<State>(rows->Int(3)), static_cast<int>(rows->Int(4))});
  }
  plan.digest = digest.Hex();
  return selection;
}

Result<std::int64_t> BeginDecision(Db& db, const Filter& filter, const BulkAct& act, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  const std::string name = CleanText(actor.name, kMaxName), role = CleanText(actor.role, kMaxName),
                    reason = CleanText(actor.reason, kMaxReason), link = CleanText(act.hold.link, kMaxLink),
                    owner = CleanText(act.hold.owner, kMaxName), wake = CleanText(act.hold.wake_on_handler, kMaxName),
                    filter_json = FilterToJson(filter);
  std::optional<std::int64_t> until, code;
  if (act.hold.until) until = ToMicros(*act.hold.until);
  if (act.resolve_code) code = static_cast<std::int64_t>(*act.resolve_code);
  auto done = db.Prepare(
                    "INSERT INTO decisions (act, state, created_at, actor, role, reason, filter, link, owner, until, "
                    "wake_on_handler, resolve_code, digest, count) "
                    "VALUES (?1, 'freezing', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, '', 0)")
                  .Bind(1, Name(act.act))
                  .Bind(2, ToMicros(now))
                  .Bind(3, name)
                  .Bind(4, role)
                  .Bind(5, reason)
                  .Bind(6, filter_json)
                  .Bind(7, link)
                  .Bind(8, owner)
                  .Bind(9, until)
                  .Bind(10, wake)
                  .Bind(11, code)
                  .Run();
  if (!done) return std::unexpected(done.error());
  return sqlite3_last_insert_rowid(db.handle());
}

Result<void> AddToDecision(Db& db, std::int64_t id, std::span<const FrozenLetter> letters) {
  for (const FrozenLetter& letter : letters) {
    auto done =
        db.Prepare("INSERT INTO decision_items (decision_id, event_id, state, attempt_no) VALUES (?1, ?2, ?3, ?4)")
            .Bind(1, id)
            .Bind(2, letter.id)
            .Bind(3, static_cast<int>(letter.state))
            .Bind(4, letter.attempt_no)
            .Run();
    if (!done) return done;
  }
  return {};
}

Result<Decision> SealDecision(Db& db, std::int64_t id, const Selection& selection, const DecisionOptions& options,
                              const Actor& actor, Time now) {
  const Decision& plan = selection.plan;
  std::optional<std::int64_t> finished;
  if (plan.count == 0) finished = ToMicros(now);
  auto done = db.Prepare(
                    "UPDATE decisions SET state = CASE ?2 WHEN 0 THEN 'done' ELSE 'running' END, count = ?2, digest = "
                    "?3, finished_at = ?4 WHERE id = ?1 AND state = 'freezing'")
                  .Bind(1, id)
                  .Bind(2, plan.count)
                  .Bind(3, plan.digest)
                  .Bind(4, finished)
                  .Run();
  if (!done) return std::unexpected(done.error());
  auto stored = ReadOne(db, id);
  if (!stored) return std::unexpected(stored.error());
  json::object details = Words(stored->act);
  details["decision"] = id;
  details["filter"] = stored->decision.filter;
  details["count"] = plan.count;
  details["digest"] = plan.digest;
  details["max"] = options.max;
  details["force"] = options.force;
  auto audited = WriteAudit(db, actor, now, "bulk_" + plan.act, 0, json::serialize(details));
  if (!audited) return std::unexpected(audited.error());
  stored->decision.by_class = plan.by_class;
  stored->decision.by_type = plan.by_type;
  return std::move(stored->decision);
}

Result<void> DropUnsealed(Db& db) {
  auto done = db.Exec(
      "DELETE FROM decision_items WHERE decision_id IN (SELECT id FROM decisions INDEXED BY decisions_open WHERE state "
      "<> 'done' AND state = 'freezing')");
  if (!done) return done;
  return db.Exec("DELETE FROM decisions WHERE state <> 'done' AND state = 'freezing'");
}

Result<std::vector<std::int64_t>> ReadOpenDecisions(Db& db) {
  Statement rows = db.Prepare("SELECT id FROM decisions WHERE state <> 'done' AND state = 'running' ORDER BY id");
  std::vector<std::int64_t> open;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return open;
    open.push_back(rows.Int(0));
  }
}

Result<Decision> StepDecision(IndexContext& context, const HoldsLane& holds_lane, std::int64_t id, int n, Time now) {
  auto stored = ReadOne(context.db, id);
  if (!stored) return std::unexpected(stored.error());
  Decision& decision = stored->decision;
  if (decision.state != "running") return std::move(decision);
  const auto letters = NextLetters(context.db, id, stored->done_through, std::max(n, 1));
  if (!letters) return std::unexpected(letters.error());
  for (const FrozenLetter& letter : *letters) {
    const auto changed = DoOne(context, holds_lane, *stored, letter, now);
    if (!changed) return std::unexpected(changed.error());
    ++(*changed ? decision.changed : decision.skipped);
    stored->done_through = letter.id;
  }
  const bool over = decision.changed + decision.skipped >= decision.count || letters->empty();
  std::optional<std::int64_t> finished;
  if (over) finished = ToMicros(now);
  decision.state = over ? "done" : "running";
  auto done =
      context.db
          .Prepare(
              "UPDATE decisions SET changed = ?2, skipped = ?3, done_through = ?4, state = ?5, finished_at = ?6 "
              "WHERE id = ?1 AND state = 'running'")
          .Bind(1, id)
          .Bind(2, decision.changed)
          .Bind(3, decision.skipped)
          .Bind(4, stored->done_through)
          .Bind(5, decision.state)
          .Bind(6, finished)
          .Run();
  if (done && over) done = TellSkipped(context.db, decision);
  if (!done) return std::unexpected(done.error());
  context.NotifyWork();
  return std::move(decision);
}

Result<Decision> ReadDecision(Db& db, std::int64_t id) {
  auto stored = ReadOne(db, id);
  if (!stored) return std::unexpected(stored.error());
  if (auto told = TellSkipped(db, stored->decision); !told) return std::unexpected(told.error());
  return std::move(stored->decision);
}

Result<std::vector<Decision>> ReadDecisions(Db& db, int limit) {
  static const std::string kSql = std::string(kDecisionColumns) + "WHERE state <> 'freezing' ORDER BY id DESC LIMIT ?1";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, std::clamp(limit, 1, 500));
  std::vector<Decision> decisions;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return decisions;
    decisions.push_back(ReadStored(rows).decision);
  }
}

}  // namespace dlo::store
