#include "store/embedded/audit_chain.h"

#include <algorithm>
#include <string>

#include "base/log.h"
#include "base/time_text.h"

namespace dlo::store {
namespace {

constexpr std::string_view kTag = "dlo audit 1\n";

void AddNumber(std::string& out, std::int64_t number) {
  const auto bits = static_cast<std::uint64_t>(number);
  for (int shift = 0; shift < 64; shift += 8) out += static_cast<char>((bits >> shift) & 0xff);
}

/// With its length, so that no two records have the same bytes.
void AddText(std::string& out, std::string_view text) {
  AddNumber(out, static_cast<std::int64_t>(text.size()));
  out += text;
}

std::string_view Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

/// Of the body of event `id`; empty if there is none.
Result<std::string> BodyDigest(Db& db, EventId id) {
  if (id == 0) return std::string();
  Statement rows = db.Prepare("SELECT body_sha256 FROM receipts WHERE id = ?1");
  const Result<bool> row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  return *row ? rows.String(0) : std::string();
}

/// Over the records from before the chain. They were written without a digest of the body, and have none here.
Result<AuditHead> HashOlder(Db& db) {
  AuditHead head;
  Statement rows = db.Prepare("SELECT seq, at, actor, role, action, event_id, reason, details FROM audit ORDER BY seq");
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return head;
    const AuditRecord record = ReadAuditRow(rows);
    head = {record.seq, AuditHash(record, {}, head.hash)};
  }
}

Result<void> WriteBase(Db& db) {
  const Result<AuditHead> base = HashOlder(db);
  if (!base) return std::unexpected(base.error());
  log::Info("audit_chain_started", {{"records", base->seq}, {"hash", HexEncode(base->hash)}});
  return db.Prepare("INSERT INTO audit_chain (id, base_seq, base_hash, head_seq, head_hash) VALUES (1, ?1, ?2, ?1, ?2)")
      .Bind(1, base->seq)
      .BindBlob(2, Bytes(base->hash))
      .Run();
}

}  // namespace

Sha256Digest AuditHash(const AuditRecord& record, std::string_view body_sha256, const Sha256Digest& previous) {
  std::string bytes(kTag);
  bytes += Bytes(previous);
  AddNumber(bytes, record.seq);
  AddNumber(bytes, ToMicros(record.at));
  AddNumber(bytes, record.event_id);
  for (const std::string_view text :
       {std::string_view(record.actor), std::string_view(record.role), std::string_view(record.action),
        std::string_view(record.reason), std::string_view(record.details), body_sha256}) {
    AddText(bytes, text);
  }
  return Sha256(bytes);
}

Result<void> AppendAudit(Db& db, AuditRecord& record) {
  const Result<AuditHead> head = ReadAuditHead(db);
  if (!head) return std::unexpected(head.error());
  const Result<std::string> body = BodyDigest(db, record.event_id);
  if (!body) return std::unexpected(body.error());
  record.seq = head->seq + 1;
  const Sha256Digest hash = AuditHash(record, *body, head->hash);
  Statement insert = db.Prepare(
      "INSERT INTO audit (seq, at, actor, role, action, event_id, reason, details, body_sha256, hash) "
      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)");
  insert.Bind(1, record.seq)
      .Bind(2, ToMicros(record.at))
      .Bind(3, record.actor)
      .Bind(4, record.role)
      .Bind(5, record.action)
      .Bind(6, record.event_id)
      .Bind(7, record.reason)
      .Bind(8, record.details)
      .BindBlob(10, Bytes(hash));
  if (!body->empty()) insert.BindBlob(9, *body);
  if (Result<void> written = insert.Run(); !written) return written;
  return db.Prepare("UPDATE audit_chain SET head_seq = ?1, head_hash = ?2")
      .Bind(1, record.seq)
      .BindBlob(2, Bytes(hash))
      .Run();
}

Result<void> StartAuditChain(Db& db) {
  {
    Statement rows = db.Prepare("SELECT count(*) FROM audit_chain");
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (rows.Int(0) != 0) return {};
  }
  if (Result<void> begun = db.Exec("BEGIN IMMEDIATE"); !begun) return begun;
  Result<void> done = WriteBase(db);
  if (done) done = db.Exec("COMMIT");
  if (!done && sqlite3_get_autocommit(db.handle()) == 0) (void)db.Exec("ROLLBACK");
  return done;
}

Result<AuditHead> ReadAuditHead(Db& db) {
  Statement rows = db.Prepare("SELECT head_seq, head_hash FROM audit_chain");
  const Result<bool> row = rows.Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) {
    return Fail(ErrorKind::corrupt, "audit_chain_missing",
                "the audit log has lost its chain: run `dlo verify`, and keep a copy of the database");
  }
  return AuditHead{rows.Int(0), DigestOf(rows.Text(1))};
}

AuditRecord ReadAuditRow(const Statement& row) {
  return {.seq = row.Int(0),
          .at = FromMicros(row.Int(1)),
          .actor = row.String(2),
          .role = row.String(3),
          .action = row.String(4),
          .event_id = row.Int(5),
          .reason = row.String(6),
          .details = row.String(7)};
}

Sha256Digest DigestOf(std::string_view bytes) {
  Sha256Digest digest{};
  if (bytes.size() == digest.size()) std::ranges::copy(bytes, digest.begin());
  return digest;
}

}  // namespace dlo::store
