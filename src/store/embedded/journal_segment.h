// Reading one segment file: its name, its batches in order, its hash. Shared by recovery, readers and verification.
#pragma once

#include <openssl/evp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/result.h"
#include "env/files.h"
#include "store/embedded/journal_format.h"

namespace dlo::store {

/// "0000000001.seg".
[[nodiscard]] std::string SegmentName(std::int64_t number);
/// Of "<10 digits>.seg"; nullopt for any other name.
[[nodiscard]] std::optional<std::int64_t> SegmentNumber(std::string_view name);

/// "0000000001.seg.zst", compressed.
[[nodiscard]] std::string CompressedName(std::int64_t number);
[[nodiscard]] std::optional<std::int64_t> CompressedNumber(std::string_view name);

/// Error corrupt, code "journal_corrupt", that names the file, the offset and what to do.
[[nodiscard]] std::unexpected<Error> JournalCorrupt(const std::string& path, std::uint64_t offset,
                                                    std::string_view what);

/// Reads and checks the header of segment `number` at `path`. An empty one gives nullopt; anything else that is not a
/// good header of that number is an error.
Result<std::optional<SegmentHeader>> ReadSegmentHeader(const File& file, const std::string& path, std::int64_t number);

/// What the header of a segment says of the one before: the newest link of the chain.
struct SegmentLink {
  std::int64_t segment = 0;  // the closed one; 0 = none is closed yet
  std::int64_t bytes = 0;
  Sha256Digest sha256{};
};
Result<SegmentLink> NewestLink(Files& files, const std::string& folder);

/// Batches of a segment one after the other, each decoded whole or not at all.
class BatchReader {
 public:
  /// Reads [offset, limit); `last_seq` is the record before. Reads `read_ahead` bytes at once, or a whole larger batch.
  BatchReader(const File& file, const SegmentHeader& segment, std::uint64_t offset, std::uint64_t limit,
              std::uint64_t last_seq, std::size_t read_ahead)
      : file_(file), segment_(segment), next_(offset), limit_(limit), last_seq_(last_seq), read_ahead_(read_ahead) {}

  /// True: header(), records() and batch_offset() are of the next batch, valid until the next call. False: at the
  /// limit, or `fault()` says why there is no batch at `next_offset()`. An error is of the disk alone.
  Result<bool> Next();

  [[nodiscard]] const BatchHeader& header() const { return header_; }
  [[nodiscard]] std::span<const RecordView> records() const { return records_; }
  [[nodiscard]] std::uint64_t batch_offset() const { return batch_offset_; }
  [[nodiscard]] std::uint64_t next_offset() const { return next_; }
  [[nodiscard]] std::uint64_t last_seq() const { return last_seq_; }
  [[nodiscard]] const char* fault() const { return fault_; }

 private:
  /// Bytes from `next_` on: at least `bytes` of them unless the file or the limit ends before.
  Result<std::string_view> Window(std::uint64_t bytes);

  const File& file_;
  const SegmentHeader& segment_;
  std::uint64_t next_, limit_, last_seq_;
  std::size_t read_ahead_;
  std::string buffer_;
  std::uint64_t buffer_offset_ = 0;
  BatchHeader header_;
  std::vector<RecordView> records_;
  std::uint64_t batch_offset_ = 0;
  const char* fault_ = nullptr;
};

/// What lies in [from, file's end) of a segment whose batches end at `from`.
struct Tail {
  std::uint64_t used_bytes = 0;  // up to the last byte that is not zero; 0 = a clean end
  /// A batch header of this segment behind `from` that declares bytes behind `from` durable: its offset.
  std::optional<std::uint64_t> declared_durable_by;
};
Result<Tail> LookAtTail(const File& file, const SegmentHeader& segment, std::uint64_t from, std::uint64_t last_seq);

/// SHA-256 of a file's beginning, gathered as the file grows.
class SegmentHash {
 public:
  SegmentHash();
  /// Takes in up to offset `upto`, which only grows.
  Result<void> Advance(const File& file, std::uint64_t upto);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  /// Of what was taken in so far.
  [[nodiscard]] Sha256Digest Digest() const;
  void Reset();

 private:
  struct FreeContext {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, FreeContext> context_;
  std::uint64_t bytes_ = 0;
  std::string buffer_;
};

}  // namespace dlo::store
