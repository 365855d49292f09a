#include "env/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace dlo {
namespace {

std::unexpected<Error> SystemError(std::string_view doing, const std::string& path, int error) {
  const std::string reason = std::generic_category().message(error);
  if (error == ENOSPC || error == EDQUOT) {
    return Fail(ErrorKind::unavailable, "disk_full",
                fmt::format("cannot {} {}: {}; free space on its file system, nothing accepted so far is lost", doing,
                            path, reason));
  }
  if (error == ENOENT)
    return Fail(ErrorKind::not_found, "no_file", fmt::format("cannot {} {}: {}", doing, path, reason));
  return Fail(ErrorKind::unavailable, "io",
              fmt::format("cannot {} {}: {}; see the system's log for the disk, and the rights of the folder", doing,
                          path, reason));
}

class RealFile final : public File {
 public:
  RealFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  RealFile(const RealFile&) = delete;
  RealFile& operator=(const RealFile&) = delete;
  ~RealFile() override { close(fd_); }

  Result<void> WriteAt(std::uint64_t offset, std::span<const iovec> parts) override {
    iovec chunk[IOV_MAX];
    std::size_t part = 0, done_of_part = 0;
    while (true) {
      while (part < parts.size() && parts[part].iov_len == done_of_part) {
        ++part;
        done_of_part = 0;
      }
      if (part == parts.size()) return {};
      const std::size_t count = std::min<std::size_t>(parts.size() - part, IOV_MAX);
      std::copy_n(parts.begin() + static_cast<std::ptrdiff_t>(part), count, chunk);
      chunk[0].iov_base = static_cast<char*>(chunk[0].iov_base) + done_of_part;
      chunk[0].iov_len -= done_of_part;
      const ssize_t wrote = pwritev(fd_, chunk, static_cast<int>(count), static_cast<off_t>(offset));
      if (wrote < 0) {
        if (errno == EINTR) continue;
        return SystemError("write", path_, errno);
      }
      offset += static_cast<std::uint64_t>(wrote);
      for (auto left = static_cast<std::size_t>(wrote); left > 0;) {
        const std::size_t of_part = std::min(left, parts[part].iov_len - done_of_part);
        left -= of_part;
        done_of_part += of_part;
        if (done_of_part == parts[part].iov_len) {
          ++part;
          done_of_part = 0;
        }
      }
    }
  }

  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const override {
    std::size_t done = 0;
    while (done < out.size()) {
      const ssize_t got = pread(fd_, out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
      if (got < 0) {
        if (errno == EINTR) continue;
        return SystemError("read", path_, errno);
      }
      if (got == 0) break;
      done += static_cast<std::size_t>(got);
    }
    return done;
  }

  Result<void> Sync() override {
    // Not repeated after EINTR: Linux does not say which pages were written then, so it counts as a failure.
    if (fdatasync(fd_) != 0) return SystemError("sync", path_, errno);
    return {};
  }

  Result<void> Allocate(std::uint64_t size) override {
    if (size == 0) return {};
    int error = 0;
    do {
      error = posix_fallocate(fd_, 0, static_cast<off_t>(size));
    } while (error == EINTR);
    if (error != 0) return SystemError("reserve space for", path_, error);
    return {};
  }

  Result<void> Truncate(std::uint64_t size) override {
    if (ftruncate(fd_, static_cast<off_t>(size)) != 0) return SystemError("truncate", path_, errno);
    return {};
  }

  [[nodiscard]] Result<std::uint64_t> Size() const override {
    struct stat info{};
    if (fstat(fd_, &info) != 0) return SystemError("look at", path_, errno);
    return static_cast<std::uint64_t>(info.st_size);
  }

  void Uncache(std::uint64_t offset, std::uint64_t bytes) override {
    // Advice: a system that does not take it keeps more in memory than it had to.
    (void)posix_fadvise(fd_, static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
  }

 private:
  int fd_;
  std::string path_;
};

}  // namespace

Result<std::unique_ptr<File>> RealFiles::Open(const std::string& path, OpenMode mode) {
  int flags = O_CLOEXEC;
  if (mode == OpenMode::read) flags |= O_RDONLY;
  if (mode == OpenMode::read_write) flags |= O_RDWR;
  if (mode == OpenMode::create_new) flags |= O_RDWR | O_CREAT | O_EXCL;
  if (mode == OpenMode::append) flags |= O_RDWR | O_CREAT | O_APPEND;
  // Receipts are money: readable by the owner and its group alone.
  const int fd = open(path.c_str(), flags, 0640);
  if (fd < 0 && errno == EEXIST) return Fail(ErrorKind::conflict, "exists", fmt::format("{} exists already", path));
  if (fd < 0) return SystemError(mode == OpenMode::create_new ? "create" : "open", path, errno);
  return std::make_unique<RealFile>(fd, path);
}

Result<std::vector<std::string>> RealFiles::List(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(folder, error);
  if (error == std::errc::no_such_file_or_directory) return names;
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;  // a file that went away meanwhile is not listed
    if (entry->is_regular_file(ignored)) names.push_back(entry->path().filename().string());
  }
  if (error) return SystemError("list", folder, error.value());
  std::ranges::sort(names);
  return names;
}

Result<void> RealFiles::MakeFolders(const std::string& folder) {
  // From the top down, each made durable in its parent: else a power cut could take the folder with all files in it.
  std::filesystem::path so_far;
  for (const auto& part : std::filesystem::path(folder)) {
    const std::filesystem::path parent = so_far;
    so_far /= part;
    if (part.empty() || mkdir(so_far.c_str(), 0750) == 0) {
      if (part.empty()) continue;
      if (auto synced = SyncFolder(parent.empty() ? "." : parent.string()); !synced) return synced;
      continue;
    }
    const int error = errno;
    std::error_code ignored;
    if (!std::filesystem::is_directory(so_far, ignored)) return SystemError("make the folder", so_far.string(), error);
  }
  return {};
}

Result<void> RealFiles::Rename(const std::string& from, const std::string& to) {
  if (rename(from.c_str(), to.c_str()) != 0) return SystemError("rename", from, errno);
  return {};
}

Result<void> RealFiles::Remove(const std::string& path) {
  if (unlink(path.c_str()) != 0) return SystemError("remove", path, errno);
  return {};
}

Result<void> RealFiles::MakeReadOnly(const std::string& path) {
  if (chmod(path.c_str(), 0444) != 0) return SystemError("take the right to write from", path, errno);
  return {};
}

Result<void> RealFiles::SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return SystemError("open the folder", folder, errno);
  const int error = fsync(fd) == 0 ? 0 : errno;
  close(fd);
  if (error != 0) return SystemError("sync the folder", folder, error);
  return {};
}

