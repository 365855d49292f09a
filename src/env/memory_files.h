// A file system in memory that remembers what was made durable and what was not, for tests of what a power cut, a full
// disk or a failing disk does. Stricter than ext4: a file's name is durable only after SyncFolder of its folder, its
// bytes and its size only after Sync.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "env/files.h"
#include "env/random.h"

namespace dlo {

/// Thread-safe. Files opened before PowerCut or ProcessDied can change nothing any more.
class MemoryFiles final : public Files {
 public:
  MemoryFiles();
  ~MemoryFiles() override;

  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override;
  Result<std::vector<std::string>> List(const std::string& folder) override;
  Result<void> MakeFolders(const std::string& folder) override;
  Result<void> Rename(const std::string& from, const std::string& to) override;
  Result<void> Remove(const std::string& path) override;
  Result<void> SyncFolder(const std::string& folder) override;
  [[nodiscard]] bool Exists(const std::string& path) const override;
  Result<std::unique_ptr<File>> Lock(const std::string& path) override;
  Result<std::uint64_t> FreeBytes(const std::string& path) override;
  Result<std::uint64_t> TotalBytes(const std::string& path) override;  // the capacity

  /// What was not synced is lost in part: of each file, every 512-byte sector written since its last Sync survives or
  /// not by chance, its size is the old or the new one; of each folder, a beginning of the changes since its last
  /// SyncFolder survives. Locks are dropped.
  void PowerCut(Random& random);
  /// The process died and the machine did not: all that was written stays, unsynced as it is. Locks are dropped.
  void ProcessDied();

  /// A write or reservation that needs more than this many bytes in all fails with "disk_full", after having written
  /// what fitted.
  void SetCapacity(std::uint64_t bytes);
  /// The next `count` calls of Sync (of files, not folders) fail; nothing becomes durable by them.
  void FailSyncs(int count);
  /// The `after`-th call from now (1 = the next) that would change the disk, and all later ones, fail with code "io",
  /// until PowerCut or ProcessDied: the process is dead from there on. 0 = never.
  void DieAtChange(std::int64_t after);

  /// The bytes as a reader sees them; tests damage files with these. Write counts as durable.
  [[nodiscard]] std::string Contents(const std::string& path) const;
  void SetContents(const std::string& path, std::string bytes);

 private:
  friend class MemoryFile;
  struct Node {
    std::string bytes;              // as readers see it
    std::string durable;            // as of the last Sync
    std::set<std::uint64_t> dirty;  // sectors changed since
    bool locked = false;
  };
  struct Change {  // to a folder, since its last SyncFolder
    std::string folder, path;
    std::shared_ptr<Node> node;  // null = the name went away
    std::string also_removed;    // a rename: the old name
  };

  void EndProcess();  // with the mutex held
  Result<void> ChangeAllowed();
  Result<void> Grow(Node& node, std::uint64_t size);
  [[nodiscard]] std::uint64_t UsedBytes() const;

  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Node>> names_;          // as seen
  std::map<std::string, std::shared_ptr<Node>> durable_names_;  // as of the last SyncFolder
  std::vector<Change> changes_;
  std::uint64_t capacity_ = UINT64_MAX;
  int failing_syncs_ = 0;
  std::int64_t changes_to_live_ = 0;  // 0 = for ever
  bool dead_ = false;
  std::uint64_t generation_ = 0;  // power cuts so far
};

}  // namespace dlo
