#include "sim/sim_vfs.h"

#include <fmt/format.h>

#include <atomic>
#include <cstring>
#include <new>

namespace dlo::sim {
namespace {

constexpr int kPathBytes = 512;

/// SQLite allocates the bytes and calls through `methods`.
struct SimFile {
  sqlite3_file base;
  std::unique_ptr<File> file;
  std::shared_ptr<SimVfs::Shared> shared;
  int level = SQLITE_LOCK_NONE;
  bool mapped = false;
};

SimFile& Of(sqlite3_file* file) {
  return *reinterpret_cast<SimFile*>(file);
}

int Code(const Result<void>& done, int otherwise) {
  if (done) return SQLITE_OK;
  return done.error().code == "disk_full" ? SQLITE_FULL : otherwise;
}

int Unlock(sqlite3_file* file, int level) {
  SimFile& f = Of(file);
  if (level >= f.level) return SQLITE_OK;
  if (f.level > SQLITE_LOCK_SHARED && f.shared->reserved == &f) {
    f.shared->reserved = nullptr;
    f.shared->exclusive = false;
  }
  if (level == SQLITE_LOCK_NONE && f.level >= SQLITE_LOCK_SHARED) --f.shared->readers;
  f.level = level;
  return SQLITE_OK;
}

int Lock(sqlite3_file* file, int level) {
  SimFile& f = Of(file);
  if (level <= f.level) return SQLITE_OK;
  SimVfs::Shared& s = *f.shared;
  if (level == SQLITE_LOCK_SHARED) {
    if (s.exclusive) return SQLITE_BUSY;
    ++s.readers;
  } else {
    if (s.reserved != nullptr && s.reserved != &f) return SQLITE_BUSY;
    s.reserved = &f;
    if (level == SQLITE_LOCK_EXCLUSIVE) {
      if (s.readers > 1) return SQLITE_BUSY;
      s.exclusive = true;
    }
  }
  f.level = level;
  return SQLITE_OK;
}

int ShmUnmap(sqlite3_file* file, int remove) {
  SimFile& f = Of(file);
  if (!f.mapped) return SQLITE_OK;
  f.mapped = false;
  if (--f.shared->mapped == 0 && remove != 0) f.shared->regions.clear();
  return SQLITE_OK;
}

int Close(sqlite3_file* file) {
  Unlock(file, SQLITE_LOCK_NONE);
  ShmUnmap(file, 0);
  Of(file).~SimFile();
  return SQLITE_OK;
}

int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
  auto* bytes = static_cast<char*>(out);
  const auto got = Of(file).file->ReadAt(static_cast<std::uint64_t>(offset), {bytes, static_cast<std::size_t>(size)});
  if (!got) return SQLITE_IOERR_READ;
  if (*got == static_cast<std::size_t>(size)) return SQLITE_OK;
  std::memset(bytes + *got, 0, static_cast<std::size_t>(size) - *got);
  return SQLITE_IOERR_SHORT_READ;
}

int Write(sqlite3_file* file, const void* in, int size, sqlite3_int64 offset) {
  const iovec part{const_cast<void*>(in), static_cast<std::size_t>(size)};
  return Code(Of(file).file->WriteAt(static_cast<std::uint64_t>(offset), std::span(&part, 1)), SQLITE_IOERR_WRITE);
}

int Truncate(sqlite3_file* file, sqlite3_int64 size) {
  return Code(Of(file).file->Truncate(static_cast<std::uint64_t>(size)), SQLITE_IOERR_TRUNCATE);
}

int Sync(sqlite3_file* file, int /*flags*/) {
  return Code(Of(file).file->Sync(), SQLITE_IOERR_FSYNC);
}

int Size(sqlite3_file* file, sqlite3_int64* out) {
  const auto size = Of(file).file->Size();
  if (!size) return SQLITE_IOERR_FSTAT;
  *out = static_cast<sqlite3_int64>(*size);
  return SQLITE_OK;
}

int CheckReserved(sqlite3_file* file, int* out) {
  *out = Of(file).shared->reserved != nullptr ? 1 : 0;
  return SQLITE_OK;
}

int Control(sqlite3_file* /*file*/, int /*op*/, void* /*arg*/) {
  return SQLITE_NOTFOUND;
}

int SectorSize(sqlite3_file* /*file*/) {
  return 512;
}

// As SQLite's own file systems say.
int Characteristics(sqlite3_file* /*file*/) {
  return SQLITE_IOCAP_POWERSAFE_OVERWRITE;
}

int ShmMap(sqlite3_file* file, int index, int size, int extend, void volatile** out) {
  SimFile& f = Of(file);
  if (!f.mapped) {
    f.mapped = true;
    ++f.shared->mapped;
  }
  auto& regions = f.shared->regions;
  const auto i = static_cast<std::size_t>(index);
  *out = nullptr;
  if (i >= regions.size() && extend == 0) return SQLITE_OK;
  while (i >= regions.size()) regions.push_back(std::make_unique<char[]>(static_cast<std::size_t>(size)));
  *out = regions[i].get();
  return SQLITE_OK;
}

int ShmLock(sqlite3_file* file, int offset, int n, int flags) {
  SimVfs::Shared& s = *Of(file).shared;
  for (int i = offset; i < offset + n; ++i) {
    SimVfs::Shared::Slot& slot = s.slots[i];
    if ((flags & SQLITE_SHM_LOCK) == 0) continue;
    if (slot.exclusive || ((flags & SQLITE_SHM_EXCLUSIVE) != 0 && slot.shared > 0)) return SQLITE_BUSY;
  }
  for (int i = offset; i < offset + n; ++i) {
    SimVfs::Shared::Slot& slot = s.slots[i];
    const int by = (flags & SQLITE_SHM_LOCK) != 0 ? 1 : -1;
    if ((flags & SQLITE_SHM_EXCLUSIVE) != 0) {
      slot.exclusive = by > 0;
    } else {
      slot.shared += by;
    }
  }
  return SQLITE_OK;
}

void ShmBarrier(sqlite3_file* /*file*/) {}

constexpr sqlite3_io_methods kMethods = {
    2,          Close,           Read,   Write,   Truncate,   Sync,     Size,    Lock,   Unlock, CheckReserved, Control,
    SectorSize, Characteristics, ShmMap, ShmLock, ShmBarrier, ShmUnmap, nullptr, nullptr};

SimVfs* Self(sqlite3_vfs* vfs) {
  return static_cast<SimVfs*>(vfs->pAppData);
}

}  // namespace

