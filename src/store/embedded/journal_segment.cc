#include "store/embedded/journal_segment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace dlo::store {
namespace {

constexpr std::string_view kSuffix = ".seg";
constexpr std::string_view kCompressed = ".zst";
constexpr std::size_t kNumberDigits = 10;
constexpr std::size_t kTailChunk = std::size_t{1} << 20;
constexpr std::size_t kHashChunk = std::size_t{256} << 10;

}  // namespace

std::string SegmentName(std::int64_t number) {
  return fmt::format("{:010}{}", number, kSuffix);
}

std::optional<std::int64_t> SegmentNumber(std::string_view name) {
  if (name.size() != kNumberDigits + kSuffix.size() || !name.ends_with(kSuffix)) return std::nullopt;
  std::int64_t number = 0;
  const std::string_view digits = name.substr(0, kNumberDigits);
  const char* end = digits.data() + digits.size();
  const auto [stopped, error] = std::from_chars(digits.data(), end, number);
  if (error != std::errc() || stopped != end || number <= 0) return std::nullopt;
  return number;
}

std::string CompressedName(std::int64_t number) {
  return SegmentName(number) + std::string(kCompressed);
}

std::optional<std::int64_t> CompressedNumber(std::string_view name) {
  if (!name.ends_with(kCompressed)) return std::nullopt;
  return SegmentNumber(name.substr(0, name.size() - kCompressed.size()));
}

std::unexpected<Error> JournalCorrupt(const std::string& path, std::uint64_t offset, std::string_view what) {
  return Fail(
      ErrorKind::corrupt, "journal_corrupt",
      fmt::format("{} at offset {}: {}, though it was durable. Change nothing in the folder; run `dlo verify` to see "
                  "how far the damage goes, then put this file back from a copy",
                  path, offset, what));
}

Result<std::optional<SegmentHeader>> ReadSegmentHeader(const File& file, const std::string& path, std::int64_t number) {
  char bytes[kSegmentHeaderBytes];
  const auto got = file.ReadAt(0, bytes);
  if (!got) return std::unexpected(got.error());
  const auto header = DecodeSegmentHeader({bytes, *got});
  if (header && header->number == static_cast<std::uint64_t>(number)) return *header;
  if (header) {
    return Fail(
        ErrorKind::corrupt, "journal_misplaced",
        fmt::format("{} holds segment {}: files of the journal were renamed or mixed up. Give each its own name "
                    "back, or put the folder back from a copy",
                    path, header->number));
  }
  switch (header.error()) {
    case SegmentFault::empty:
      return std::nullopt;
    case SegmentFault::foreign:
      return Fail(ErrorKind::corrupt, "journal_foreign",
                  fmt::format("{} is not a journal segment (its first bytes are others). If it is not ours, move it "
                              "elsewhere; if it was, put it back from a copy",
                              path));
    case SegmentFault::newer:
      return Fail(ErrorKind::invalid, "journal_newer",
                  fmt::format("{} was written by a newer version of dlo (this one reads format {}): start that version",
                              path, kJournalVersion));
    case SegmentFault::damaged:
      break;
  }
  return JournalCorrupt(path, 0, "the segment's header does not match its checksum");
}

Result<std::string_view> BatchReader::Window(std::uint64_t bytes) {
  bytes = std::min(bytes, limit_ - next_);
  if (next_ < buffer_offset_ || next_ + bytes > buffer_offset_ + buffer_.size()) {
    const std::uint64_t want = std::min<std::uint64_t>(std::max<std::uint64_t>(bytes, read_ahead_), limit_ - next_);
    buffer_.resize(want);
    const auto got = file_.ReadAt(next_, buffer_);
    if (!got) return std::unexpected(got.error());
    buffer_.resize(*got);
    buffer_offset_ = next_;
  }
  return std::string_view(buffer_).substr(next_ - buffer_offset_);
}

