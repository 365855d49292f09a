// Every touch of the disk by our own code (SQLite has its VFS). A simulated one that drops what was not synced can
// stand behind the journal.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dlo/result.h"

namespace dlo {

/// Not thread-safe, except that Read may run beside WriteAt and Sync.
class File {
 public:
  virtual ~File() = default;
  /// Writes all or fails; short writes and EINTR are handled inside. Error kind unavailable, code "disk_full" for
  /// ENOSPC/EDQUOT, else "io".
  virtual Result<void> WriteAt(std::uint64_t offset, std::span<const iovec> parts) = 0;
  /// Reads up to out.size() bytes; returns how many (less only at the end of the file).
  virtual Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const = 0;
  /// fdatasync. A failure is final for this file: the caller must stop acknowledging.
  virtual Result<void> Sync() = 0;
  /// Reserves space up to `size` so that later syncs carry no metadata. The file reads as zeros there.
  virtual Result<void> Allocate(std::uint64_t size) = 0;
  virtual Result<void> Truncate(std::uint64_t size) = 0;
  [[nodiscard]] virtual Result<std::uint64_t> Size() const = 0;
  /// Nobody is expected to read this part soon: the system need not keep it in memory. What was not synced stays.
  virtual void Uncache(std::uint64_t /*offset*/, std::uint64_t /*bytes*/) {}
};

/// create_new fails if it exists. append makes it if need be; every write goes to its end, wherever it is told to.
enum class OpenMode : unsigned char { read, read_write, create_new, append };

class Files {
 public:
  virtual ~Files() = default;
  virtual Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) = 0;
  /// Names (not paths) of regular files in `folder`, sorted. A missing folder is empty.
  virtual Result<std::vector<std::string>> List(const std::string& folder) = 0;
  virtual Result<void> MakeFolders(const std::string& folder) = 0;
  virtual Result<void> Rename(const std::string& from, const std::string& to) = 0;
  virtual Result<void> Remove(const std::string& path) = 0;
  /// Nobody but root may write it from now on; whoever has it open already still may.
  virtual Result<void> MakeReadOnly(const std::string& /*path*/) { return {}; }
  /// fsync of the folder: makes creation, rename and removal in it durable.
  virtual Result<void> SyncFolder(const std::string& folder) = 0;
  [[nodiscard]] virtual bool Exists(const std::string& path) const = 0;
  /// Exclusive lock held until the returned object is destroyed. Error conflict, code "locked", names the holder's pid.
  virtual Result<std::unique_ptr<File>> Lock(const std::string& path) = 0;
  /// Bytes free for us on the file system of `path`.
  virtual Result<std::uint64_t> FreeBytes(const std::string& path) = 0;
  /// Its size, free or not.
  virtual Result<std::uint64_t> TotalBytes(const std::string& path) = 0;
};

class RealFiles final : public Files {
 public:
  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override;
  Result<std::vector<std::string>> List(const std::string& folder) override;
  Result<void> MakeFolders(const std::string& folder) override;
  Result<void> Rename(const std::string& from, const std::string& to) override;
  Result<void> Remove(const std::string& path) override;
  Result<void> MakeReadOnly(const std::string& path) override;
  Result<void> SyncFolder(const std::string& folder) override;
  [[nodiscard]] bool Exists(const std::string& path) const override;
  Result<std::unique_ptr<File>> Lock(const std::string& path) override;
  Result<std::uint64_t> FreeBytes(const std::string& path) override;
  Result<std::uint64_t> TotalBytes(const std::string& path) override;
};

}  // namespace dlo