SimVfs::SimVfs(Files& files, Clock& clock, Random& random) : files_(files), clock_(clock), random_(random) {
  static std::atomic<int> next{0};
  name_ = fmt::format("dlo-sim-{}", next++);
  vfs_.iVersion = 2;
  vfs_.szOsFile = sizeof(SimFile);
  vfs_.mxPathname = kPathBytes;
  vfs_.zName = name_.c_str();
  vfs_.pAppData = this;
  vfs_.xOpen = Open;
  vfs_.xDelete = Delete;
  vfs_.xAccess = Access;
  vfs_.xFullPathname = FullPath;
  vfs_.xRandomness = Randomness;
  vfs_.xSleep = Sleep;
  vfs_.xCurrentTimeInt64 = Now;
  sqlite3_vfs_register(&vfs_, 0);
}

SimVfs::~SimVfs() {
  sqlite3_vfs_unregister(&vfs_);
}

int SimVfs::Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* file, int flags, int* out_flags) {
  SimVfs& self = *Self(vfs);
  file->pMethods = nullptr;
  if (path == nullptr) return SQLITE_CANTOPEN;  // temporary files are kept in memory by a setting
  const bool there = self.files_.Exists(path);
  if (!there && (flags & SQLITE_OPEN_CREATE) == 0) return SQLITE_CANTOPEN;
  const OpenMode mode = (flags & SQLITE_OPEN_READONLY) != 0 ? OpenMode::read
                        : there                             ? OpenMode::read_write
                                                            : OpenMode::create_new;
  auto opened = self.files_.Open(path, mode);
  if (!opened) return opened.error().code == "disk_full" ? SQLITE_FULL : SQLITE_CANTOPEN;
  const std::string folder = std::string(path).substr(0, std::string(path).rfind('/'));
  // As SQLite's unix VFS does for what it creates beside the database, before its first sync.
  if (!there && (flags & SQLITE_OPEN_MAIN_DB) == 0 && !self.files_.SyncFolder(folder)) return SQLITE_IOERR_DIR_FSYNC;
  auto& shared = self.shared_[path];
  if (!shared) shared = std::make_shared<Shared>();
  new (file) SimFile{{&kMethods}, std::move(*opened), shared};
  if (out_flags != nullptr) *out_flags = flags;
  return SQLITE_OK;
}

int SimVfs::Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
  SimVfs& self = *Self(vfs);
  if (!self.files_.Exists(path)) return SQLITE_IOERR_DELETE_NOENT;
  if (!self.files_.Remove(path)) return SQLITE_IOERR_DELETE;
  const std::string folder = std::string(path).substr(0, std::string(path).rfind('/'));
  if (sync_folder != 0 && !self.files_.SyncFolder(folder)) return SQLITE_IOERR_DIR_FSYNC;
  return SQLITE_OK;
}

int SimVfs::Access(sqlite3_vfs* vfs, const char* path, int /*flags*/, int* result) {
  *result = Self(vfs)->files_.Exists(path) ? 1 : 0;
  return SQLITE_OK;
}

int SimVfs::FullPath(sqlite3_vfs* /*vfs*/, const char* path, int size, char* out) {
  sqlite3_snprintf(size, out, "%s", path);
  return SQLITE_OK;
}

int SimVfs::Randomness(sqlite3_vfs* vfs, int size, char* out) {
  for (int i = 0; i < size; ++i) out[i] = static_cast<char>(Self(vfs)->random_.Next());
  return size;
}

int SimVfs::Sleep(sqlite3_vfs* /*vfs*/, int microseconds) {
  return microseconds;
}

int SimVfs::Now(sqlite3_vfs* vfs, sqlite3_int64* out) {
  constexpr sqlite3_int64 kJulianOfEpoch = 210866760000000;  // milliseconds
  *out = kJulianOfEpoch + Self(vfs)->clock_.Now().time_since_epoch().count() / 1000;
  return SQLITE_OK;
}

}  // namespace dlo::sim
