#include "store/embedded/claimed_bodies.h"

#include <algorithm>

#include "base/log.h"
#include "base/time_text.h"
#include "store/embedded/reads.h"
#include "store/embedded/revisions.h"

namespace dlo::store {
namespace {

/// What the index knows of a receipt whose bytes are wrong: all but headers and body.
Result<std::shared_ptr<const Receipt>> ReadKnown(Db& db, const RunContext& run) {
  Statement row = db.Prepare("SELECT key, kind, subject, account, livemode, occurred_at FROM receipts WHERE id = ?1");
  const Result<bool> found = row.Bind(1, run.id).Step();
  if (!found) return std::unexpected(found.error());
  auto receipt = std::make_shared<Receipt>();
  receipt->id = run.id;
  receipt->source = run.source;
  receipt->key = row.String(0);
  receipt->kind = row.String(1);
  receipt->subject = row.String(2);
  receipt->account = row.String(3);
  if (const auto livemode = row.OptInt(4)) receipt->livemode = *livemode != 0;
  if (const auto occurred = row.OptInt(5)) receipt->occurred_at = FromMicros(*occurred);
  receipt->received_at = run.received_at;
  return receipt;
}

/// The receipt with the corrected payload in place of its own. Bytes that are not those that were entered, or are gone,
/// make it corrupt: the original in their place would be what the correction was to prevent.
Result<void> PutRevision(Db& db, Claimed& claimed) {
  Result<std::string> body = ReadRevisionBody(db, claimed.run.id, claimed.run.revision);
  auto receipt = std::make_shared<Receipt>(*claimed.receipt);
  if (!body && body.error().kind != ErrorKind::corrupt && body.error().kind != ErrorKind::not_found) {
    claimed.receipt = nullptr;
    return std::unexpected(body.error());
  }
  if (!body) {
    log::Error("revision_corrupt", {{"event", claimed.run.id},
                                    {"source", claimed.run.source},
                                    {"revision", claimed.run.revision},
                                    {"do", "enter it again, or withdraw it: dlo revise"}});
    claimed.corrupt = true;
  }
  receipt->body = body ? std::move(*body) : std::string();
  claimed.receipt = std::move(receipt);
  return {};
}

/// The error says why its receipt stays missing.
Result<void> LoadOne(const Journal& journal, Db& db, Claimed& claimed) {
  const Result<Place> place = PlaceOf(db, claimed.run.id);
  if (!place) return std::unexpected(place.error());
  Result<JournalRecord> record = journal.ReadAt(*place);
  if (record && record->receipt->id == claimed.run.id) {
    claimed.receipt = std::move(record->receipt);
  } else {
    const std::string reason = record ? "another receipt is at its place" : record.error().message;
    if (!record && record.error().kind != ErrorKind::corrupt) return std::unexpected(record.error());
    log::Error("receipt_corrupt", {{"event", claimed.run.id}, {"source", claimed.run.source}, {"reason", reason}});
    Result<std::shared_ptr<const Receipt>> known = ReadKnown(db, claimed.run);
    if (!known) return std::unexpected(known.error());
    claimed.receipt = std::move(*known);
    claimed.corrupt = true;
  }
  claimed.run.kind = claimed.receipt->kind;
  if (claimed.run.revision > 0 && !claimed.corrupt) return PutRevision(db, claimed);
  return {};
}

}  // namespace

void LoadClaimed(const Journal& journal, ReaderPool& readers, std::vector<Claimed>& claimed) {
  const auto missing = [](const Claimed& one) { return one.receipt == nullptr; };
  if (std::ranges::none_of(claimed, missing)) return;
  const Result<void> read = readers.Read([&](Db& db) -> Result<void> {
    for (Claimed& one : claimed) {
      if (!missing(one)) continue;
      if (const Result<void> loaded = LoadOne(journal, db, one); !loaded) {
        log::Warn("receipt_unreadable",
                  {{"event", one.run.id}, {"source", one.run.source}, {"reason", loaded.error().message}});
      }
    }
    return {};
  });
  if (!read) log::Warn("receipts_unreadable", {{"reason", read.error().message}});
}

}  // namespace dlo::store
