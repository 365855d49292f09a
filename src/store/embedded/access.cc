#include "store/embedded/access.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/audit_chain.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr int kMaxRows = 500;
constexpr std::size_t kMaxName = 200, kMaxReason = 4'096;

Token ReadToken(const Statement& row) {
  Token token;
  token.id = row.Int(0);
  token.name = row.String(1);
  token.role = row.String(2);
  token.hash = row.String(3);
  token.created_at = FromMicros(row.Int(4));
  if (const auto at = row.OptInt(5)) token.revoked_at = FromMicros(*at);
  return token;
}

Result<std::optional<Token>> LiveToken(Db& db, const std::string& name) {
  Statement find = db.Prepare(
      "SELECT id, name, role, hash, created_at, revoked_at FROM tokens WHERE name = ?1 AND revoked_at IS NULL");
  auto row = find.Bind(1, name).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::optional<Token>();
  return ReadToken(find);
}

std::string TokenDetails(const Token& token) {
  return json::serialize(json::object{{"token", token.id}, {"name", token.name}, {"role", token.role}});
}

}  // namespace

Result<void> CheckActor(const Actor& actor) {
  if (!actor.name.empty()) return {};
  return Fail(ErrorKind::invalid, "actor_missing", "Say who acts: the audit record needs a name.");
}

Result<void> WriteAudit(Db& db, const Actor& actor, Time now, std::string_view action, EventId event_id,
                        std::string_view details) {
  AuditRecord record{.at = now,
                     .actor = CleanText(actor.name, kMaxName),
                     .role = CleanText(actor.role, kMaxName),
                     .action = std::string(action),
                     .event_id = event_id,
                     .reason = CleanText(actor.reason, kMaxReason),
                     .details = std::string(details)};
  return AppendAudit(db, record);
}

Result<Token> CreateToken(Db& db, const std::string& name, const std::string& role, const std::string& hash,
                          const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  if (name.empty() || name.size() > 64 || CleanText(name, 64) != name) {
    return Fail(ErrorKind::invalid, "bad_token_name", "A token's name has 1 to 64 bytes without control characters.");
  }
  if (role != "viewer" && role != "operator" && role != "admin") {
    return Fail(ErrorKind::invalid, "bad_role", "A role is viewer, operator or admin.");
  }
  auto taken = LiveToken(db, name);
  if (!taken) return std::unexpected(taken.error());
  if (*taken) {
    return Fail(ErrorKind::conflict, "name_taken",
                "A token named \"" + name + "\" is in use; revoke it first or choose another name.");
  }
  Token token{.name = name, .role = role, .hash = hash, .created_at = now, .revoked_at = {}};
  {
    Statement insert =
        db.Prepare("INSERT INTO tokens (name, role, hash, created_at) VALUES (?1, ?2, ?3, ?4) RETURNING id");
    auto row = insert.Bind(1, name).Bind(2, role).Bind(3, hash).Bind(4, ToMicros(now)).Step();
    if (!row) return std::unexpected(row.error());
    token.id = insert.Int(0);
    // Only the step to the end completes the statement.
    if (auto end = insert.Step(); !end) return std::unexpected(end.error());
  }
  if (auto audited = WriteAudit(db, actor, now, "token_create", 0, TokenDetails(token)); !audited) {
    return std::unexpected(audited.error());
  }
  return token;
}

Result<Token> RevokeToken(Db& db, const std::string& name, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  auto token = LiveToken(db, name);
  if (!token) return std::unexpected(token.error());
  if (!*token) {
    return Fail(ErrorKind::not_found, "no_such_token", "No token in use has this name; see the list of tokens.");
  }
  auto revoked = db.Prepare("UPDATE tokens SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL")
                     .Bind(1, (*token)->id)
                     .Bind(2, ToMicros(now))
                     .Run();
  if (!revoked) return std::unexpected(revoked.error());
  (*token)->revoked_at = now;
  if (auto audited = WriteAudit(db, actor, now, "token_revoke", 0, TokenDetails(**token)); !audited) {
    return std::unexpected(audited.error());
  }
  return **token;
}

Result<std::vector<Token>> ReadTokens(Db& db) {
  Statement rows = db.Prepare("SELECT id, name, role, hash, created_at, revoked_at FROM tokens ORDER BY id");
  std::vector<Token> tokens;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return tokens;
    tokens.push_back(ReadToken(rows));
  }
}

Result<std::vector<AuditRecord>> ReadAudit(Db& db, const AuditFilter& filter, std::int64_t before, int limit) {
  // Two statements, so that one event's records come from their own index.
  static const std::string kSql =
      "SELECT seq, at, actor, role, action, event_id, reason, details FROM audit WHERE seq < ?1 "
      "AND (?3 IS NULL OR actor = ?3) AND (?4 IS NULL OR action = ?4) AND at >= ?5 AND at < ?6 ";
  static const std::string kAll = kSql + "ORDER BY seq DESC LIMIT ?2";
  static const std::string kOfEvent = kSql + "AND event_id = ?7 AND event_id <> 0 ORDER BY seq DESC LIMIT ?2";
  Statement rows = db.Prepare(filter.event_id == 0 ? kAll : kOfEvent);
  rows.Bind(1, before > 0 ? before : INT64_MAX).Bind(2, std::clamp(limit, 1, kMaxRows));
  if (!filter.actor.empty()) rows.Bind(3, filter.actor);
  if (!filter.action.empty()) rows.Bind(4, filter.action);
  rows.Bind(5, filter.since ? ToMicros(*filter.since) : INT64_MIN);
  rows.Bind(6, filter.until ? ToMicros(*filter.until) : INT64_MAX);
  if (filter.event_id != 0) rows.Bind(7, filter.event_id);
  std::vector<AuditRecord> records;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return records;
    records.push_back(ReadAuditRow(rows));
  }
}

}  // namespace dlo::store
