#include "store/embedded/seekable.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <cstring>
#include <span>

namespace dlo::store {
namespace {

// https://github.com/facebook/zstd/blob/dev/contrib/seekable_format/zstd_seekable_compression_format.md
constexpr std::uint32_t kSkippableMagic = 0x184D2A5E, kSeekableMagic = 0x8F92EAB1;
constexpr std::size_t kFooterBytes = 9, kSkippableHeaderBytes = 8, kEntryBytes = 8;
/// As the largest batch of a journal may be with one record of 128 MiB; more is damage.
constexpr std::uint32_t kMaxFrame = std::uint32_t{256} << 20;
constexpr std::size_t kMaxCached = std::size_t{1} << 20;
/// Level 3 compresses some 300 MB/s of webhooks to an eighth; higher ones cost several times as much for a tenth less.
constexpr int kLevel = 3;

void Put(std::string& out, std::uint32_t value) {
  for (int shift = 0; shift < 32; shift += 8) out.push_back(static_cast<char>(value >> shift));
}

std::uint32_t Get(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i > 0; --i) value = value << 8 | static_cast<unsigned char>(bytes[at + i - 1]);
  return value;
}

struct FreeDecompressor {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

}  // namespace

std::unexpected<Error> ArchiveDamaged(const std::string& path, std::string_view what) {
  return Fail(ErrorKind::corrupt, "archive_damaged",
              fmt::format("{}: {}. Change nothing in the folder; run `dlo verify` to see how far the damage goes, then "
                          "put this file back from a copy",
                          path, what));
}

std::unexpected<Error> ArchiveMissing(const std::string& path) {
  return Fail(ErrorKind::unavailable, "archive_missing",
              fmt::format("{} is missing from the archive: mount its disk, or put the file back from a copy", path));
}

struct SeekableWriter::Compressor {
  Compressor() : context(ZSTD_createCCtx()) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, kLevel);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  }
  ~Compressor() { ZSTD_freeCCtx(context); }
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;
  ZSTD_CCtx* context;
};

SeekableWriter::SeekableWriter(File& file) : file_(file), compressor_(std::make_unique<Compressor>()) {}
SeekableWriter::~SeekableWriter() = default;

Result<void> SeekableWriter::Write(std::string_view bytes) {
  const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  if (auto done = file_.WriteAt(written_.bytes, std::span(&part, 1)); !done) return done;
  hash_.Add(bytes);
  written_.bytes += bytes.size();
  return {};
}

Result<void> SeekableWriter::AddFrame(std::string_view bytes) {
  if (bytes.empty()) return {};
  buffer_.resize(ZSTD_compressBound(bytes.size()));
  const std::size_t size =
      ZSTD_compress2(compressor_->context, buffer_.data(), buffer_.size(), bytes.data(), bytes.size());
  if (ZSTD_isError(size) != 0) return Fail(ErrorKind::unavailable, "compress", ZSTD_getErrorName(size));
  frames_.push_back({static_cast<std::uint32_t>(size), static_cast<std::uint32_t>(bytes.size())});
  original_hash_.Add(bytes);
  written_.original_bytes += bytes.size();
  return Write(std::string_view(buffer_.data(), size));
}

Result<WrittenFile> SeekableWriter::Finish() {
  std::string table;
  Put(table, kSkippableMagic);
  Put(table, static_cast<std::uint32_t>(frames_.size() * kEntryBytes + kFooterBytes));
  for (const Frame& frame : frames_) {
    Put(table, frame.bytes);
    Put(table, frame.original_bytes);
  }
  Put(table, static_cast<std::uint32_t>(frames_.size()));
  table.push_back(0);  // no checksums here: each frame has its own
  Put(table, kSeekableMagic);
  if (auto done = Write(table); !done) return std::unexpected(done.error());
  if (auto done = file_.Sync(); !done) return std::unexpected(done.error());
  written_.sha256 = hash_.Finish();
  written_.original_sha256 = original_hash_.Finish();
  return written_;
}

SeekableFile::SeekableFile(std::unique_ptr<File> file, std::string path, std::vector<Start> starts)
    : file_(std::move(file)), path_(std::move(path)), starts_(std::move(starts)), cached_(starts_.size()) {}
SeekableFile::~SeekableFile() = default;

