#include "env/memory_files.h"

#include <algorithm>
#include <cstring>

namespace dlo {
namespace {

constexpr std::uint64_t kSector = 512;

std::string FolderOf(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::unexpected<Error> DiskFull() {
  return Fail(ErrorKind::unavailable, "disk_full", "no space left on the disk in memory");
}

}  // namespace

class MemoryFile final : public File {
 public:
  MemoryFile(MemoryFiles& disk, std::shared_ptr<MemoryFiles::Node> node, bool writable, bool holds_lock)
      : disk_(disk),
        node_(std::move(node)),
        writable_(writable),
        holds_lock_(holds_lock),
        generation_(disk.generation_) {}
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  ~MemoryFile() override {
    const std::lock_guard lock(disk_.mutex_);
    if (holds_lock_ && generation_ == disk_.generation_) node_->locked = false;
  }

  Result<void> WriteAt(std::uint64_t offset, std::span<const iovec> parts) override {
    const std::lock_guard lock(disk_.mutex_);
    if (auto allowed = MayChange(); !allowed) return allowed;
    for (const iovec& part : parts) {
      if (part.iov_len == 0) continue;
      if (offset + part.iov_len > node_->bytes.size()) {
        const std::uint64_t before = node_->bytes.size();
        if (auto grown = disk_.Grow(*node_, offset + part.iov_len); !grown) {
          const std::uint64_t fits = before > offset ? std::min<std::uint64_t>(before - offset, part.iov_len) : 0;
          Put(offset, static_cast<const char*>(part.iov_base), fits);
          return grown;
        }
      }
      Put(offset, static_cast<const char*>(part.iov_base), part.iov_len);
      offset += part.iov_len;
    }
    return {};
  }

  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const override {
    const std::lock_guard lock(disk_.mutex_);
    if (offset >= node_->bytes.size()) return std::size_t{0};
    const std::size_t count = std::min<std::size_t>(out.size(), node_->bytes.size() - offset);
    std::memcpy(out.data(), node_->bytes.data() + offset, count);
    return count;
  }

  Result<void> Sync() override {
    const std::lock_guard lock(disk_.mutex_);
    if (auto allowed = MayChange(); !allowed) return allowed;
    if (disk_.failing_syncs_ > 0) {
      --disk_.failing_syncs_;
      // As Linux does: the pages are taken for clean, stay readable, and no later sync writes them.
      node_->dirty.clear();
      return Fail(ErrorKind::unavailable, "io", "the disk in memory failed a sync, as it was told to");
    }
    // Only what changed: a whole copy a sync would make long simulations quadratic.
    node_->durable.resize(node_->bytes.size());
    for (const std::uint64_t sector : node_->dirty) {
      const std::uint64_t from = sector * kSector;
      if (from >= node_->bytes.size()) continue;
      const std::uint64_t count = std::min(kSector, node_->bytes.size() - from);
      std::memcpy(node_->durable.data() + from, node_->bytes.data() + from, count);
    }
    node_->dirty.clear();
    return {};
  }

  Result<void> Allocate(std::uint64_t size) override {
    const std::lock_guard lock(disk_.mutex_);
    if (auto allowed = MayChange(); !allowed) return allowed;
    return size > node_->bytes.size() ? disk_.Grow(*node_, size) : Result<void>();
  }

  Result<void> Truncate(std::uint64_t size) override {
    const std::lock_guard lock(disk_.mutex_);
    if (auto allowed = MayChange(); !allowed) return allowed;
    const std::uint64_t before = node_->bytes.size();
    node_->bytes.resize(size);
    for (std::uint64_t at = std::min(size, before) / kSector; at * kSector < std::max(size, before); ++at) {
      node_->dirty.insert(at);
    }
    return {};
  }

  [[nodiscard]] Result<std::uint64_t> Size() const override {
    const std::lock_guard lock(disk_.mutex_);
    return node_->bytes.size();
  }

