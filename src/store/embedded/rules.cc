#include "store/embedded/rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "store/embedded/access.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/triage.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxLink = 2'048, kMaxName = 200, kMaxReason = 4'096, kSamples = 10;

constexpr char kRuleColumns[] =
    "SELECT id, name, created_at, expires_at, ended_at, expired, actor, reason, filter, resolve_code, link, owner, "
    "hits, "
    "last_hit_at, mark FROM rules ";

struct StoredRule {
  Rule rule;
  std::int64_t mark = 0;
};

Result<StoredRule> ReadRule(const Statement& row) {
  StoredRule stored;
  Rule& rule = stored.rule;
  rule.id = row.Int(0);
  rule.name = row.String(1);
  rule.created_at = FromMicros(row.Int(2));
  rule.expires_at = FromMicros(row.Int(3));
  if (const auto ended = row.OptInt(4)) rule.ended_at = FromMicros(*ended);
  rule.state = !rule.ended_at ? "live" : row.Int(5) != 0 ? "expired" : "ended";
  rule.actor = row.String(6);
  rule.reason = row.String(7);
  auto match = FilterFromJson(row.Text(8));
  if (!match) {
    return Fail(ErrorKind::corrupt, "rule_corrupt", fmt::format("The filter of rule {} cannot be read.", rule.id));
  }
  rule.match = std::move(*match);
  if (const auto code = row.OptInt(9)) rule.resolve_code = static_cast<ResolveCode>(*code);
  rule.hold_link = row.String(10);
  rule.hold_owner = row.String(11);
  rule.hits = row.Int(12);
  if (const auto at = row.OptInt(13)) rule.last_hit_at = FromMicros(*at);
  stored.mark = row.Int(14);
  return stored;
}

Result<std::vector<StoredRule>> ReadAll(Statement rows) {
  std::vector<StoredRule> rules;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return rules;
    auto rule = ReadRule(rows);
    if (!rule) return std::unexpected(rule.error());
    rules.push_back(std::move(*rule));
  }
}

Result<std::vector<StoredRule>> LiveRules(Db& db) {
  static const std::string kSql = std::string(kRuleColumns) + "WHERE ended_at IS NULL ORDER BY id";
  return ReadAll(db.Prepare(kSql));
}

Result<Rule> ReadOne(Db& db, std::int64_t id) {
  static const std::string kSql = std::string(kRuleColumns) + "WHERE id = ?1";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, id);
  auto rules = ReadAll(std::move(rows));
  if (!rules) return std::unexpected(rules.error());
  if (rules->empty()) return Fail(ErrorKind::not_found, "no_such_rule", fmt::format("There is no rule {}.", id));
  return std::move(rules->front().rule);
}

std::string Details(const Rule& rule) {
  json::object details = {{"rule", rule.id}, {"name", rule.name}, {"filter", FilterToJson(rule.match)}};
  details["expires_at"] = FormatTime(rule.expires_at);
  if (rule.resolve_code) {
    details["code"] = Name(*rule.resolve_code);
  } else {
    details["link"] = rule.hold_link;
    details["owner"] = rule.hold_owner;
  }
  return json::serialize(details);
}

/// Its date has come. One record each, by "system".
Result<void> EndExpired(Db& db, Time now) {
  const auto live = LiveRules(db);
  if (!live) return std::unexpected(live.error());
  for (const StoredRule& stored : *live) {
    if (stored.rule.expires_at > now) continue;
    auto done = db.Prepare("UPDATE rules SET ended_at = expires_at, expired = 1 WHERE id = ?1 AND ended_at IS NULL")
                    .Bind(1, stored.rule.id)
                    .Run();
    if (done) {
      done = WriteAudit(db, {"system", "admin", "its date has come"}, now, "rule_expired", 0, Details(stored.rule));
    }
    if (!done) return done;
  }
  return {};
}

struct Queued {
  std::int64_t seq = 0;
  EventId id = 0;
  bool taken = false;
};

Result<std::vector<Queued>> NextQueued(Db& db, int n) {
  Statement rows = db.Prepare("SELECT seq, event_id FROM rule_queue ORDER BY seq LIMIT ?1");
  rows.Bind(1, n);
  std::vector<Queued> queued;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return queued;
    queued.push_back({rows.Int(0), rows.Int(1)});
  }
}

