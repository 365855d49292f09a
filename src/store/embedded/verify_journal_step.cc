// The journal by itself, and each payload against what the index says of it: one pass over the bytes.
#include <fmt/format.h>

#include <optional>

#include "store/embedded/journal_segment.h"
#include "store/embedded/verify.h"

namespace dlo::store {
namespace {

constexpr char kRestoreSegment[] =
    "restore that segment from a backup; until then dlo parks what it cannot read as corrupt and sends none of it";
constexpr char kReindex[] =
    "keep a copy of the database; somebody or something changed a row: compare it with a backup, and restore the one "
    "that agrees with the journal";

/// The index's receipts in order of their ids, beside the journal's records in the same order.
class Payloads {
 public:
  Payloads(VerifyScope& scope, StepReport& report)
      : scope_(scope),
        report_(report),
        rows_(scope.db->Prepare("SELECT id, segment, position, length, body_sha256 FROM receipts ORDER BY id")) {}

  Result<void> Begin() { return Next(); }

  Result<void> See(const RecordView& record, std::int64_t segment, std::uint64_t position) {
    const auto seq = static_cast<std::int64_t>(record.seq);
    last_ = seq;
    // Rows whose record did not come: the journal has a hole there, or never had it.
    while (row_ && id_ < seq) {
      Lost();
      if (auto next = Next(); !next) return next;
    }
    if (!row_ || id_ != seq) return {};
    Compare(record, segment, position);
    scope_.Tell("payloads", ++report_.checked);
    return Next();
  }

  /// What the index has behind the journal's last record.
  Result<void> End() {
    while (row_) {
      Lost();
      if (auto next = Next(); !next) return next;
    }
    if (last_ < scope_.indexed && report_.damages.empty()) {
      report_.Add({fmt::format("the index knows receipts up to {}, the journal ends at {}", scope_.indexed, last_),
                   scope_.indexed, "put the journal's missing files back"});
    }
    return {};
  }

 private:
  Result<void> Next() {
    auto row = rows_.Step();
    if (!row) return std::unexpected(row.error());
    row_ = *row;
    id_ = row_ ? rows_.Int(0) : 0;
    return {};
  }
  void Lost() {
    report_.Add({fmt::format("event {}: the journal has no receipt of it where the index names one", id_), id_,
                 kRestoreSegment});
  }
  void Compare(const RecordView& record, std::int64_t segment, std::uint64_t position) {
    if (rows_.Int(1) != segment || rows_.Int(2) != static_cast<std::int64_t>(position) ||
        rows_.Int(3) != static_cast<std::int64_t>(record.bytes)) {
      report_.Add({fmt::format("event {}: its receipt is at segment {}, offset {}, and the index names another place",
                               id_, segment, position),
                   id_, kReindex});
    }
    const std::string_view digest(reinterpret_cast<const char*>(record.body_sha256.data()), record.body_sha256.size());
    if (rows_.Text(4) != digest) {
      report_.Add({fmt::format("event {}: the digest of its body in the journal is not the one of the index", id_), id_,
                   "the body or the row was changed after it was stored: compare both with a backup"});
    }
  }

  VerifyScope& scope_;
  StepReport& report_;
  Statement rows_;
  bool row_ = false;
  std::int64_t id_ = 0, last_ = 0;
};

/// The links that were published, against the headers that hold them now.
void CheckLinks(const VerifyScope& scope, const JournalReport& journal, StepReport& report) {
  for (const EvidenceHead& head : scope.heads) {
    if (head.segment == 0) continue;
    const std::string what =
        fmt::format("journal segment {} is not the one of the head of {}", head.segment, HeadToJson(head));
    const auto link = journal.links.find(head.segment + 1);
    if (link == journal.links.end()) {
      report.Add({what + ": the segment behind it is missing", 0, kRestoreSegment});
    } else if (HexEncode(link->second) != head.segment_sha256) {
      report.Add({what, 0, kRestoreSegment});
    }
  }
}

}  // namespace

Result<void> CheckJournal(VerifyScope& scope, std::vector<StepReport>& reports) {
  StepReport journal{.name = "journal", .unit = "receipts"}, payloads{.name = "payloads", .unit = "events"};
  std::optional<Payloads> compare;
  if (scope.db != nullptr) {
    compare.emplace(scope, payloads);
    if (auto begun = compare->Begin(); !begun) return begun;
  }
  Result<void> seen;
  auto report = VerifyJournal(scope.files, scope.journal, scope.archive,
                              [&](const RecordView& record, std::int64_t segment, std::uint64_t position) {
                                scope.Tell("journal", static_cast<std::int64_t>(record.seq));
                                if (seen && compare) seen = compare->See(record, segment, position);
                              });
  if (!report) return std::unexpected(report.error());
  if (!seen) return seen;
  if (compare) {
    if (auto ended = compare->End(); !ended) return ended;
  }
  journal.checked = report->records;
  for (const std::string& problem : report->problems) journal.Add({problem, 0, kRestoreSegment});
  if (report->torn_bytes > 0) {
    journal.notes.push_back(fmt::format("{} bytes behind the last whole batch: being written, or cut at the next start",
                                        report->torn_bytes));
  }
  CheckLinks(scope, *report, journal);
  scope.journal_report = std::move(*report);
  reports.push_back(std::move(journal));
  if (scope.db != nullptr) reports.push_back(std::move(payloads));
  return {};
}

}  // namespace dlo::store