Result<SegmentLink> NewestLink(Files& files, const std::string& folder) {
  const auto names = files.List(folder);
  if (!names) return std::unexpected(names.error());
  std::int64_t newest = 0;
  for (const std::string& name : *names) newest = std::max(newest, SegmentNumber(name).value_or(0));
  if (newest < 2) return SegmentLink{};
  const std::string path = folder + "/" + SegmentName(newest);
  const auto file = files.Open(path, OpenMode::read);
  if (!file) return std::unexpected(file.error());
  const auto header = ReadSegmentHeader(**file, path, newest);
  if (!header) return std::unexpected(header.error());
  if (!*header) return SegmentLink{};
  return SegmentLink{newest - 1, static_cast<std::int64_t>((*header)->previous_bytes), (*header)->previous_sha256};
}

Result<bool> BatchReader::Next() {
  fault_ = nullptr;
  records_.clear();
  if (next_ >= limit_) return false;
  auto window = Window(kBatchHeaderBytes);
  if (!window) return std::unexpected(window.error());
  // The length is only believed from a header that matches its checksum, and only within the file.
  if (const auto header = DecodeBatchHeader(*window); header && header->bytes > window->size()) {
    if (header->bytes > limit_ - next_) {
      fault_ = "the batch is cut off";
      return false;
    }
    window = Window(header->bytes);
    if (!window) return std::unexpected(window.error());
  }
  const auto batch = DecodeBatch(*window, segment_, next_, last_seq_, records_);
  if (!batch) {
    records_.clear();
    fault_ = batch.error();
    return false;
  }
  header_ = *batch;
  batch_offset_ = next_;
  next_ += batch->bytes;
  last_seq_ += batch->records;
  return true;
}

Result<Tail> LookAtTail(const File& file, const SegmentHeader& segment, std::uint64_t from, std::uint64_t last_seq) {
  Tail tail;
  const auto size = file.Size();
  if (!size) return std::unexpected(size.error());
  if (*size <= from) return tail;
  // Chunks overlap by a header less one byte, so that none is missed between two.
  std::string chunk;
  for (std::uint64_t offset = from;; offset += kTailChunk) {
    chunk.resize(std::min<std::uint64_t>(*size - offset, kTailChunk + kBatchHeaderBytes - 1));
    const auto got = file.ReadAt(offset, chunk);
    if (!got) return std::unexpected(got.error());
    chunk.resize(*got);
    // Nearly always all zeros, which memcmp tells ten times faster than a search byte by byte.
    if (!chunk.empty() && (chunk[0] != 0 || std::memcmp(chunk.data(), chunk.data() + 1, chunk.size() - 1) != 0)) {
      tail.used_bytes = offset + chunk.find_last_not_of('\0') + 1;
    }
    for (std::size_t at = chunk.find(kBatchMagic); at != std::string::npos; at = chunk.find(kBatchMagic, at + 1)) {
      const auto header = DecodeBatchHeader(std::string_view(chunk).substr(at));
      if (!header || header->salt != segment.salt || header->first_seq <= last_seq) continue;
      if (header->durable_upto > from && header->durable_upto <= offset + at) {
        tail.declared_durable_by = offset + at;
        return tail;
      }
    }
    if (offset + *got >= *size || *got < kTailChunk) return tail;
  }
}

SegmentHash::SegmentHash() : context_(EVP_MD_CTX_new()) {
  Reset();
}

Result<void> SegmentHash::Advance(const File& file, std::uint64_t upto) {
  while (bytes_ < upto) {
    buffer_.resize(std::min<std::uint64_t>(kHashChunk, upto - bytes_));
    const auto got = file.ReadAt(bytes_, buffer_);
    if (!got) return std::unexpected(got.error());
    if (*got == 0) return Fail(ErrorKind::unavailable, "io", "a journal segment became shorter while it was hashed");
    EVP_DigestUpdate(context_.get(), buffer_.data(), *got);
    bytes_ += *got;
  }
  return {};
}

Sha256Digest SegmentHash::Digest() const {
  // A copy is finished, so that a roll that fails on a full disk can ask again.
  const std::unique_ptr<EVP_MD_CTX, FreeContext> copy(EVP_MD_CTX_new());
  Sha256Digest digest{};
  EVP_MD_CTX_copy_ex(copy.get(), context_.get());
  EVP_DigestFinal_ex(copy.get(), digest.data(), nullptr);
  return digest;
}

void SegmentHash::Reset() {
  EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr);
  bytes_ = 0;
}

}  // namespace dlo::store