Result<std::unique_ptr<SeekableFile>> SeekableFile::Open(std::unique_ptr<File> file, std::string path) {
  const auto size = file->Size();
  if (!size) return std::unexpected(size.error());
  const auto read = [&](std::uint64_t offset, std::size_t bytes) -> Result<std::string> {
    std::string out(bytes, '\0');
    const auto got = file->ReadAt(offset, out);
    if (!got) return std::unexpected(got.error());
    if (*got != bytes) return ArchiveDamaged(path, "the file is cut off");
    return out;
  };
  if (*size < kFooterBytes + kSkippableHeaderBytes) return ArchiveDamaged(path, "the file is cut off");
  const auto footer = read(*size - kFooterBytes, kFooterBytes);
  if (!footer) return std::unexpected(footer.error());
  const std::uint64_t count = Get(*footer, 0);
  const std::uint64_t table_bytes = count * kEntryBytes + kFooterBytes;
  if (Get(*footer, 5) != kSeekableMagic || (*footer)[4] != 0 || table_bytes + kSkippableHeaderBytes > *size) {
    return ArchiveDamaged(path, "there is no table of frames at its end: it is cut off, or another file");
  }
  const std::uint64_t frames_end = *size - table_bytes - kSkippableHeaderBytes;
  const auto table = read(frames_end, static_cast<std::size_t>(table_bytes + kSkippableHeaderBytes));
  if (!table) return std::unexpected(table.error());
  std::vector<Start> starts(1);
  starts.reserve(count + 1);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t compressed = Get(*table, kSkippableHeaderBytes + i * kEntryBytes),
                        original = Get(*table, kSkippableHeaderBytes + i * kEntryBytes + 4);
    if (original > kMaxFrame) return ArchiveDamaged(path, "its table of frames is damaged");
    starts.push_back({starts.back().compressed + compressed, starts.back().original + original});
  }
  if (Get(*table, 0) != kSkippableMagic || Get(*table, 4) != table_bytes || starts.back().compressed != frames_end) {
    return ArchiveDamaged(path, "its table of frames is damaged");
  }
  return std::unique_ptr<SeekableFile>(new SeekableFile(std::move(file), std::move(path), std::move(starts)));
}

Result<void> SeekableFile::ReadOnly() const {
  return Fail(ErrorKind::unavailable, "io", path_ + " is write-once and was opened for reading");
}

Result<std::string> SeekableFile::Frame(std::size_t i) const {
  const Start &start = starts_[i], &end = starts_[i + 1];
  std::string compressed(end.compressed - start.compressed, '\0');
  const auto got = file_->ReadAt(start.compressed, compressed);
  if (!got) return std::unexpected(got.error());
  std::string original(end.original - start.original, '\0');
  thread_local const std::unique_ptr<ZSTD_DCtx, FreeDecompressor> context(ZSTD_createDCtx());
  const std::size_t size =
      ZSTD_decompressDCtx(context.get(), original.data(), original.size(), compressed.data(), *got);
  if (ZSTD_isError(size) != 0 || size != original.size()) {
    return ArchiveDamaged(path_, fmt::format("the frame at offset {} is damaged", start.compressed));
  }
  return original;
}

Result<std::size_t> SeekableFile::ReadAt(std::uint64_t offset, std::span<char> out) const {
  std::size_t done = 0;
  while (done < out.size() && offset + done < starts_.back().original) {
    const std::uint64_t at = offset + done;
    const auto next = std::ranges::upper_bound(starts_, at, {}, &Start::original);
    const auto i = static_cast<std::size_t>(next - starts_.begin()) - 1;
    const std::lock_guard lock(mutex_);
    if (cached_ != i) {
      auto frame = Frame(i);
      if (!frame) return std::unexpected(frame.error());
      cache_ = std::move(*frame);
      cached_ = i;
    }
    const std::size_t from = static_cast<std::size_t>(at - starts_[i].original);
    const std::size_t count = std::min(cache_.size() - from, out.size() - done);
    std::memcpy(out.data() + done, cache_.data() + from, count);
    done += count;
    if (cache_.size() > kMaxCached) {
      cache_ = {};
      cached_ = starts_.size();
    }
  }
  return done;
}

}  // namespace dlo::store