 private:
  Result<void> MayChange() {
    if (!writable_) return Fail(ErrorKind::unavailable, "io", "the file was opened for reading only");
    if (generation_ != disk_.generation_)
      return Fail(ErrorKind::unavailable, "io", "the process that opened the file has died");
    return disk_.ChangeAllowed();
  }

  void Put(std::uint64_t offset, const char* bytes, std::uint64_t count) {
    if (count == 0) return;
    std::memcpy(node_->bytes.data() + offset, bytes, count);
    for (std::uint64_t at = offset / kSector; at * kSector < offset + count; ++at) node_->dirty.insert(at);
  }

  MemoryFiles& disk_;
  std::shared_ptr<MemoryFiles::Node> node_;
  bool writable_, holds_lock_;
  std::uint64_t generation_;
};

MemoryFiles::MemoryFiles() = default;
MemoryFiles::~MemoryFiles() = default;

Result<void> MemoryFiles::ChangeAllowed() {
  if (changes_to_live_ > 0) {
    --changes_to_live_;
    dead_ = dead_ || changes_to_live_ == 0;
  }
  if (dead_) return Fail(ErrorKind::unavailable, "io", "the process on the disk in memory is dead");
  return {};
}

std::uint64_t MemoryFiles::UsedBytes() const {
  std::uint64_t bytes = 0;
  for (const auto& [path, node] : names_) bytes += node->bytes.size();
  return bytes;
}

Result<void> MemoryFiles::Grow(Node& node, std::uint64_t size) {
  const std::uint64_t before = node.bytes.size(), used = UsedBytes(), more = size - before;
  if (used + more > capacity_) {
    // A real disk fills up to its brim before it complains.
    node.bytes.resize(before + (capacity_ > used ? capacity_ - used : 0));
    return DiskFull();
  }
  node.bytes.resize(size);
  return {};
}

Result<std::unique_ptr<File>> MemoryFiles::Open(const std::string& path, OpenMode mode) {
  const std::lock_guard lock(mutex_);
  auto found = names_.find(path);
  const bool make = mode == OpenMode::append && found == names_.end();
  if (mode == OpenMode::create_new || make) {
    if (found != names_.end()) return Fail(ErrorKind::conflict, "exists", path + " exists already");
    if (auto allowed = ChangeAllowed(); !allowed) return std::unexpected(allowed.error());
    found = names_.emplace(path, std::make_shared<Node>()).first;
    changes_.push_back({FolderOf(path), path, found->second, {}});
  }
  if (found == names_.end()) return Fail(ErrorKind::not_found, "no_file", path + " does not exist");
  return std::make_unique<MemoryFile>(*this, found->second, mode != OpenMode::read, false);
}

Result<std::vector<std::string>> MemoryFiles::List(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [path, node] : names_) {
    if (FolderOf(path) == folder) names.push_back(path.substr(folder.size() + 1));
  }
  return names;  // sorted, as the map is
}

Result<void> MemoryFiles::MakeFolders(const std::string&) {
  return {};
}

Result<void> MemoryFiles::Rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(from);
  if (found == names_.end()) return Fail(ErrorKind::not_found, "no_file", from + " does not exist");
  if (auto allowed = ChangeAllowed(); !allowed) return allowed;
  auto node = found->second;
  names_.erase(found);
  names_[to] = node;
  changes_.push_back({FolderOf(to), to, node, from});
  return {};
}

Result<void> MemoryFiles::Remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (!names_.contains(path)) return Fail(ErrorKind::not_found, "no_file", path + " does not exist");
  if (auto allowed = ChangeAllowed(); !allowed) return allowed;
  names_.erase(path);
  changes_.push_back({FolderOf(path), path, nullptr, {}});
  return {};
}

