// Recovery. What it relies on:
// - A batch is written only after the one before it is durable, so at most the last one can be torn.
// - A segment gets its name only after its header is durable, and only after the segment before is durable to its end.
// - Nothing ever lies behind the last batch but zeros, or the torn rest of one batch.
// So everything but the last batch must be whole, and what is not is damage, never a torn write.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/log.h"
#include "env/random.h"
#include "store/embedded/archive_manifest.h"
#include "store/embedded/journal_state.h"

namespace dlo::store {
namespace {

constexpr std::string_view kUnfinished = ".seg.new";
constexpr std::string_view kUnfinishedCompressed = ".seg.zst.new";
constexpr std::size_t kReadAhead = std::size_t{1} << 20;

Result<void> WriteText(File& file, std::uint64_t offset, std::string& bytes) {
  const iovec part{bytes.data(), bytes.size()};
  return file.WriteAt(offset, std::span(&part, 1));
}

}  // namespace

Result<std::unique_ptr<File>> CreateSegment(Files& files, const std::string& folder, const SegmentHeader& header,
                                            std::uint64_t bytes, std::unique_ptr<File> spare,
                                            const std::string& spare_path) {
  const std::string path = folder + "/" + SegmentName(static_cast<std::int64_t>(header.number));
  const std::string unfinished = spare != nullptr ? spare_path : path + ".new";
  Result<std::unique_ptr<File>> file = std::move(spare);
  if (*file == nullptr) {
    if (files.Exists(unfinished)) {
      if (auto removed = files.Remove(unfinished); !removed) return std::unexpected(removed.error());
    }
    file = files.Open(unfinished, OpenMode::create_new);
    if (!file) return file;
  }
  std::string encoded(kSegmentHeaderBytes, '\0');
  EncodeSegmentHeader(header, encoded.data());
  auto done = (*file)->Allocate(bytes);
  if (done) done = WriteText(**file, 0, encoded);
  if (done) done = (*file)->Sync();
  if (done) done = files.Rename(unfinished, path);
  if (done) done = files.SyncFolder(folder);
  if (done) return file;
  // What it holds goes back to a full disk.
  if (files.Exists(unfinished)) static_cast<void>(files.Remove(unfinished));
  return std::unexpected(done.error());
}

SegmentHeader Journal::State::NewHeader(std::uint64_t number, std::uint64_t first_seq) const {
  SegmentHeader header;
  header.number = number;
  header.first_seq = first_seq;
  header.created_at = clock.Now().time_since_epoch().count();
  FillWithSecretBytes(std::span(reinterpret_cast<unsigned char*>(&header.salt), sizeof header.salt));
  return header;
}

Result<std::unique_ptr<Journal>> Journal::Open(Files& files, Clock& clock, CrashPoints& crash_points,
                                               JournalOptions options) {
  auto state = std::make_unique<State>(files, clock, crash_points, std::move(options));
  if (auto recovered = state->Recover(); !recovered) return std::unexpected(recovered.error());
  return std::unique_ptr<Journal>(new Journal(std::move(state)));
}

Result<void> Journal::State::Recover() {
  if (auto made = files.MakeFolders(options.folder); !made) return made;
  const auto forms = ListSegments();
  if (!forms) return std::unexpected(forms.error());
  if (auto read = ReadHeaders(*forms); !read) return read;
  if (segments.empty()) {
    const SegmentHeader header = NewHeader(1, 1);
    auto file = CreateSegment(files, options.folder, header, static_cast<std::uint64_t>(options.segment_bytes));
    if (!file) return std::unexpected(file.error());
    segments.push_back({header, kSegmentHeaderBytes, std::move(*file)});
    open_files = 1;
    crash_points.At("journal.segment_created");
  } else if (auto checked = CheckNewestSealed(); !checked) {
    return checked;
  }
  if (auto recovered = RecoverLast(); !recovered) return recovered;
  ahead.Begin(active, capacity);
  ahead.Advanced(segments.back().end);
  // The name of the last segment may have come through a process kill without having reached the disk.
  return files.SyncFolder(options.folder);
}

Result<std::vector<SegmentForm>> Journal::State::ListSegments() {
  const auto names = files.List(options.folder);
  if (!names) return std::unexpected(names.error());
  std::map<std::int64_t, SegmentForm> found;
  for (const std::string& name : *names) {
    if (const auto number = SegmentNumber(name)) {
      found[*number] = SegmentForm::plain;  // where both are, this one is the truth and the other is made again
    } else if (const auto compressed = CompressedNumber(name)) {
      found.emplace(*compressed, SegmentForm::compressed);
    } else if (name.ends_with(kUnfinished) || name.ends_with(kUnfinishedCompressed)) {
      if (auto removed = files.Remove(options.folder + "/" + name); !removed) return std::unexpected(removed.error());
    }
  }
  for (const auto& [number, form] : found) {
    const std::string compressed = PathOf(number, SegmentForm::compressed);
    if (form != SegmentForm::plain || !files.Exists(compressed)) continue;
    if (auto removed = files.Remove(compressed); !removed) return std::unexpected(removed.error());
  }
  if (options.archive != nullptr) {
    for (const ArchiveLine& line : options.archive->lines()) found.emplace(line.segment, SegmentForm::archived);
  }
  std::vector<SegmentForm> forms;
  for (const auto& [number, form] : found) {
    const auto expected = static_cast<std::int64_t>(forms.size()) + 1;
    if (number != expected) {
      return Fail(
          ErrorKind::corrupt, "journal_missing",
          fmt::format("{} is missing, and {} is there: receipts are lost unless you put it back from a copy. Change "
                      "nothing else in the folder; `dlo verify` lists what is there",
                      PathOf(expected), SegmentName(number)));
    }
    forms.push_back(form);
  }
  if (!forms.empty() && forms.back() != SegmentForm::plain) {
    return Fail(ErrorKind::corrupt, "journal_missing",
                fmt::format("{} is missing, though {} is compressed and so was not the last one: put it back from a "
                            "copy; `dlo verify` lists what is there",
                            PathOf(static_cast<std::int64_t>(forms.size()) + 1),
                            SegmentName(static_cast<std::int64_t>(forms.size()))));
  }
  return forms;
}

Result<std::optional<Journal::State::Segment>> Journal::State::ReadSegment(std::int64_t number, SegmentForm form) {
  if (form == SegmentForm::archived) {
    // The archive may be on a slow disk, or away: its manifest says all that a start needs.
    const auto line = options.archive->Moved(number);
    return Segment{line->Header(), line->data.original_bytes, nullptr, form};
  }
  const auto file = Open(number, form);
  if (!file) return std::unexpected(file.error());
  const auto header = ReadSegmentHeader(**file, PathOf(number, form), number);
  if (!header) return std::unexpected(header.error());
  if (!*header) return std::nullopt;
  const auto size = (*file)->Size();
  if (!size) return std::unexpected(size.error());
  return Segment{**header, *size, nullptr, form};
}

Result<void> Journal::State::ReadHeaders(const std::vector<SegmentForm>& forms) {
  for (std::size_t i = 0; i < forms.size(); ++i) {
    const auto number = static_cast<std::int64_t>(i + 1);
    const std::string path = PathOf(number, forms[i]);
    auto read = ReadSegment(number, forms[i]);
    if (!read) return std::unexpected(read.error());
    if (!*read) {
      const bool appended_before = i == 0 || forms[i - 1] == SegmentForm::plain;
      if (number != static_cast<std::int64_t>(forms.size()) || !appended_before) {
        return JournalCorrupt(path, 0, "the segment's header is gone, all zeros");
      }
      return DropEmptyLast();
    }
    const SegmentHeader& header = (*read)->header;
    if (segments.empty()) {
      if (header.first_seq != 1) return JournalCorrupt(path, 0, "the first segment does not begin with record 1");
    } else {
      Segment& before = segments.back();
      if (header.first_seq <= before.header.first_seq) {
        return JournalCorrupt(path, 0, "the segment does not follow the one before it");
      }
      // A plain file may have space behind its end, any other ends where it should.
      const bool too_short = header.previous_bytes <= kSegmentHeaderBytes || before.end < header.previous_bytes;
      if (too_short || (before.form != SegmentForm::plain && before.end != header.previous_bytes)) {
        return JournalCorrupt(PathOf(number - 1, before.form), before.end,
                              fmt::format("the file ends, and should have {} bytes", header.previous_bytes));
      }
      before.end = header.previous_bytes;
    }
    segments.push_back(std::move(**read));
  }
  if (!segments.empty()) segments.back().end = kSegmentHeaderBytes;
  return {};
}

Result<void> Journal::State::DropEmptyLast() {
  const std::string path = PathOf(static_cast<std::int64_t>(segments.size()) + 1);
  auto file = files.Open(path, OpenMode::read);
  if (!file) return std::unexpected(file.error());
  const auto tail = LookAtTail(**file, {}, 0, 0);
  if (!tail) return std::unexpected(tail.error());
  if (tail->used_bytes > 0) return JournalCorrupt(path, 0, "the segment's header is gone, and bytes follow");
  log::Warn("journal_empty_segment_removed", {{"file", path}});
  if (auto removed = files.Remove(path); !removed) return removed;
  if (segments.empty()) return {};
  // Without its successor the segment before is the last again: its end is found by reading it.
  segments.back().end = kSegmentHeaderBytes;
  return {};
}

Result<void> Journal::State::CheckNewestSealed() {
  // One segment a start is cheap; the whole chain is what `dlo verify` follows.
  if (segments.size() < 2) return {};
  const std::size_t sealed = segments.size() - 2;
  // The archive is read when somebody asks for it, and checked by `dlo verify`.
  if (segments[sealed].form == SegmentForm::archived) return {};
  const auto number = static_cast<std::int64_t>(sealed + 1);
  auto file = FileOf(number);
  if (!file) return std::unexpected(file.error());
  SegmentHash sealed_hash;
  if (auto read = sealed_hash.Advance(**file, segments[sealed].end); !read) return read;
  if (sealed_hash.Digest() == segments.back().header.previous_sha256) return {};
  BatchReader reader(**file, segments[sealed].header, kSegmentHeaderBytes, segments[sealed].end,
                     segments[sealed].header.first_seq - 1, kReadAhead);
  while (true) {
    const auto more = reader.Next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
  }
  return JournalCorrupt(
      PathOf(number, segments[sealed].form), reader.next_offset(),
      reader.fault() != nullptr ? reader.fault() : "the file is not the one the next segment was chained to");
}

Result<void> Journal::State::RecoverLast() {
  Segment& last = segments.back();
  const auto number = static_cast<std::int64_t>(last.header.number);
  const std::string path = PathOf(number);
  if (last.file == nullptr) {
    auto file = files.Open(path, OpenMode::read_write);
    if (!file) return std::unexpected(file.error());
    last.file = std::move(*file);
    ++open_files;
  }
  active = last.file;
  const auto size = active->Size();
  if (!size) return std::unexpected(size.error());

  std::uint64_t last_batch = kSegmentHeaderBytes;
  BatchReader reader(*active, last.header, kSegmentHeaderBytes, *size, last.header.first_seq - 1, kReadAhead);
  while (true) {
    const auto more = reader.Next();
    if (!more) return std::unexpected(more.error());
    if (!*more) break;
    last_batch = reader.batch_offset();
  }
  last.end = reader.next_offset();
  last_seq = reader.last_seq();

  const auto tail = LookAtTail(*active, last.header, last.end, last_seq);
  if (!tail) return std::unexpected(tail.error());
  if (tail->declared_durable_by) return JournalCorrupt(path, last.end, reader.fault());
  if (tail->used_bytes > 0) {
    log::Warn("journal_torn_tail_cut", {{"file", path},
                                        {"offset", last.end},
                                        {"bytes", tail->used_bytes - last.end},
                                        {"reason", reader.fault()},
                                        {"last_seq", last_seq}});
    // Cut and reserved anew rather than left to be overwritten: what was there must never be read again.
    if (auto cut = active->Truncate(last.end); !cut) return cut;
  }
  capacity = std::max(last.end, static_cast<std::uint64_t>(options.segment_bytes));
  if (auto reserved = active->Allocate(capacity); !reserved) {
    // A full disk must not keep us from starting: reading works, and appending tries again.
    if (reserved.error().code != "disk_full") return reserved;
    capacity = last.end;
  }
  // The last batch may be whole in memory only: its process died before the sync, or its sync failed, after which Linux
  // takes the pages for clean. Written again, they are dirty again, and durable before anyone reads them.
  std::string again(last.end - last_batch, '\0');
  const auto got = active->ReadAt(last_batch, again);
  if (!got) return std::unexpected(got.error());
  if (auto written = WriteText(*active, last_batch, again); !written) return written;
  return active->Sync();
}

}  // namespace dlo::store
