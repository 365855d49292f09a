// SQLite's file system over MemoryFiles: what SQLite did not sync is lost in a simulated power cut as what we did not
// sync is. Locks and shared memory as between connections of one process on one thread.
#pragma once

#include <sqlite3.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "env/clock.h"
#include "env/files.h"
#include "env/random.h"

namespace dlo::sim {

/// Registers itself under name(); one per world.
class SimVfs {
 public:
  SimVfs(Files& files, Clock& clock, Random& random);
  ~SimVfs();
  SimVfs(const SimVfs&) = delete;
  SimVfs& operator=(const SimVfs&) = delete;

  [[nodiscard]] const std::string& name() const { return name_; }
  /// The process died: its locks and shared memory are gone. All connections must be closed.
  void ProcessDied() { shared_.clear(); }

  /// What the connections to one file share.
  struct Shared {
    int readers = 0;           // connections with SHARED or more
    void* reserved = nullptr;  // who has RESERVED or more
    bool exclusive = false;
    int mapped = 0;
    std::vector<std::unique_ptr<char[]>> regions;
    struct Slot {
      int shared = 0;
      bool exclusive = false;
    };
    Slot slots[SQLITE_SHM_NLOCK];
  };

 private:
  static int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags);
  static int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder);
  static int Access(sqlite3_vfs* vfs, const char* path, int flags, int* result);
  static int FullPath(sqlite3_vfs* vfs, const char* path, int size, char* out);
  static int Randomness(sqlite3_vfs* vfs, int size, char* out);
  static int Sleep(sqlite3_vfs* vfs, int microseconds);
  static int Now(sqlite3_vfs* vfs, sqlite3_int64* out);

  Files& files_;
  Clock& clock_;
  Random& random_;
  std::string name_;
  sqlite3_vfs vfs_{};
  std::map<std::string, std::shared_ptr<Shared>> shared_;
};

}  // namespace dlo::sim
