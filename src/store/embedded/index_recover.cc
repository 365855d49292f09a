#include "store/embedded/index_recover.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "store/embedded/index_intake.h"
#include "store/embedded/sidecar.h"

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

/// How the events of one archived segment stood, by the newest sidecar that has them.
Result<std::shared_ptr<const ArchivedStands>> ReadStands(Files& files, const ArchiveManifest& manifest,
                                                         std::int64_t segment) {
  auto stands = std::make_shared<ArchivedStands>();
  for (const ArchiveLine& line : manifest.Parts(segment)) {
    const std::string path = manifest.Path(SidecarName(segment, line.part));
    auto file = files.Open(path, OpenMode::read);
    if (!file && file.error().kind == ErrorKind::not_found) {
      return ArchiveMissing(path);
    }
    if (!file) return std::unexpected(file.error());
    const auto seekable = SeekableFile::Open(std::move(*file), path);
    if (!seekable) return std::unexpected(seekable.error());
    auto read = ReadSidecar(**seekable, path, [&](const boost::json::object& record) -> Result<void> {
      if (const auto event = SidecarEventOf(record)) {
        (*stands)[event->id] = {event->state, event->failure_class, {}, {}};
      } else if (const auto failure = SidecarFailureOf(record)) {
        ArchivedStand& stand = (*stands)[failure->id];
        stand.code = failure->code;
        stand.message = failure->message;
      }
      return {};
    });
    if (!read) return std::unexpected(read.error());
  }
  return std::shared_ptr<const ArchivedStands>(std::move(stands));
}

/// What the archive says of the records of one read, which may be of several segments.
Result<std::vector<std::shared_ptr<const ArchivedStands>>> StandsOf(
    Files& files, const ArchiveManifest& manifest, const std::vector<JournalRecord>& records,
    std::pair<std::int64_t, std::shared_ptr<const ArchivedStands>>& last) {
  std::vector<std::shared_ptr<const ArchivedStands>> all;
  for (const JournalRecord& record : records) {
    const std::int64_t segment = record.place.segment;
    if (last.first != segment) {
      last = {segment, nullptr};
      if (manifest.Moved(segment)) {
        auto stands = ReadStands(files, manifest, segment);
        if (!stands) return std::unexpected(stands.error());
        last.second = std::move(*stands);
      }
    }
    all.push_back(last.second);
  }
  return all;
}

/// What came in from sidecars has no rows that could be pruned once more.
Result<void> SkipPruning(Db& db, const ArchiveManifest& manifest) {
  return db.Prepare("UPDATE meta SET value = ?1 WHERE name = 'archive_line'")
      .Bind(1, static_cast<std::int64_t>(manifest.size()))
      .Run();
}

}  // namespace

Result<Mark> CatchUp(const Journal& journal, Files& files, const ArchiveManifest& manifest, Db& db, IndexThread& index,
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
          "before is dispatched once more, but for what is in the archive; tokens, audit records, replays and legal "
          "holds of an earlier index are not in it"}});
  } else {
    log::Info("index_resume", {{"from", stands->seq}, {"to", last}});
  }
  Mark mark = *stands;
  std::int64_t told = mark.seq;
  std::pair<std::int64_t, std::shared_ptr<const ArchivedStands>> last_stands;
  for (;;) {
    Result<std::vector<JournalRecord>> records = journal.ReadFrom(mark, kReadBytes);
    if (!records) return std::unexpected(records.error());
    if (records->empty()) break;
    auto archived = StandsOf(files, manifest, *records, last_stands);
    if (!archived) return std::unexpected(archived.error());
    ReceiptGroup group = GroupOf(std::move(*records), mark, key_digest);
    group.archived = std::move(*archived);
    if (Result<void> done = index.TakeInNow(std::move(group)); !done) {
      return std::unexpected(done.error());
    }
    if (mark.seq - told >= kProgressEvery) {
      told = mark.seq;
      log::Info("index_progress", {{"receipts", mark.seq}, {"of", last}});
    }
  }
  if (stands->seq == 0) {
    if (Result<void> done = SkipPruning(db, manifest); !done) return std::unexpected(done.error());
  }
  return mark;
}

}  // namespace dlo::store
