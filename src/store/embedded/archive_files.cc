#include "store/embedded/archive_files.h"

#include <algorithm>
#include <span>

#include "store/embedded/journal_segment.h"

namespace dlo::store {
namespace {

/// Of the original: what is decompressed for one record. Larger frames compress better and read slower.
constexpr std::size_t kFrameBytes = std::size_t{64} << 10;
/// Some milliseconds of work.
constexpr std::size_t kPiece = std::size_t{512} << 10;

/// Collects records into frames.
class Framer {
 public:
  Framer(SeekableWriter& writer, Pacer& pacer) : writer_(writer), pacer_(pacer) {}
  /// Bytes that belong into one frame. A large record does not pull small ones into its frame.
  Result<void> Add(std::string_view bytes) {
    if (!frame_.empty() && frame_.size() + bytes.size() > 2 * kFrameBytes) {
      if (auto done = End(); !done) return done;
    }
    frame_.append(bytes);
    return frame_.size() >= kFrameBytes ? End() : Result<void>();
  }
  Result<void> End() {
    if (auto done = writer_.AddFrame(frame_); !done) return done;
    since_pause_ += frame_.size();
    frame_.clear();
    if (since_pause_ < kPiece) return {};
    since_pause_ = 0;
    return pacer_.Breathe();
  }

 private:
  SeekableWriter& writer_;
  Pacer& pacer_;
  std::string frame_;
  std::size_t since_pause_ = 0;
};

Result<std::string> ReadAll(const File& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string out(bytes, '\0');
  const auto got = file.ReadAt(offset, out);
  if (!got) return std::unexpected(got.error());
  out.resize(*got);
  return out;
}

}  // namespace

Result<void> Pacer::Breathe() {
  if (!go_on_) return {};
  const bool more = go_on_(clock_->Monotonic() - began_);
  began_ = clock_->Monotonic();
  if (more) return {};
  return Fail(ErrorKind::unavailable, kStopping, "the store is stopping: the archive goes on at its next start");
}

Result<WrittenFile> CompressSegment(const File& segment, const std::string& path, const SealedSegment& sealed,
                                    File& out, Pacer& pacer) {
  SeekableWriter writer(out);
  Framer framer(writer, pacer);
  const auto head = ReadAll(segment, 0, kSegmentHeaderBytes);
  if (!head) return std::unexpected(head.error());
  if (auto done = framer.Add(*head); !done) return std::unexpected(done.error());
  BatchReader reader(segment, sealed.header, kSegmentHeaderBytes, sealed.end, sealed.header.first_seq - 1, kPiece);
  for (;;) {
    const auto more = reader.Next();
    if (!more) return std::unexpected(more.error());
    if (reader.fault() != nullptr) return JournalCorrupt(path, reader.next_offset(), reader.fault());
    if (!*more) break;
    const auto batch = ReadAll(segment, reader.batch_offset(), reader.header().bytes);
    if (!batch) return std::unexpected(batch.error());
    std::string_view rest = *batch;
    std::size_t before = kBatchHeaderBytes;  // goes with the first record
    for (const RecordView& record : reader.records()) {
      const std::size_t bytes = std::min(before + record.bytes, rest.size());
      if (auto done = framer.Add(rest.substr(0, bytes)); !done) return std::unexpected(done.error());
      rest.remove_prefix(bytes);
      before = 0;
    }
  }
  if (auto done = framer.End(); !done) return std::unexpected(done.error());
  auto written = writer.Finish();
  if (!written) return written;
  if (written->original_bytes != sealed.end || written->original_sha256 != sealed.sha256) {
    return JournalCorrupt(path, written->original_bytes, "the file is not the one the next segment was chained to");
  }
  return written;
}

Result<WrittenFile> CopyFile(const File& from, File& to, const WrittenFile& original, Pacer& pacer) {
  WrittenFile written = original;
  Sha256Stream hash;
  for (written.bytes = 0;;) {
    auto piece = ReadAll(from, written.bytes, kPiece);
    if (!piece) return std::unexpected(piece.error());
    if (piece->empty()) break;
    const iovec part{piece->data(), piece->size()};
    if (auto done = to.WriteAt(written.bytes, std::span(&part, 1)); !done) return std::unexpected(done.error());
    hash.Add(*piece);
    written.bytes += piece->size();
    if (auto done = pacer.Breathe(); !done) return std::unexpected(done.error());
  }
  if (auto done = to.Sync(); !done) return std::unexpected(done.error());
  written.sha256 = hash.Finish();
  return written;
}

Result<void> CheckFile(Files& files, const std::string& path, const WrittenFile& expected, Pacer& pacer) {
  auto file = files.Open(path, OpenMode::read);
  if (!file && file.error().kind == ErrorKind::not_found) return ArchiveDamaged(path, "the file is missing");
  if (!file) return std::unexpected(file.error());
  // What the system's memory has says nothing about the disk.
  (*file)->Uncache(0, expected.bytes);
  Sha256Stream hash;
  for (std::uint64_t at = 0;;) {
    const auto piece = ReadAll(**file, at, kPiece);
    if (!piece) return std::unexpected(piece.error());
    if (piece->empty()) break;
    hash.Add(*piece);
    at += piece->size();
    if (auto done = pacer.Breathe(); !done) return done;
  }
  if (hash.Finish() != expected.sha256) {
    return ArchiveDamaged(path, "its SHA-256 is not the one in the manifest: it was altered, cut or mixed up");
  }
  const auto seekable = SeekableFile::Open(std::move(*file), path);
  if (!seekable) return std::unexpected(seekable.error());
  Sha256Stream original;
  std::size_t since_pause = 0;
  for (std::size_t i = 0; i < (*seekable)->frames(); ++i) {
    const auto frame = (*seekable)->Frame(i);
    if (!frame) return std::unexpected(frame.error());
    original.Add(*frame);
    since_pause += frame->size();
    if (since_pause < kPiece) continue;
    since_pause = 0;
    if (auto done = pacer.Breathe(); !done) return done;
  }
  if (original.Finish() == expected.original_sha256) return {};
  return ArchiveDamaged(path, "what it decompresses to is not what went in");
}

Result<std::unique_ptr<File>> CreateAnew(Files& files, const std::string& path) {
  if (files.Exists(path)) {
    if (auto removed = files.Remove(path); !removed) return std::unexpected(removed.error());
  }
  return files.Open(path, OpenMode::create_new);
}

}  // namespace dlo::store
