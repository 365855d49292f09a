#include "store/embedded/index_recover.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "store/embedded/index_intake.h"

namespace dlo::store {
namespace {

constexpr std::size_t kReadBytes = std::size_t{8} << 20;
constexpr std::int64_t kProgressEvery = 100'000;  // receipts between two lines of the log
constexpr int kEventsCompared = 8;

/// The newest events must be what the journal has at their places. One that is damaged proves nothing; all of them
/// wrong means that index and journal are of two stores.
Result<void> CheckSameStore(const Journal& journal, Db& db) {
  Statement rows =
      db.Prepare("SELECT id, segment, position, length, body_sha256 FROM receipts ORDER BY id DESC LIMIT ?1");
  rows.Bind(1, kEventsCompared);
  int compared = 0;
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    ++compared;
    const Result<JournalRecord> record = journal.ReadAt({rows.Int(1), rows.Int(2), rows.Int(3)});
    if (!record || record->receipt->id != rows.Int(0)) continue;
    const std::string_view digest(reinterpret_cast<const char*>(record->body_sha256.data()),
                                  record->body_sha256.size());
    if (digest == rows.Text(4)) return {};
  }
  if (compared == 0) return {};
  return Fail(ErrorKind::corrupt, "index_foreign",
              fmt::format("the database does not belong to the journal in {}: put back the one that does, or move the "
                          "database away to have it rebuilt from the journal (states are then waiting again)",
                          journal.folder()));
}

ReceiptGroup GroupOf(std::vector<JournalRecord> records, const Mark& end,
                     const std::function<std::int64_t(std::string_view)>& key_digest) {
  ReceiptGroup group;
  for (JournalRecord& record : records) {
    group.key_digests.push_back(KeyDigest(key_digest, *record.receipt));
    group.receipts.push_back(std::move(record.receipt));
    group.places.push_back(record.place);
    group.body_digests.push_back(record.body_sha256);
    group.surely_new.push_back(0);
  }
  group.end = end;
  return group;
}

}  // namespace

Result<Mark> CatchUp(const Journal& journal, Db& db, IndexThread& index,
                     const std::function<std::int64_t(std::string_view)>& key_digest) {
  const Result<Mark> stands = ReadMark(db);
  if (!stands) return std::unexpected(stands.error());
  const std::int64_t last = journal.last_seq();
  if (stands->seq > last) {
    return Fail(
        ErrorKind::corrupt, "journal_lost",
        fmt::format("the database knows receipts up to {}, the journal in {} ends at {}: receipts are missing. Put "
                    "the journal's files back; to go on without them, move the database away and it is rebuilt "
                    "from the journal as it is (states are then waiting again)",
                    stands->seq, journal.folder(), last));
  }
  if (Result<void> same = CheckSameStore(journal, db); !same) return std::unexpected(same.error());
  if (stands->seq == last) return *stands;
  if (stands->seq == 0) {
    log::Warn(
        "index_rebuild",
        {{"receipts", last},
         {"consequence",
          "the index is empty and is built from the journal: every event is waiting again, and what was handled "
          "before is dispatched once more; tokens, audit records and replays of an earlier index are not in it"}});
  } else {
    log::Info("index_resume", {{"from", stands->seq}, {"to", last}});
  }
  Mark mark = *stands;
  std::int64_t told = mark.seq;
  for (;;) {
    Result<std::vector<JournalRecord>> records = journal.ReadFrom(mark, kReadBytes);
    if (!records) return std::unexpected(records.error());
    if (records->empty()) break;
    if (Result<void> done = index.TakeInNow(GroupOf(std::move(*records), mark, key_digest)); !done) {
      return std::unexpected(done.error());
    }
    if (mark.seq - told >= kProgressEvery) {
      told = mark.seq;
      log::Info("index_progress", {{"receipts", mark.seq}, {"of", last}});
    }
  }
  return mark;
}

}  // namespace dlo::store
