// A few read-only connections, lent to one caller at a time. A reader sees everything that was committed before it
// began.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

class ReaderPool {
 public:
  Result<void> Open(const std::string& path, const std::string& vfs, int connections) {
    for (int i = 0; i < connections; ++i) {
      Result<std::unique_ptr<Db>> reader = Db::Open(path, Db::Mode::reader, vfs);
      if (!reader) return std::unexpected(std::move(reader.error()));
      free_.push_back(std::move(*reader));
    }
    lent_ = 0;
    open_ = true;
    return {};
  }

  /// Waits for a free connection; `fn(Db&)` returns a Result.
  template <typename F>
  auto Read(F&& fn) -> std::invoke_result_t<F&, Db&> {
    std::unique_ptr<Db> reader;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !open_ || !free_.empty(); });
      if (!open_) return Fail(ErrorKind::unavailable, "stopping", "the store is closed");
      reader = std::move(free_.back());
      free_.pop_back();
      ++lent_;
    }
    auto result = fn(*reader);
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(reader));
    --lent_;
    changed_.notify_all();
    return result;
  }

  /// Waits for those that read. Idempotent.
  void Close() {
    std::unique_lock lock(mutex_);
    open_ = false;
    changed_.notify_all();
    changed_.wait(lock, [this] { return lent_ == 0; });
    free_.clear();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::unique_ptr<Db>> free_;
  int lent_ = 0;
  bool open_ = false;
};

}  // namespace dlo::store