/// Those of the queued that came after the rule, match it, are dead, and were never taken by it.
Result<std::vector<EventId>> Matching(Db& db, const StoredRule& stored, const std::vector<Queued>& queued) {
  Filter filter = stored.rule.match;
  filter.states = {State::dead};
  for (const Queued& one : queued) {
    if (!one.taken && one.seq > stored.mark) filter.ids.push_back(one.id);
  }
  std::vector<EventId> ids;
  if (filter.ids.empty()) return ids;
  const auto sql = FilterSql::ForLetters(filter);
  if (!sql) return std::unexpected(sql.error());
  auto rows = db.PrepareOnce(fmt::format(
      "SELECT e.id FROM events e{} WHERE {} AND NOT EXISTS (SELECT 1 FROM rule_hits h WHERE h.rule_id = ?{} AND "
      "h.event_id = e.id) ORDER BY e.id",
      sql->Joins(), sql->where(), sql->next_parameter()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  rows->Bind(sql->next_parameter(), stored.rule.id);
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return ids;
    ids.push_back(rows->Int(0));
  }
}

Result<void> Take(IndexContext& context, const HoldsLane& holds_lane, const Rule& rule, EventId id, Time now) {
  const auto row = ReadLetterRow(context.db, id);
  if (!row) return std::unexpected(row.error());
  if (!*row) return {};
  TriageAct act{.id = id, .act = rule.resolve_code ? Act::resolve : Act::hold, .resolve_code = rule.resolve_code};
  act.hold.link = rule.hold_link;
  act.hold.owner = rule.hold_owner;
  act.keep_lane = holds_lane && holds_lane((*row)->source_name);
  const Actor actor{.name = "rule:" + rule.name, .role = "rule", .reason = rule.reason};
  auto done = ApplyToRow(context.db, context.counts, context.lanes, **row, act, actor, now, {"rule", rule.id});
  if (done) {
    done = context.db.Prepare("INSERT INTO rule_hits (rule_id, event_id, at) VALUES (?1, ?2, ?3)")
               .Bind(1, rule.id)
               .Bind(2, id)
               .Bind(3, ToMicros(now))
               .Run();
  }
  if (!done) return done;
  return context.db.Prepare("UPDATE rules SET hits = hits + 1, last_hit_at = ?2 WHERE id = ?1")
      .Bind(1, rule.id)
      .Bind(2, ToMicros(now))
      .Run();
}

}  // namespace

Result<void> QueueForRules(Db& db, EventId id) {
  {
    // Asked apart: an insert that inserts nothing costs several times as much, at every death.
    Statement live = db.Prepare("SELECT 1 FROM rules WHERE ended_at IS NULL LIMIT 1");
    const auto row = live.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
  }
  return db.Prepare("INSERT INTO rule_queue (event_id) VALUES (?1)").Bind(1, id).Run();
}

Result<bool> RulesWait(Db& db, Time now) {
  Statement rows = db.Prepare(
      "SELECT EXISTS (SELECT 1 FROM rule_queue) OR EXISTS (SELECT 1 FROM rules WHERE ended_at IS NULL AND expires_at "
      "<= "
      "?1)");
  const auto row = rows.Bind(1, ToMicros(now)).Step();
  if (!row) return std::unexpected(row.error());
  return rows.Int(0) != 0;
}

Result<RuleStep> ApplyRules(IndexContext& context, const HoldsLane& holds_lane, int n, Time now) {
  Db& db = context.db;
  if (auto ended = EndExpired(db, now); !ended) return std::unexpected(ended.error());
  auto queued = NextQueued(db, n);
  if (!queued) return std::unexpected(queued.error());
  RuleStep step;
  step.looked_at = static_cast<int>(queued->size());
  step.more = step.looked_at == n;
  if (queued->empty()) return step;
  const auto live = LiveRules(db);
  if (!live) return std::unexpected(live.error());
  for (const StoredRule& stored : *live) {
    const auto ids = Matching(db, stored, *queued);
    if (!ids) return std::unexpected(ids.error());
    for (const EventId id : *ids) {
      if (auto done = Take(context, holds_lane, stored.rule, id, now); !done) return std::unexpected(done.error());
      for (Queued& one : *queued) one.taken = one.taken || one.id == id;
      step.hits.emplace_back(stored.rule.name, id);
    }
  }
  if (auto done = db.Prepare("DELETE FROM rule_queue WHERE seq <= ?1").Bind(1, queued->back().seq).Run(); !done) {
    return std::unexpected(done.error());
  }
  if (!step.hits.empty()) context.NotifyWork();
  return step;
}

