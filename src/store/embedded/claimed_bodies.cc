#include "store/embedded/claimed_bodies.h"

#include <algorithm>

#include "base/log.h"
#include "base/time_text.h"

namespace dlo::store {
namespace {

/// What the index knows of a receipt: all but headers and body.
struct Known {
  std::shared_ptr<Receipt> receipt = std::make_shared<Receipt>();
  Place place;
};

Result<Known> ReadKnown(Db& db, const RunContext& run) {
  Statement row = db.Prepare(
      "SELECT r.key, r.kind, r.subject, r.account, r.livemode, r.occurred_at, e.received_at, r.segment, r.position, "
      "r.length FROM receipts r JOIN events e ON e.id = r.id WHERE r.id = ?1");
  const Result<bool> found = row.Bind(1, run.id).Step();
  if (!found) return std::unexpected(found.error());
  if (!*found) return Fail(ErrorKind::corrupt, "database_corrupt", "a claimed event is not in the database");
  Known known;
  Receipt& receipt = *known.receipt;
  receipt.id = run.id;
  receipt.source = run.source;
  receipt.key = row.String(0);
  receipt.kind = row.String(1);
  receipt.subject = row.String(2);
  receipt.account = row.String(3);
  if (const auto livemode = row.OptInt(4)) receipt.livemode = *livemode != 0;
  if (const auto occurred = row.OptInt(5)) receipt.occurred_at = FromMicros(*occurred);
  receipt.received_at = FromMicros(row.Int(6));
  known.place = {row.Int(7), row.Int(8), row.Int(9)};
  return known;
}

void LoadOne(const Journal& journal, Db& db, Claimed& claimed) {
  const auto note = [&](const std::string& reason) {
    log::Warn("receipt_unreadable", {{"event", claimed.run.id}, {"source", claimed.run.source}, {"reason", reason}});
  };
  Result<Known> known = ReadKnown(db, claimed.run);
  if (!known) return note(known.error().message);
  claimed.run.kind = known->receipt->kind;
  Result<JournalRecord> record = journal.ReadAt(known->place);
  if (record && record->receipt->id == claimed.run.id) {
    claimed.receipt = std::move(record->receipt);
    return;
  }
  const std::string reason = record ? "another receipt is at its place" : record.error().message;
  if (!record && record.error().kind != ErrorKind::corrupt) return note(reason);
  log::Error("receipt_corrupt", {{"event", claimed.run.id}, {"source", claimed.run.source}, {"reason", reason}});
  claimed.receipt = std::move(known->receipt);
  claimed.corrupt = true;
}

}  // namespace

void LoadClaimed(const Journal& journal, ReaderPool& readers, std::vector<Claimed>& claimed) {
  const auto missing = [](const Claimed& one) { return one.receipt == nullptr; };
  if (std::ranges::none_of(claimed, missing)) return;
  const Result<void> read = readers.Read([&](Db& db) -> Result<void> {
    for (Claimed& one : claimed) {
      if (missing(one)) LoadOne(journal, db, one);
    }
    return {};
  });
  if (!read) log::Warn("receipts_unreadable", {{"reason", read.error().message}});
}

}  // namespace dlo::store
