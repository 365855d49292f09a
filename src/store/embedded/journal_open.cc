// Recovery. What it relies on:
// - A batch is written only after the one before it is durable, so at most the last one can be torn.
// - A segment gets its name only after its header is durable, and only after the segment before is durable to its end.
// - Nothing ever lies behind the last batch but zeros, or the torn rest of one batch.
// So everything but the last batch must be whole, and what is not is damage, never a torn write.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.h"
#include "env/random.h"
#include "store/embedded/journal_state.h"

namespace dlo::store {
namespace {

constexpr std::string_view kUnfinished = ".seg.new";
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
  const auto names = files.List(options.folder);
  if (!names) return std::unexpected(names.error());
  std::vector<std::int64_t> numbers;
  for (const std::string& name : *names) {
    if (const auto number = SegmentNumber(name)) {
      numbers.push_back(*number);
    } else if (name.ends_with(kUnfinished)) {
      if (auto removed = files.Remove(options.folder + "/" + name); !removed) return removed;
    }
  }
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const auto expected = static_cast<std::int64_t>(i + 1);
    if (numbers[i] == expected) continue;
    return Fail(
        ErrorKind::corrupt, "journal_missing",
        fmt::format("{} is missing, and {} is there: receipts are lost unless you put it back from a copy. Change "
                    "nothing else in the folder; `dlo verify` lists what is there",
                    PathOf(expected), SegmentName(numbers[i])));
  }
  if (auto read = ReadHeaders(numbers); !read) return read;
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

Result<void> Journal::State::ReadHeaders(const std::vector<std::int64_t>& numbers) {
  for (const std::int64_t number : numbers) {
    const std::string path = PathOf(number);
    auto file = files.Open(path, OpenMode::read);
    if (!file) return std::unexpected(file.error());
    const auto header = ReadSegmentHeader(**file, path, number);
    if (!header) return std::unexpected(header.error());
    if (!*header) {
      if (number != numbers.back()) return JournalCorrupt(path, 0, "the segment's header is gone, all zeros");
      return DropEmptyLast();
    }
    const SegmentHeader& read = **header;
    if (segments.empty()) {
      if (read.first_seq != 1) return JournalCorrupt(path, 0, "the first segment does not begin with record 1");
    } else {
      Segment& before = segments.back();
      if (read.first_seq <= before.header.first_seq) {
        return JournalCorrupt(path, 0, "the segment does not follow the one before it");
      }
      before.end = read.previous_bytes;
      auto previous = files.Open(PathOf(number - 1), OpenMode::read);
      if (!previous) return std::unexpected(previous.error());
      const auto size = (*previous)->Size();
      if (!size) return std::unexpected(size.error());
      if (before.end <= kSegmentHeaderBytes || *size < before.end) {
        return JournalCorrupt(PathOf(number - 1), *size,
                              fmt::format("the file ends, and should have {} bytes", before.end));
      }
    }
    segments.push_back({read, kSegmentHeaderBytes, nullptr});
  }
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
      PathOf(number), reader.next_offset(),
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
