#include "store/embedded/archiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/time_text.h"
#include "store/embedded/access.h"
#include "store/embedded/journal_segment.h"
#include "store/embedded/legal_holds.h"
#include "store/embedded/prune.h"
#include "store/embedded/sidecar.h"

namespace dlo::store {
namespace {

/// The newest sealed segments stay as they are, for handlers that are behind; then they are compressed.
constexpr std::int64_t kPlainSegments = 4;
constexpr Duration kPlainFor = std::chrono::hours(1);
/// A segment begun so long ago takes no more, so that its events do not have to wait for those of a year.
constexpr Duration kSealAfter = std::chrono::hours(24);
/// What was left behind by unresolved letters goes with a sidecar of its own, at most so often.
constexpr Duration kPartEvery = std::chrono::hours(24);
constexpr Duration kHeldFor = std::chrono::minutes(10);
constexpr EventId kRowsAtOnce = 4'096;
/// Of the index thread at a time; a group of receipts takes longer than this.
constexpr Duration kPruneBudget = std::chrono::milliseconds(2);
constexpr std::size_t kPruneAtOnce = 256;

Result<std::optional<std::int64_t>> OneNumber(Statement row) {
  const auto there = row.Step();
  if (!there) return std::unexpected(there.error());
  if (!*there) return std::nullopt;
  return row.OptInt(0);
}

void Least(std::optional<std::int64_t>& of, std::optional<std::int64_t> value) {
  if (value && (!of || *value < *of)) of = value;
}

void Most(std::optional<std::int64_t>& of, std::optional<std::int64_t> value) {
  if (value && (!of || *value > *of)) of = value;
}

bool Before(std::optional<std::int64_t> at, const std::optional<Time>& cutoff) {
  return at && cutoff && *at <= ToMicros(*cutoff);
}

}  // namespace

std::optional<Time> RetentionCutoffs::Latest() const {
  std::optional<Time> latest;
  for (const auto& cutoff : {succeeded, closed, cold}) {
    if (cutoff && (!latest || *cutoff > *latest)) latest = cutoff;
  }
  return latest;
}

Result<ArchiveWork> Archiver::Next(const RetentionCutoffs& cutoffs, Time now, const GoOn& go_on, Duration wait) {
  {
    std::unique_lock lock(mutex_);
    if (!free_.wait_for(lock, wait, [this] { return !busy_; })) {
      return Fail(ErrorKind::unavailable, "busy", "the archive is at work on another segment: try again in a minute");
    }
    busy_ = true;
  }
  const std::shared_ptr<void> leave(nullptr, [this](void*) {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    free_.notify_one();
  });
  Round round{.cutoffs = cutoffs, .now = now, .pacer = Pacer(deps_.clock, go_on)};
  if (auto done = NextLocked(round); !done) {
    if (done.error().code != kStopping) return std::unexpected(done.error());
    round.work.stopped = true;
  }
  return std::move(round.work);
}

Result<void> Archiver::NextLocked(Round& round) {
  if (!settled_) {
    if (auto done = FinishMoves(round); !done) return done;
    settled_ = true;
  }
  auto worked = PruneNextLine(round);
  if (worked && !*worked) {
    if (const auto latest = round.cutoffs.Latest()) {
      const Time begun_before = round.cutoffs.now ? *latest : std::max(*latest, round.now - kSealAfter);
      if (auto sealed = deps_.seal(begun_before); !sealed) return sealed;
    }
    worked = ArchiveNextSegment(round);
  }
  if (worked && !*worked) worked = CompressNext(round);
  if (!worked) return std::unexpected(worked.error());
  round.work.worked = *worked;
  return {};
}

/// What a process that died left: files without a line, and segments that have one and are still in the journal.
Result<void> Archiver::FinishMoves(Round& round) {
  if (auto settled = deps_.manifest.Settle(); !settled) return settled;
  const std::string& folder = deps_.manifest.folder();
  std::set<std::string> named{kManifestName};
  for (const ArchiveLine& line : deps_.manifest.lines()) {
    named.insert(ArchivedName(line.segment));
    named.insert(SidecarName(line.segment, line.part));
    const auto sealed = deps_.journal.Sealed(line.segment);
    if (!sealed || sealed->form == SegmentForm::archived) continue;
    if (auto good = CheckFile(deps_.files, deps_.manifest.Path(ArchivedName(line.segment)), line.data, round.pacer);
        !good) {
      return good;
    }
    if (auto left = LeaveJournal(line.segment); !left) return left;
  }
  const auto names = deps_.files.List(folder);
  if (!names) return std::unexpected(names.error());
  for (const std::string& name : *names) {
    const bool ours = name.ends_with(".seg.zst") || name.ends_with(".ndjson.zst");
    if (!ours || named.contains(name)) continue;
    log::Info("archive_unfinished_file_removed", {{"file", deps_.manifest.Path(name)}});
    if (auto removed = deps_.files.Remove(deps_.manifest.Path(name)); !removed) return removed;
  }
  return {};
}

Result<bool> Archiver::PruneNextLine(Round& round) {
  const auto done = deps_.readers.Read(
      [](Db& db) { return OneNumber(db.Prepare("SELECT value FROM meta WHERE name = 'archive_line'")); });
  if (!done) return std::unexpected(done.error());
  const std::size_t lines = deps_.manifest.size();
  const auto pruned_lines = static_cast<std::size_t>(done->value_or(0));
  if (pruned_lines > lines) {
    return ArchiveDamaged(deps_.manifest.Path(kManifestName),
                          fmt::format("it ends at line {}, and line {} was there", lines, pruned_lines));
  }
  if (pruned_lines == lines) return false;
  if (auto pruned = Prune(round, deps_.manifest.Line(pruned_lines + 1)); !pruned) {
    return std::unexpected(pruned.error());
  }
  return true;
}

Result<bool> Archiver::CompressNext(Round& round) {
  const std::int64_t newest = deps_.journal.newest_segment();
  for (std::int64_t number = 1; number < newest; ++number) {
    const auto sealed = deps_.journal.Sealed(number);
    if (!sealed || sealed->form != SegmentForm::plain || damaged_.contains(number)) continue;
    const bool settled = sealed->sealed_at <= ToMicros(round.now - kPlainFor);
    if (number >= newest - kPlainSegments && !settled) return false;
    if (auto done = Compress(round, number, *sealed); !done) return std::unexpected(done.error());
    return true;
  }
  return false;
}

Result<bool> Archiver::ArchiveNextSegment(Round& round) {
  const auto latest = round.cutoffs.Latest();
  if (!latest) return false;
  const std::int64_t newest = deps_.journal.newest_segment();
  for (std::int64_t number = 1; number < newest; ++number) {
    const auto sealed = deps_.journal.Sealed(number);
    if (!sealed || damaged_.contains(number)) continue;
    // Nothing of it can have ended before it was begun, nor can it go before the index has all of it.
    if (sealed->header.created_at > ToMicros(*latest) || sealed->last_seq > deps_.index.indexed_seq()) break;
    const auto may_go = MayGo(round, number, *sealed);
    if (!may_go) return std::unexpected(may_go.error());
    if (!*may_go) continue;
    if (auto moved = Move(round, number); !moved) return std::unexpected(moved.error());
    return true;
  }
  return false;
}

Result<bool> Archiver::MayGo(Round& round, std::int64_t number, const SealedSegment& sealed) {
  const auto stand = StandOf(round, number, sealed);
  if (!stand) return std::unexpected(stand.error());
  if (!IsDue(round, number, *stand)) return false;
  const auto held = IsHeld(round, number, sealed);
  if (!held) return std::unexpected(held.error());
  if (*held) ++round.work.report.on_hold;
  return !*held;
}

/// The rows are counted again only when the event that stood in the way has moved on.
Result<Archiver::Stand> Archiver::StandOf(Round& round, std::int64_t number, const SealedSegment& sealed) {
  if (const auto known = stands_.find(number); known != stands_.end()) {
    const Stand& stand = known->second;
    const EventId in_the_way = stand.first_open != 0 ? stand.first_open : stand.first_letter;
    if (in_the_way == 0) return stand;
    const auto state = deps_.readers.Read([&](Db& db) {
      Statement row = db.Prepare("SELECT state FROM events WHERE id = ?1");
      row.Bind(1, in_the_way);
      return OneNumber(std::move(row));
    });
    if (!state) return std::unexpected(state.error());
    const auto now = static_cast<State>(state->value_or(static_cast<int>(State::succeeded)));
    const bool open = now == State::waiting || now == State::running;
    const bool letter = now == State::dead || now == State::held;
    if (stand.first_open != 0 ? open : letter) return stand;
  }
  auto stand = LookAtRows(round, sealed);
  if (stand) stands_[number] = *stand;
  return stand;
}

Result<Archiver::Stand> Archiver::LookAtRows(Round& round, const SealedSegment& sealed) {
  Stand stand;
  for (auto first = static_cast<EventId>(sealed.header.first_seq); first <= sealed.last_seq; first += kRowsAtOnce) {
    const EventId last = std::min(first + kRowsAtOnce - 1, sealed.last_seq);
    const auto read = deps_.readers.Read([&](Db& db) -> Result<void> {
      Statement rows = db.Prepare(
          "SELECT state, count(*), min(id), min(finished_at), max(finished_at), min(coalesce(parked_at, received_at)), "
          "max(coalesce(parked_at, received_at)) FROM events WHERE id BETWEEN ?1 AND ?2 GROUP BY state");
      rows.Bind(1, first).Bind(2, last);
      for (;;) {
        const auto more = rows.Step();
        if (!more) return std::unexpected(more.error());
        if (!*more) return {};
        const auto state = static_cast<State>(rows.Int(0));
        stand.rows += rows.Int(1);
        if (state == State::waiting || state == State::running) {
          if (stand.first_open == 0 || rows.Int(2) < stand.first_open) stand.first_open = rows.Int(2);
        } else if (state == State::dead || state == State::held) {
          stand.letters += rows.Int(1);
          if (stand.first_letter == 0 || rows.Int(2) < stand.first_letter) stand.first_letter = rows.Int(2);
          Least(stand.oldest_parked, rows.OptInt(5));
          Most(stand.newest_parked, rows.OptInt(6));
        } else {
          const bool succeeded = state == State::succeeded;
          Least(succeeded ? stand.oldest_succeeded : stand.oldest_closed, rows.OptInt(3));
          Most(succeeded ? stand.newest_succeeded : stand.newest_closed, rows.OptInt(4));
        }
      }
    });
    if (!read) return std::unexpected(read.error());
    if (auto done = round.pacer.Breathe(); !done) return std::unexpected(done.error());
  }
  return stand;
}

bool Archiver::IsDue(const Round& round, std::int64_t number, const Stand& stand) const {
  if (stand.first_open != 0) return false;
  const RetentionCutoffs& cutoffs = round.cutoffs;
  const bool any = Before(stand.oldest_succeeded, cutoffs.succeeded) || Before(stand.oldest_closed, cutoffs.closed);
  const bool all = stand.letters == 0 &&
                   (!stand.newest_succeeded || Before(stand.newest_succeeded, cutoffs.succeeded)) &&
                   (!stand.newest_closed || Before(stand.newest_closed, cutoffs.closed));
  const auto parts = deps_.manifest.Parts(number);
  if (!parts.empty()) return any && (all || cutoffs.now || parts.back().at <= round.now - kPartEvery);
  const bool cold = Before(cutoffs.now ? stand.oldest_parked : stand.newest_parked, cutoffs.cold);
  return all || cold || (any && cutoffs.now);
}

Result<bool> Archiver::IsHeld(Round& round, std::int64_t number, const SealedSegment& sealed) {
  const std::int64_t version = holds_version_.load();
  if (const auto known = held_.find(number); known != held_.end()) {
    if (known->second.version == version && known->second.until > round.now) return true;
  }
  const auto held = deps_.readers.Read(
      [&](Db& db) { return EventsOnHold(db, static_cast<EventId>(sealed.header.first_seq), sealed.last_seq, 1); });
  if (!held) return std::unexpected(held.error());
  held_.erase(number);
  if (!held->empty()) held_[number] = {version, round.now + kHeldFor};
  return !held->empty();
}

Result<void> Archiver::Compress(Round& round, std::int64_t number, const SealedSegment& sealed) {
  const std::string path = deps_.journal.PathOf(number, SegmentForm::compressed), unfinished = path + ".new";
  const auto segment = deps_.journal.OpenSegment(number);
  if (!segment) return std::unexpected(segment.error());
  {
    auto out = CreateAnew(deps_.files, unfinished);
    if (!out) return std::unexpected(out.error());
    const auto written =
        CompressSegment(**segment, deps_.journal.PathOf(number, SegmentForm::plain), sealed, **out, round.pacer);
    auto done = written ? CheckFile(deps_.files, unfinished, *written, round.pacer)
                        : Result<void>(std::unexpected(written.error()));
    if (!done) {
      static_cast<void>(deps_.files.Remove(unfinished));
      if (done.error().kind == ErrorKind::corrupt) damaged_.insert(number);
      return done;
    }
  }
  if (auto done = deps_.files.Rename(unfinished, path); !done) return done;
  const std::string folder = deps_.journal.folder();
  if (auto done = deps_.files.SyncFolder(folder); !done) return done;
  deps_.crash_points.At("archive.after_compress");
  deps_.journal.SetForm(number, SegmentForm::compressed);
  if (auto done = deps_.files.Remove(deps_.journal.PathOf(number, SegmentForm::plain)); !done) return done;
  return deps_.files.SyncFolder(folder);
}

Result<void> Archiver::Move(Round& round, std::int64_t number) {
  deps_.crash_points.At("archive.before_copy");
  auto sealed = deps_.journal.Sealed(number);
  const bool moved = sealed->form == SegmentForm::archived;
  if (sealed->form == SegmentForm::plain) {
    if (auto done = Compress(round, number, *sealed); !done) return done;
    sealed = deps_.journal.Sealed(number);
  }
  // A power cut may take back the index's last moments; nothing that the sidecar tells may be among them.
  auto durable = deps_.index.Run(Flush::full, [](IndexContext& c) {
    return c.db.Prepare("UPDATE meta SET value = value WHERE name = 'archive_line'").Run();
  });
  if (!durable) return durable;
  if (auto made = deps_.files.MakeFolders(deps_.manifest.folder()); !made) return made;
  auto line = WriteFiles(round, number, *sealed);
  if (!line) return std::unexpected(line.error());
  if (auto done = deps_.manifest.Append(*line); !done) return done;
  round.checked_line = line->line = static_cast<std::int64_t>(deps_.manifest.size());
  deps_.crash_points.At("archive.after_manifest");
  if (!moved) {
    if (auto left = LeaveJournal(number); !left) return left;
    ++round.work.report.segments;
    round.work.report.letters += line->letters;
  }
  stands_.erase(number);
  return Prune(round, *line);
}

/// Written, durable, and read back; not yet in the manifest.
Result<ArchiveLine> Archiver::WriteFiles(Round& round, std::int64_t number, const SealedSegment& sealed) {
  const auto parts = deps_.manifest.Parts(number);
  ArchiveLine line;
  line.at = round.now;
  line.segment = number;
  line.part = static_cast<std::int64_t>(parts.size()) + 1;
  line.header.resize(kSegmentHeaderBytes);
  EncodeSegmentHeader(sealed.header, line.header.data());
  line.last_seq = sealed.last_seq;
  const std::string data = deps_.manifest.Path(ArchivedName(number)),
                    sidecar = deps_.manifest.Path(SidecarName(number, line.part));
  if (!parts.empty()) {
    line.data = parts.front().data;
  } else {
    const auto from = deps_.files.Open(deps_.journal.PathOf(number, sealed.form), OpenMode::read);
    if (!from) return std::unexpected(from.error());
    const auto to = CreateAnew(deps_.files, data);
    if (!to) return std::unexpected(to.error());
    const auto copied =
        CopyFile(**from, **to, {.original_bytes = sealed.end, .original_sha256 = sealed.sha256}, round.pacer);
    if (!copied) return std::unexpected(copied.error());
    line.data = *copied;
  }
  const auto written = WriteSidecar(round, line, sealed);
  if (!written) return std::unexpected(written.error());
  line.sidecar = *written;
  if (auto synced = deps_.files.SyncFolder(deps_.manifest.folder()); !synced) return std::unexpected(synced.error());
  deps_.crash_points.At("archive.after_copy");
  for (const auto& [path, file] : {std::pair(&data, &line.data), std::pair(&sidecar, &line.sidecar)}) {
    if (auto good = CheckFile(deps_.files, *path, *file, round.pacer); !good) return std::unexpected(good.error());
    if (auto done = deps_.files.MakeReadOnly(*path); !done) return std::unexpected(done.error());
  }
  return line;
}

Result<WrittenFile> Archiver::WriteSidecar(Round& round, ArchiveLine& line, const SealedSegment& sealed) {
  const auto file = CreateAnew(deps_.files, deps_.manifest.Path(SidecarName(line.segment, line.part)));
  if (!file) return std::unexpected(file.error());
  SeekableWriter writer(**file);
  for (auto first = static_cast<EventId>(sealed.header.first_seq); first <= sealed.last_seq;) {
    EventId next = sealed.last_seq + 1;
    const auto lines = deps_.readers.Read([&](Db& db) -> Result<std::string> {
      Statement row = db.Prepare("SELECT min(id) FROM events WHERE id BETWEEN ?1 AND ?2");
      row.Bind(1, first).Bind(2, sealed.last_seq);
      const auto begin = OneNumber(std::move(row));
      if (!begin) return std::unexpected(begin.error());
      if (!*begin) return std::string();
      next = std::min(**begin + kSidecarBlock, sealed.last_seq + 1);
      const auto held = EventsOnHold(db, **begin, next - 1);
      if (!held) return std::unexpected(held.error());
      return SidecarBlock(db, **begin, next - 1, round.cutoffs, line.part > 1, *held);
    });
    if (!lines) return std::unexpected(lines.error());
    if (auto done = writer.AddFrame(*lines); !done) return std::unexpected(done.error());
    first = next;
    if (auto done = round.pacer.Breathe(); !done) return std::unexpected(done.error());
  }
  auto written = writer.Finish();
  if (!written) return written;
  // Counted from the disk, not from what should be there.
  auto read = ReadEvents(round, deps_.manifest.Path(SidecarName(line.segment, line.part)));
  if (!read) return std::unexpected(read.error());
  for (const SidecarEvent& event : round.events) {
    ++line.events;
    line.letters += event.state == State::dead || event.state == State::held ? 1 : 0;
    line.pruned += event.pruned ? 1 : 0;
  }
  return written;
}

Result<void> Archiver::ReadEvents(Round& round, const std::string& sidecar) const {
  auto file = deps_.files.Open(sidecar, OpenMode::read);
  if (!file) return std::unexpected(file.error());
  const auto seekable = SeekableFile::Open(std::move(*file), sidecar);
  if (!seekable) return std::unexpected(seekable.error());
  auto events = SidecarEvents(**seekable, sidecar, [&round] { return round.pacer.Breathe(); });
  if (!events) return std::unexpected(events.error());
  round.events = std::move(*events);
  return {};
}

Result<void> Archiver::LeaveJournal(std::int64_t number) {
  deps_.journal.SetForm(number, SegmentForm::archived);
  for (const SegmentForm form : {SegmentForm::plain, SegmentForm::compressed}) {
    const std::string path = deps_.journal.PathOf(number, form);
    if (!deps_.files.Exists(path)) continue;
    if (auto removed = deps_.files.Remove(path); !removed) return removed;
  }
  return deps_.files.SyncFolder(deps_.journal.folder());
}

Result<void> Archiver::Prune(Round& round, const ArchiveLine& line) {
  const std::string data = deps_.manifest.Path(ArchivedName(line.segment)),
                    sidecar = deps_.manifest.Path(SidecarName(line.segment, line.part));
  if (round.checked_line != line.line) {
    if (auto good = CheckFile(deps_.files, data, line.data, round.pacer); !good) return good;
    if (auto good = CheckFile(deps_.files, sidecar, line.sidecar, round.pacer); !good) return good;
    if (auto read = ReadEvents(round, sidecar); !read) return read;
    round.checked_line = line.line;
  }
  PruneReport pruned;
  for (std::span<const SidecarEvent> rest = round.events; !rest.empty();) {
    const auto step = deps_.index.Run(Flush::normal, [&](IndexContext& c) {
      auto done = PruneEvents(c, rest.first(std::min(rest.size(), kPruneAtOnce)), kPruneBudget);
      deps_.crash_points.At("prune.before_commit");
      return done;
    });
    if (!step) return std::unexpected(step.error());
    deps_.crash_points.At("prune.after_commit");
    rest = rest.subspan(step->looked_at);
    pruned.succeeded += step->succeeded;
    pruned.closed += step->closed;
    round.work.report.succeeded += step->succeeded;
    round.work.report.closed += step->closed;
    if (auto done = round.pacer.Breathe(); !done) return done;
  }
  stands_.erase(line.segment);
  return EndLine(line, pruned, round.now);
}

Result<void> Archiver::EndLine(const ArchiveLine& line, const PruneReport& pruned, Time now) {
  const std::string details = fmt::format(
      R"({{"segment":{},"part":{},"events":{},"letters":{},"pruned":{},"sha256":"{}","sidecar_sha256":"{}"}})",
      line.segment, line.part, line.events, line.letters, pruned.pruned(), HexEncode(line.data.sha256),
      HexEncode(line.sidecar.sha256));
  const Actor system{"system", "admin", "retention"};
  return deps_.index.Run(Flush::full, [&](IndexContext& c) -> Result<void> {
    auto done = c.db.Prepare("UPDATE meta SET value = ?1 WHERE name = 'archive_line' AND value = ?1 - 1")
                    .Bind(1, line.line)
                    .Run();
    if (!done || c.db.Changes() == 0) return done;
    return WriteAudit(c.db, system, now, "archive", 0, details);
  });
}

}  // namespace dlo::store
