// The chain of the audit log, record by record, and the heads of it that were kept outside.
#include <fmt/format.h>

#include <map>
#include <optional>

#include "base/time_text.h"
#include "store/embedded/audit_chain.h"
#include "store/embedded/verify.h"

namespace dlo::store {
namespace {

constexpr char kKeep[] =
    "keep a copy of the database and the heads, find out who could write to the file, and compare with a backup: the "
    "record of who did what is not complete from here on";

struct Chain {
  std::int64_t base_seq = 0, head_seq = 0;
  Sha256Digest base_hash{}, head_hash{};
};

Result<std::optional<Chain>> ReadChain(Db& db) {
  Statement rows = db.Prepare("SELECT base_seq, base_hash, head_seq, head_hash FROM audit_chain");
  const auto row = rows.Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::optional<Chain>();
  return Chain{rows.Int(0), rows.Int(2), DigestOf(rows.Text(1)), DigestOf(rows.Text(3))};
}

class AuditVerifier {
 public:
  AuditVerifier(VerifyScope& scope, StepReport& report) : scope_(scope), report_(report) {
    for (const EvidenceHead& head : scope.heads) wanted_.emplace(head.seq, &head);
  }

  Result<void> Run() {
    auto chain = ReadChain(*scope_.db);
    if (!chain) return std::unexpected(chain.error());
    if (!*chain) Bad(0, "the audit log has lost its chain (table audit_chain)");
    chain_ = chain->value_or(Chain{});
    Statement rows = scope_.db->Prepare(
        "SELECT a.seq, a.at, a.actor, a.role, a.action, a.event_id, a.reason, a.details, a.body_sha256, a.hash, "
        "r.body_sha256 FROM audit a LEFT JOIN receipts r ON r.id = a.event_id ORDER BY a.seq");
    for (;;) {
      const auto row = rows.Step();
      if (!row) return std::unexpected(row.error());
      if (!*row) break;
      Look(rows);
      scope_.Tell("audit", ++report_.checked);
    }
    End();
    return {};
  }

  /// Of the heads outside: those that no record of ours answers to.
  void Heads(StepReport& report) {
    for (const auto& [seq, head] : wanted_) {
      ++report.checked;
      const auto found = found_.find(head);
      if (seq == 0 || (found != found_.end() && found->second == head->hash)) continue;
      const std::string kept = fmt::format("the head kept on {}", FormatTime(head->at));
      const std::string what =
          found == found_.end()
              ? fmt::format("audit record {}: it is gone, and {} names it: the log was cut, or begun anew", seq, kept)
              : fmt::format(
                    "audit record {}: its hash is not that of {}: it or one before it was changed and the "
                    "chain written anew",
                    seq, kept);
      report.Add({what, seq, kKeep});
    }
  }

 private:
  void Bad(std::int64_t seq, std::string what) { report_.Add({std::move(what), seq, kKeep}); }

  void Look(const Statement& row) {
    const AuditRecord record = ReadAuditRow(row);
    if (record.seq != last_ + 1) {
      Bad(last_ + 1, record.seq == last_ + 2
                         ? fmt::format("audit record {}: it is missing", last_ + 1)
                         : fmt::format("audit records {} to {}: they are missing", last_ + 1, record.seq - 1));
    }
    const std::string_view body = row.Text(8), stored = row.Text(9);
    const bool older = record.seq <= chain_.base_seq;
    if (older != row.IsNull(9)) {
      Bad(record.seq, fmt::format("audit record {}: {}", record.seq,
                                  older ? "it has a hash and is older than the chain, which was begun anew behind it"
                                        : "its hash is missing"));
    }
    const Sha256Digest hash = AuditHash(record, body, previous_);
    if (!older && !row.IsNull(9) && DigestOf(stored) != hash) {
      Bad(record.seq, fmt::format("audit record {} ({} by {}): one of its fields, or the record before it, is not what "
                                  "its hash was made of",
                                  record.seq, CleanText(record.action, 40), CleanText(record.actor, 40)));
    }
    if (!body.empty() && !row.IsNull(10) && row.Text(10) != body) {
      Bad(record.seq,
          fmt::format("audit record {}: the body of event {} has another digest now than when this was done",
                      record.seq, record.event_id));
    }
    // From what is stored, so that one edited record is one damage and not all that follow.
    previous_ = older || row.IsNull(9) ? hash : DigestOf(stored);
    last_ = record.seq;
    if (older && record.seq == chain_.base_seq && previous_ != chain_.base_hash) {
      Bad(record.seq, fmt::format("audit records 1 to {}: one of them is not what the chain began with", record.seq));
    }
    const auto [from, to] = wanted_.equal_range(record.seq);
    for (auto it = from; it != to; ++it) found_[it->second] = HexEncode(previous_);
  }

  void End() {
    if (last_ < chain_.head_seq) {
      Bad(last_ + 1, fmt::format("audit record {}: it is missing, with all up to {}: the end of the log was cut",
                                 last_ + 1, chain_.head_seq));
    } else if (last_ != chain_.head_seq || previous_ != chain_.head_hash) {
      Bad(last_, fmt::format("audit record {}: it is not the head that the log names ({})", last_, chain_.head_seq));
    }
  }

  VerifyScope& scope_;
  StepReport& report_;
  Chain chain_;
  Sha256Digest previous_{};
  std::int64_t last_ = 0;
  std::multimap<std::int64_t, const EvidenceHead*> wanted_;
  std::map<const EvidenceHead*, std::string> found_;
};

}  // namespace

Result<void> CheckAudit(VerifyScope& scope, std::vector<StepReport>& reports) {
  StepReport audit{.name = "audit", .unit = "records"}, heads{.name = "heads", .unit = "heads"};
  AuditVerifier verifier(scope, audit);
  if (scope.db != nullptr) {
    if (auto done = verifier.Run(); !done) return done;
  }
  if (scope.db != nullptr) reports.push_back(std::move(audit));
  if (!scope.heads_given) return {};
  verifier.Heads(heads);
  reports.push_back(std::move(heads));
  return {};
}

}  // namespace dlo::store
