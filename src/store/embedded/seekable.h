// Files in the Zstandard seekable format: frames that are compressed each by itself, and a table of them at the end, so
// that a place in the original is read by decompressing one frame. `zstd -d` reads such a file as any other.
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/encoding.h"
#include "dlo/result.h"
#include "env/files.h"

namespace dlo::store {

class Sha256Stream {
 public:
  Sha256Stream() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  /// The last call.
  [[nodiscard]] Sha256Digest Finish() {
    Sha256Digest digest{};
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    return digest;
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> context_;
};

/// What is known of a file that was written: of the file itself, and of what it decompresses to.
struct WrittenFile {
  std::uint64_t bytes = 0, original_bytes = 0;
  Sha256Digest sha256{}, original_sha256{};
};

class SeekableWriter {
 public:
  /// `file` is empty.
  explicit SeekableWriter(File& file);
  ~SeekableWriter();
  SeekableWriter(const SeekableWriter&) = delete;
  SeekableWriter& operator=(const SeekableWriter&) = delete;

  /// Nothing for no bytes.
  Result<void> AddFrame(std::string_view bytes);
  /// Writes the table and syncs.
  Result<WrittenFile> Finish();

 private:
  struct Compressor;
  struct Frame {
    std::uint32_t bytes = 0, original_bytes = 0;
  };
  Result<void> Write(std::string_view bytes);

  File& file_;
  std::unique_ptr<Compressor> compressor_;
  std::vector<Frame> frames_;
  std::string buffer_;
  WrittenFile written_;
  Sha256Stream hash_, original_hash_;
};

/// Reads as the original does. Thread-safe.
class SeekableFile final : public File {
 public:
  /// Error corrupt, code "archive_damaged", that names `path`.
  static Result<std::unique_ptr<SeekableFile>> Open(std::unique_ptr<File> file, std::string path);
  ~SeekableFile() override;

  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const override;
  [[nodiscard]] Result<std::uint64_t> Size() const override { return starts_.back().original; }
  Result<void> WriteAt(std::uint64_t, std::span<const iovec>) override { return ReadOnly(); }
  Result<void> Sync() override { return ReadOnly(); }
  Result<void> Allocate(std::uint64_t) override { return ReadOnly(); }
  Result<void> Truncate(std::uint64_t) override { return ReadOnly(); }

  [[nodiscard]] std::size_t frames() const { return starts_.size() - 1; }
  /// The original bytes of one frame.
  Result<std::string> Frame(std::size_t i) const;

 private:
  struct Start {
    std::uint64_t compressed = 0, original = 0;
  };
  SeekableFile(std::unique_ptr<File> file, std::string path, std::vector<Start> starts);
  [[nodiscard]] Result<void> ReadOnly() const;

  std::unique_ptr<File> file_;
  std::string path_;
  std::vector<Start> starts_;  // of each frame, and where the last one ends
  mutable std::mutex mutex_;   // guards the next two: the frame read last, unless it was a large one
  mutable std::size_t cached_;
  mutable std::string cache_;
};

/// Error unavailable, code "archive_missing": the folder may be away, and then what needs it waits.
[[nodiscard]] std::unexpected<Error> ArchiveMissing(const std::string& path);
/// Error corrupt, code "archive_damaged".
[[nodiscard]] std::unexpected<Error> ArchiveDamaged(const std::string& path, std::string_view what);

}  // namespace dlo::store
