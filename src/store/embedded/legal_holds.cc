#include "store/embedded/legal_holds.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "store/embedded/access.h"
#include "store/embedded/filter_sql.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxName = 200, kMaxReason = 4'096;

LegalHold ReadHold(const Statement& row) {
  LegalHold hold;
  hold.id = row.Int(0);
  hold.created_at = FromMicros(row.Int(1));
  hold.actor = row.String(2);
  hold.reason = row.String(3);
  hold.filter = row.String(4);
  if (const auto at = row.OptInt(5)) hold.ended_at = FromMicros(*at);
  hold.ended_by = row.String(6);
  hold.end_reason = row.String(7);
  return hold;
}

Result<std::vector<LegalHold>> ReadAll(Statement rows) {
  std::vector<LegalHold> holds;
  for (;;) {
    const auto more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) return holds;
    holds.push_back(ReadHold(rows));
  }
}

Result<LegalHold> ReadOne(Db& db, std::int64_t id) {
  Statement row = db.Prepare(
      "SELECT id, created_at, actor, reason, filter, ended_at, ended_by, end_reason FROM legal_holds WHERE id = ?1");
  const auto found = row.Bind(1, id).Step();
  if (!found) return std::unexpected(found.error());
  if (!*found) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no legal hold {}.", id));
  return ReadHold(row);
}

Result<void> CheckReason(const Actor& actor) {
  if (auto ok = CheckActor(actor); !ok) return ok;
  if (actor.reason.find_first_not_of(" \t\r\n") != std::string::npos) return {};
  return Fail(ErrorKind::invalid, "reason_missing",
              "A legal hold begins and ends with a reason: name the case, so that others know when it may end.");
}

std::string Details(const LegalHold& hold) {
  return fmt::format(R"({{"hold":{},"filter":{}}})", hold.id, hold.filter);
}

}  // namespace

Result<std::vector<LegalHold>> ReadLegalHolds(Db& db) {
  return ReadAll(
      db.Prepare("SELECT id, created_at, actor, reason, filter, ended_at, ended_by, end_reason FROM legal_holds ORDER "
                 "BY id DESC"));
}

Result<LegalHold> AddLegalHold(Db& db, const Filter& filter, const Actor& actor, Time now) {
  if (auto ok = CheckReason(actor); !ok) return std::unexpected(ok.error());
  if (const auto readable = FilterSql::ForEvents(filter); !readable) return std::unexpected(readable.error());
  const std::string name = CleanText(actor.name, kMaxName), reason = CleanText(actor.reason, kMaxReason),
                    text = FilterToJson(filter);
  std::int64_t id = 0;
  {
    Statement insert =
        db.Prepare("INSERT INTO legal_holds (created_at, actor, reason, filter) VALUES (?1, ?2, ?3, ?4) RETURNING id");
    const auto row = insert.Bind(1, ToMicros(now)).Bind(2, name).Bind(3, reason).Bind(4, text).Step();
    if (!row) return std::unexpected(row.error());
    id = insert.Int(0);
    if (auto end = insert.Step(); !end) return std::unexpected(end.error());
  }
  auto hold = ReadOne(db, id);
  if (!hold) return hold;
  if (auto audited = WriteAudit(db, actor, now, "legal_hold_add", 0, Details(*hold)); !audited) {
    return std::unexpected(audited.error());
  }
  return hold;
}

Result<LegalHold> EndLegalHold(Db& db, std::int64_t id, const Actor& actor, Time now) {
  if (auto ok = CheckReason(actor); !ok) return std::unexpected(ok.error());
  const auto before = ReadOne(db, id);
  if (!before) return before;
  const std::string name = CleanText(actor.name, kMaxName), reason = CleanText(actor.reason, kMaxReason);
  auto ended = db.Prepare(
                     "UPDATE legal_holds SET ended_at = ?2, ended_by = ?3, end_reason = ?4 WHERE id = ?1 AND ended_at "
                     "IS NULL")
                   .Bind(1, id)
                   .Bind(2, ToMicros(now))
                   .Bind(3, name)
                   .Bind(4, reason)
                   .Run();
  if (!ended) return std::unexpected(ended.error());
  if (db.Changes() != 1) {
    return Fail(ErrorKind::conflict, "already_ended",
                fmt::format("Legal hold {} was ended by {} at {}.", id, before->ended_by,
                            FormatTime(before->ended_at.value_or(Time{}))));
  }
  if (auto audited = WriteAudit(db, actor, now, "legal_hold_end", 0, Details(*before)); !audited) {
    return std::unexpected(audited.error());
  }
  return ReadOne(db, id);
}

Result<std::vector<EventId>> EventsOnHold(Db& db, EventId first, EventId last, std::int64_t limit) {
  const auto holds = ReadAll(db.Prepare(
      "SELECT id, created_at, actor, reason, filter, ended_at, ended_by, end_reason FROM legal_holds INDEXED BY "
      "legal_holds_open WHERE ended_at IS NULL"));
  if (!holds) return std::unexpected(holds.error());
  std::vector<EventId> found;
  for (const LegalHold& hold : *holds) {
    const auto filter = FilterFromJson(hold.filter);
    if (!filter) return std::unexpected(filter.error());
    const auto sql = FilterSql::ForEvents(*filter);
    if (!sql) return std::unexpected(sql.error());
    const int next = sql->next_parameter();
    auto rows = db.PrepareOnce(
        fmt::format("SELECT e.id FROM events e{} WHERE {} AND e.id BETWEEN ?{} AND ?{} ORDER BY e.id LIMIT ?{}",
                    sql->Joins(), sql->where(), next, next + 1, next + 2));
    if (!rows) return std::unexpected(rows.error());
    sql->BindTo(*rows);
    rows->Bind(next, first).Bind(next + 1, last).Bind(next + 2, limit);
    for (;;) {
      const auto more = rows->Step();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      found.push_back(rows->Int(0));
    }
  }
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

}  // namespace dlo::store