Result<void> MemoryFiles::SyncFolder(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  if (auto allowed = ChangeAllowed(); !allowed) return allowed;
  for (const Change& change : changes_) {
    if (change.folder != folder) continue;
    if (!change.also_removed.empty()) durable_names_.erase(change.also_removed);
    if (change.node != nullptr) durable_names_[change.path] = change.node;
    if (change.node == nullptr) durable_names_.erase(change.path);
  }
  std::erase_if(changes_, [&](const Change& change) { return change.folder == folder; });
  return {};
}

bool MemoryFiles::Exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return names_.contains(path);
}

Result<std::unique_ptr<File>> MemoryFiles::Lock(const std::string& path) {
  const std::lock_guard lock(mutex_);
  auto& node = names_[path];
  if (node == nullptr) node = std::make_shared<Node>();
  if (node->locked) return Fail(ErrorKind::conflict, "locked", path + " is held by another holder in this process");
  node->locked = true;
  return std::make_unique<MemoryFile>(*this, node, true, true);
}

Result<std::uint64_t> MemoryFiles::FreeBytes(const std::string&) {
  const std::lock_guard lock(mutex_);
  const std::uint64_t used = UsedBytes();
  return capacity_ > used ? capacity_ - used : 0;
}

Result<std::uint64_t> MemoryFiles::TotalBytes(const std::string&) {
  const std::lock_guard lock(mutex_);
  return capacity_;
}

void MemoryFiles::EndProcess() {
  ++generation_;
  dead_ = false;
  changes_to_live_ = 0;
  failing_syncs_ = 0;
  for (auto& [path, node] : names_) node->locked = false;
}

void MemoryFiles::ProcessDied() {
  const std::lock_guard lock(mutex_);
  EndProcess();
}

void MemoryFiles::PowerCut(Random& random) {
  const std::lock_guard lock(mutex_);
  EndProcess();
  // Names: a beginning of what changed, in order, as a journaling file system keeps it.
  const std::size_t kept = changes_.empty() ? 0 : random.Next() % (changes_.size() + 1);
  for (std::size_t i = 0; i < kept; ++i) {
    const Change& change = changes_[i];
    if (!change.also_removed.empty()) durable_names_.erase(change.also_removed);
    if (change.node != nullptr) durable_names_[change.path] = change.node;
    if (change.node == nullptr) durable_names_.erase(change.path);
  }
  changes_.clear();
  names_ = durable_names_;
  for (auto& [path, node] : names_) {
    std::string survived = node->durable;
    if ((random.Next() & 1) != 0) survived.resize(node->bytes.size());
    const std::uint64_t odds = random.Next() % 5;  // from nothing to everything of what was not synced
    for (const std::uint64_t sector : node->dirty) {
      const std::uint64_t from = sector * kSector;
      if (random.Next() % 4 >= odds || from >= node->bytes.size()) continue;
      const std::uint64_t count = std::min(kSector, node->bytes.size() - from);
      // A surviving sector within the size that survived; the rest of it went with the size.
      if (from < survived.size()) {
        std::memcpy(survived.data() + from, node->bytes.data() + from, std::min(count, survived.size() - from));
      }
    }
    node->bytes = survived;
    node->durable = std::move(survived);
    node->dirty.clear();
  }
}

void MemoryFiles::SetCapacity(std::uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  capacity_ = bytes;
}

void MemoryFiles::FailSyncs(int count) {
  const std::lock_guard lock(mutex_);
  failing_syncs_ = count;
}

void MemoryFiles::DieAtChange(std::int64_t after) {
  const std::lock_guard lock(mutex_);
  changes_to_live_ = after;
}

std::string MemoryFiles::Contents(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = names_.find(path);
  return found == names_.end() ? std::string() : found->second->bytes;
}

void MemoryFiles::SetContents(const std::string& path, std::string bytes) {
  const std::lock_guard lock(mutex_);
  auto node = std::make_shared<Node>();
  node->durable = bytes;
  node->bytes = std::move(bytes);
  names_[path] = node;
  durable_names_[path] = node;
}

}  // namespace dlo