Result<Rule> InsertRule(Db& db, const Rule& rule, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  // One that cannot be asked later would stop all that come after it.
  if (auto asked = FilterSql::ForLetters(rule.match); !asked) return std::unexpected(asked.error());
  const auto live = LiveRules(db);
  if (!live) return std::unexpected(live.error());
  for (const StoredRule& stored : *live) {
    if (stored.rule.name != rule.name) continue;
    return Fail(ErrorKind::conflict, "name_taken",
                fmt::format("Rule {} of that name is live; end it first or choose another name.", stored.rule.id));
  }
  if (std::ssize(*live) >= kMaxLiveRules) {
    return Fail(ErrorKind::conflict, "too_many_rules", fmt::format("{} rules are live; end some.", live->size()));
  }
  const std::string filter = FilterToJson(rule.match), name = CleanText(actor.name, kMaxName),
                    reason = CleanText(actor.reason, kMaxReason), link = CleanText(rule.hold_link, kMaxLink),
                    owner = CleanText(rule.hold_owner, kMaxName);
  std::optional<std::int64_t> code;
  if (rule.resolve_code) code = static_cast<std::int64_t>(*rule.resolve_code);
  auto done =
      db.Prepare(
            "INSERT INTO rules (name, created_at, expires_at, actor, reason, filter, resolve_code, link, owner, "
            "mark) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, coalesce((SELECT seq FROM sqlite_sequence WHERE "
            "name = 'rule_queue'), 0))")
          .Bind(1, rule.name)
          .Bind(2, ToMicros(now))
          .Bind(3, ToMicros(rule.expires_at))
          .Bind(4, name)
          .Bind(5, reason)
          .Bind(6, filter)
          .Bind(7, code)
          .Bind(8, code ? std::string_view("") : std::string_view(link))
          .Bind(9, code ? std::string_view("") : std::string_view(owner))
          .Run();
  if (!done) return std::unexpected(done.error());
  auto made = ReadOne(db, sqlite3_last_insert_rowid(db.handle()));
  if (!made) return made;
  if (auto audited = WriteAudit(db, actor, now, "rule_add", 0, Details(*made)); !audited) {
    return std::unexpected(audited.error());
  }
  return made;
}

Result<Rule> EndRule(Db& db, std::int64_t id, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  const auto rule = ReadOne(db, id);
  if (!rule) return rule;
  if (rule->ended_at) {
    return Fail(ErrorKind::conflict, "rule_ended",
                fmt::format("Rule {} ended {} already.", id, FormatTime(*rule->ended_at)));
  }
  auto done = db.Prepare("UPDATE rules SET ended_at = ?2 WHERE id = ?1 AND ended_at IS NULL")
                  .Bind(1, id)
                  .Bind(2, ToMicros(now))
                  .Run();
  if (done) done = WriteAudit(db, actor, now, "rule_end", 0, Details(*rule));
  if (!done) return std::unexpected(done.error());
  return ReadOne(db, id);
}

Result<std::vector<Rule>> ReadRules(Db& db, int limit) {
  static const std::string kSql = std::string(kRuleColumns) + "ORDER BY ended_at IS NOT NULL, id DESC LIMIT ?1";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, std::clamp(limit, 1, 500));
  auto stored = ReadAll(std::move(rows));
  if (!stored) return std::unexpected(stored.error());
  std::vector<Rule> rules;
  for (StoredRule& one : *stored) rules.push_back(std::move(one.rule));
  return rules;
}

Result<RuleTrial> TryRule(Db& db, const Rule& rule) {
  Filter filter = rule.match;
  filter.states = {State::dead};
  const auto sql = FilterSql::ForLetters(filter);
  if (!sql) return std::unexpected(sql.error());
  auto rows = db.PrepareOnce(fmt::format("SELECT e.id, e.class, r.kind FROM events e{} WHERE {} ORDER BY e.id",
                                         sql->Joins(true), sql->where()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  RuleTrial trial;
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return trial;
    ++trial.count;
    ++trial.by_class[std::string(Name(static_cast<FailureClass>(rows->Int(1))))];
    ++trial.by_type[rows->String(2)];
    if (trial.samples.size() < kSamples) trial.samples.push_back(rows->Int(0));
  }
}

}  // namespace dlo::store