bool RealFiles::Exists(const std::string& path) const {
  return access(path.c_str(), F_OK) == 0;
}

Result<std::unique_ptr<File>> RealFiles::Lock(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0640);
  if (fd < 0) return SystemError("open the lock file", path, errno);
  auto file = std::make_unique<RealFile>(fd, path);
  // flock goes with the open file, not with the process: it also refuses a second store within one process, and the
  // system drops it when the holder dies. The file itself is never removed; removing it would let two hold "it".
  int result = 0;
  do {
    result = flock(fd, LOCK_EX | LOCK_NB);
  } while (result != 0 && errno == EINTR);
  if (result != 0 && errno != EWOULDBLOCK) return SystemError("lock", path, errno);
  if (result != 0) {
    char text[32] = {};
    const auto got = file->ReadAt(0, std::span(text, sizeof text - 1));
    std::string holder(text, got ? *got : 0);
    std::erase_if(holder, [](unsigned char c) { return c < '0' || c > '9'; });
    return Fail(ErrorKind::conflict, "locked",
                fmt::format("{} is held by {}: one process per store; stop it first, or give this one its own folder",
                            path, holder.empty() ? "another process" : "process " + holder));
  }
  std::string pid = std::to_string(getpid()) + "\n";
  const iovec part{pid.data(), pid.size()};
  if (auto cut = file->Truncate(0); !cut) return std::unexpected(cut.error());
  if (auto wrote = file->WriteAt(0, std::span(&part, 1)); !wrote) return std::unexpected(wrote.error());
  return file;
}

Result<std::uint64_t> RealFiles::FreeBytes(const std::string& path) {
  struct statvfs info{};
  if (statvfs(path.c_str(), &info) != 0) return SystemError("ask for free space at", path, errno);
  return std::uint64_t{info.f_bavail} * info.f_frsize;
}

Result<std::uint64_t> RealFiles::TotalBytes(const std::string& path) {
  struct statvfs info{};
  if (statvfs(path.c_str(), &info) != 0) return SystemError("ask for the size of the disk at", path, errno);
  return std::uint64_t{info.f_blocks} * info.f_frsize;
}

}  // namespace dlo
