#include "store/embedded/journal.h"

#include <fmt/format.h>

#include <algorithm>

#include "store/embedded/archive_manifest.h"
#include "store/embedded/journal_state.h"
#include "store/embedded/seekable.h"

namespace dlo::store {
namespace {

constexpr std::size_t kMaxOpenFiles = 64;
constexpr std::size_t kMinReadAhead = std::size_t{64} << 10;
constexpr std::size_t kMaxReadAhead = std::size_t{4} << 20;

}  // namespace

Journal::Journal(std::unique_ptr<State> state) : state_(std::move(state)) {}
Journal::~Journal() = default;

Result<void> Journal::Append(std::span<const std::shared_ptr<Receipt>> receipts, std::vector<Place>& places,
                             std::vector<Sha256Digest>& digests) {
  State& s = *state_;
  places.clear();
  digests.clear();
  if (s.failed) return Fail(ErrorKind::unavailable, "store_failed", s.failure);
  if (receipts.empty()) return {};

  BatchHeader batch;
  batch.bytes = kBatchHeaderBytes;
  batch.first_seq = s.last_seq + 1;
  batch.records = static_cast<std::uint32_t>(receipts.size());
  std::uint64_t head_bytes = kBatchHeaderBytes;
  for (const auto& receipt : receipts) {
    const std::uint64_t head = RecordHeadBytes(*receipt), whole = head + receipt->body.size();
    if (whole > kMaxRecordBytes) {
      return Fail(ErrorKind::too_large, "record_too_large",
                  fmt::format("a delivery to {} takes {} bytes with its headers; one record holds at most {}",
                              receipt->source, whole, kMaxRecordBytes));
    }
    places.push_back({0, static_cast<std::int64_t>(batch.bytes), static_cast<std::int64_t>(whole)});
    batch.bytes += whole;
    head_bytes += head;
  }
  if (auto room = s.MakeRoom(batch.bytes); !room) {
    places.clear();
    return room;
  }

  // Bodies go to the kernel from where they are; only heads are gathered.
  const State::Segment& segment = s.segments.back();
  const std::uint64_t offset = segment.end;
  s.heads.resize(head_bytes);
  s.parts.clear();
  char* at = s.heads.data() + kBatchHeaderBytes;
  char* part = s.heads.data();
  for (std::size_t i = 0; i < receipts.size(); ++i) {
    Receipt& receipt = *receipts[i];
    receipt.id = static_cast<EventId>(batch.first_seq + i);
    digests.push_back(Sha256(receipt.body));
    const std::size_t head = static_cast<std::size_t>(places[i].length) - receipt.body.size();
    EncodeRecordHead(receipt, digests.back(), head, at);
    batch.records_crc = ContinueRecordsCrc(at, batch.records_crc);
    at += head;
    places[i].segment = static_cast<std::int64_t>(segment.header.number);
    places[i].position += static_cast<std::int64_t>(offset);
    if (receipt.body.empty()) continue;
    s.parts.push_back({part, static_cast<std::size_t>(at - part)});
    s.parts.push_back({receipt.body.data(), receipt.body.size()});
    part = at;
  }
  if (part != at) s.parts.push_back({part, static_cast<std::size_t>(at - part)});
  batch.salt = segment.header.salt;
  batch.durable_upto = offset;
  EncodeBatchHeader(batch, s.heads.data());

  s.crash_points.At("journal.before_write");
  auto done = s.active->WriteAt(offset, s.parts);
  if (!done && done.error().code == "disk_full") {
    // Not final: what was written lies behind the end, and the next batch is written over it.
    places.clear();
    digests.clear();
    return done;
  }
  if (done) {
    s.crash_points.At("journal.after_write");
    done = s.active->Sync();
  }
  if (!done) {
    places.clear();
    digests.clear();
    return std::unexpected(s.FailForGood(done.error()));
  }
  s.crash_points.At("journal.after_sync");
  s.ahead.Advanced(offset + batch.bytes);
  const std::lock_guard lock(s.mutex);
  s.segments.back().end = offset + batch.bytes;
  s.last_seq += batch.records;
  return {};
}

Error Journal::State::FailForGood(const Error& cause) {
  failed = true;
  failure = fmt::format(
      "the journal stopped for good, since the disk may have dropped what it was given ({}). Nothing "
      "acknowledged is lost: check the disk, then restart",
      cause.message);
  return {ErrorKind::unavailable, "store_failed", failure};
}

Result<void> Journal::State::MakeRoom(std::uint64_t bytes) {
  const std::uint64_t end = segments.back().end;
  if (end + bytes <= capacity) return {};
  Result<void> done;
  if (end == kSegmentHeaderBytes) {
    // Too big for any segment: this one, still empty, becomes its own.
    done = active->Allocate(end + bytes);
    if (done) capacity = end + bytes;
  } else {
    done = Roll(bytes);
  }
  if (!done && done.error().code != "disk_full") return std::unexpected(FailForGood(done.error()));
  return done;
}

Result<void> Journal::State::Roll(std::uint64_t bytes) {
  const Segment& sealed = segments.back();
  const auto sealed_sha256 = ahead.Hash(sealed.end);
  if (!sealed_sha256) return std::unexpected(sealed_sha256.error());
  SegmentHeader header = NewHeader(sealed.header.number + 1, last_seq + 1);
  header.previous_bytes = sealed.end;
  header.previous_sha256 = *sealed_sha256;
  const std::uint64_t size = std::max(static_cast<std::uint64_t>(options.segment_bytes), kSegmentHeaderBytes + bytes);
  auto file = CreateSegment(files, options.folder, header, size, ahead.TakeSpare(), ahead.spare_path());
  if (!file) return std::unexpected(file.error());
  crash_points.At("journal.segment_created");
  active = std::move(*file);
  capacity = size;
  ahead.Begin(active, capacity);
  const std::lock_guard lock(mutex);
  segments.push_back({header, kSegmentHeaderBytes, active});
  ++open_files;
  return {};
}

std::string Journal::State::PathOf(std::int64_t number, SegmentForm form) const {
  if (form == SegmentForm::archived) return options.archive->Path(ArchivedName(number));
  return options.folder + "/" + (form == SegmentForm::plain ? SegmentName(number) : CompressedName(number));
}

std::string Journal::State::PathNow(std::int64_t number) {
  const std::lock_guard lock(mutex);
  const bool known = number >= 1 && number <= static_cast<std::int64_t>(segments.size());
  return PathOf(number, known ? segments[static_cast<std::size_t>(number - 1)].form : SegmentForm::plain);
}

Result<std::unique_ptr<File>> Journal::State::Open(std::int64_t number, SegmentForm form) {
  auto file = files.Open(PathOf(number, form), OpenMode::read);
  if (!file && form == SegmentForm::archived && file.error().kind == ErrorKind::not_found) {
    return ArchiveMissing(PathOf(number, form));
  }
  if (!file || form == SegmentForm::plain) return file;
  auto seekable = SeekableFile::Open(std::move(*file), PathOf(number, form));
  if (!seekable) return std::unexpected(seekable.error());
  return std::unique_ptr<File>(std::move(*seekable));
}

Result<std::shared_ptr<File>> Journal::State::FileOf(std::int64_t number) {
  const auto at = static_cast<std::size_t>(number - 1);
  for (;;) {
    SegmentForm form{};
    {
      const std::lock_guard lock(mutex);
      if (segments[at].file != nullptr) return segments[at].file;
      form = segments[at].form;
    }
    // Without the lock, which an append needs too: the archive may be on a slow disk.
    auto opened = Open(number, form);
    const std::lock_guard lock(mutex);
    Segment& segment = segments[at];
    if (segment.form != form) continue;  // it moved meanwhile
    if (!opened) return std::unexpected(opened.error());
    if (segment.file != nullptr) return segment.file;
    segment.file = std::move(*opened);
    ++open_files;
    // In turn, but never the last segment nor this one; readers keep what they hold.
    while (open_files > kMaxOpenFiles) {
      Segment& candidate = segments[next_to_close++ % (segments.size() - 1)];
      if (candidate.file == nullptr || &candidate == &segment) continue;
      candidate.file.reset();
      --open_files;
    }
    return segment.file;
  }
}

Result<std::vector<JournalRecord>> Journal::ReadFrom(Mark& mark, std::size_t max_bytes) const {
  State& s = *state_;
  std::vector<JournalRecord> records;
  std::size_t bytes = 0;
  while (bytes < max_bytes || records.empty()) {
    SegmentHeader header;
    std::uint64_t end = 0;
    bool sealed = false;
    {
      const std::lock_guard lock(s.mutex);
      if (mark.segment < 1 || mark.segment > static_cast<std::int64_t>(s.segments.size())) {
        return JournalCorrupt(s.PathOf(mark.segment), 0, "a reader has been here, and the segment is missing");
      }
      const auto& segment = s.segments[static_cast<std::size_t>(mark.segment - 1)];
      header = segment.header;
      end = segment.end;
      sealed = mark.segment < static_cast<std::int64_t>(s.segments.size());
    }
    const auto offset = std::max(static_cast<std::uint64_t>(mark.offset), std::uint64_t{kSegmentHeaderBytes});
    if (offset > end)
      return JournalCorrupt(s.PathNow(mark.segment), end, "a reader has come further, and the rest is missing");
    if (offset == end) {
      if (!sealed) break;
      ++mark.segment;
      mark.offset = 0;
      continue;
    }
    const auto file = s.FileOf(mark.segment);
    if (!file) return std::unexpected(file.error());
    BatchReader reader(**file, header, offset, end, static_cast<std::uint64_t>(mark.seq),
                       std::clamp(max_bytes, kMinReadAhead, kMaxReadAhead));
    while (bytes < max_bytes || records.empty()) {
      const auto more = reader.Next();
      if (!more) return std::unexpected(more.error());
      if (reader.fault() != nullptr)
        return JournalCorrupt(s.PathNow(mark.segment), reader.next_offset(), reader.fault());
      if (!*more) break;
      auto position = static_cast<std::int64_t>(reader.batch_offset() + kBatchHeaderBytes);
      for (const RecordView& record : reader.records()) {
        const auto length = static_cast<std::int64_t>(record.bytes);
        records.push_back({ReceiptOf(record), {mark.segment, position, length}, record.body_sha256});
        position += length;
      }
      bytes += reader.header().bytes;
      mark.offset = static_cast<std::int64_t>(reader.next_offset());
      mark.seq = static_cast<std::int64_t>(reader.last_seq());
    }
  }
  return records;
}

Result<JournalRecord> Journal::ReadAt(const Place& place) const {
  State& s = *state_;
  std::uint64_t end = 0;
  {
    const std::lock_guard lock(s.mutex);
    if (place.segment >= 1 && place.segment <= static_cast<std::int64_t>(s.segments.size())) {
      end = s.segments[static_cast<std::size_t>(place.segment - 1)].end;
    }
  }
  const auto position = static_cast<std::uint64_t>(place.position), length = static_cast<std::uint64_t>(place.length);
  const bool possible = place.position >= 0 && place.length >= static_cast<std::int64_t>(kRecordFixedBytes) &&
                        length <= kMaxRecordBytes && position <= end && length <= end - position;
  if (!possible) {
    return JournalCorrupt(s.PathNow(place.segment), position, "the journal ends before this record");
  }
  const auto file = s.FileOf(place.segment);
  if (!file) return std::unexpected(file.error());
  std::string bytes(length, '\0');
  const auto got = (*file)->ReadAt(position, bytes);
  if (!got) return std::unexpected(got.error());
  bytes.resize(*got);
  const auto record = DecodeRecord(bytes);
  if (!record) return JournalCorrupt(s.PathNow(place.segment), position, record.error());
  if (record->bytes != length)
    return JournalCorrupt(s.PathNow(place.segment), position, "the record has another length");
  if (Sha256(record->body) != record->body_sha256) {
    return JournalCorrupt(s.PathNow(place.segment), position, "the body does not match its SHA-256");
  }
  return JournalRecord{ReceiptOf(*record), place, record->body_sha256};
}

Result<void> Journal::Seal(Time begun_before) {
  State& s = *state_;
  if (s.failed) return Fail(ErrorKind::unavailable, "store_failed", s.failure);
  const State::Segment& last = s.segments.back();
  if (last.end == kSegmentHeaderBytes || last.header.created_at > begun_before.time_since_epoch().count()) return {};
  auto done = s.Roll(0);
  if (!done && done.error().code != "disk_full") return std::unexpected(s.FailForGood(done.error()));
  return done;
}

std::optional<SealedSegment> Journal::Sealed(std::int64_t number) const {
  const std::lock_guard lock(state_->mutex);
  const auto& segments = state_->segments;
  if (number < 1 || number >= static_cast<std::int64_t>(segments.size())) return std::nullopt;
  const State::Segment& segment = segments[static_cast<std::size_t>(number - 1)];
  const SegmentHeader& next = segments[static_cast<std::size_t>(number)].header;
  return SealedSegment{.header = segment.header,
                       .last_seq = static_cast<std::int64_t>(next.first_seq) - 1,
                       .end = segment.end,
                       .sha256 = next.previous_sha256,
                       .sealed_at = next.created_at,
                       .form = segment.form};
}

std::int64_t Journal::newest_segment() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::int64_t>(state_->segments.size());
}

Result<std::shared_ptr<File>> Journal::OpenSegment(std::int64_t number) const {
  return state_->FileOf(number);
}

void Journal::SetForm(std::int64_t number, SegmentForm form) {
  const std::lock_guard lock(state_->mutex);
  State::Segment& segment = state_->segments[static_cast<std::size_t>(number - 1)];
  segment.form = form;
  if (segment.file == nullptr) return;
  segment.file.reset();
  --state_->open_files;
}

std::string Journal::PathOf(std::int64_t number, SegmentForm form) const {
  return state_->PathOf(number, form);
}

std::int64_t Journal::last_seq() const {
  const std::lock_guard lock(state_->mutex);
  return static_cast<std::int64_t>(state_->last_seq);
}

Mark Journal::end() const {
  const std::lock_guard lock(state_->mutex);
  return {static_cast<std::int64_t>(state_->segments.size()), static_cast<std::int64_t>(state_->segments.back().end),
          static_cast<std::int64_t>(state_->last_seq)};
}

const std::string& Journal::folder() const {
  return state_->options.folder;
}

}  // namespace dlo::store
