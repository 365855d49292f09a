// What a segment's end would otherwise make every sender wait for, done while the segment fills: its hash, a piece at a
// time, and the next file with its space reserved. Writing zeros over that space first was measured (bench/receipts,
// ext4): a lone sync took 165 us where it takes 225 us, but under load the disk wrote everything twice, receipts/s fell
// by 15 % and p99 rose from 3 to 7 ms.
// And what is rarely read again leaves the system's memory: a journal that only grows would push out what others need,
// and a new page costs more than one that was just given back (docs/performance.md).
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "env/files.h"
#include "store/embedded/journal_segment.h"

namespace dlo::store {

/// Its calls are for the appending thread alone. Without a thread of its own it hashes at the end and prepares nothing.
class JournalAhead {
 public:
  JournalAhead(Files& files, const std::string& folder, std::uint64_t segment_bytes, bool own_thread);
  ~JournalAhead();
  JournalAhead(const JournalAhead&) = delete;
  JournalAhead& operator=(const JournalAhead&) = delete;

  /// `active` is filled from now on, up to about `capacity`.
  void Begin(std::shared_ptr<File> active, std::uint64_t capacity);
  /// It is durable up to `end`. Costs nothing but at each whole piece.
  void Advanced(std::uint64_t end);
  /// SHA-256 of its first `end` bytes. May be called again after a failure further on.
  Result<Sha256Digest> Hash(std::uint64_t end);
  /// The prepared file: `segment_bytes` reserved, which read as zeros. Null if there is none.
  std::unique_ptr<File> TakeSpare();
  [[nodiscard]] const std::string& spare_path() const { return spare_path_; }

 private:
  void Run();
  void Step(std::uint64_t end);
  Result<void> ReserveSpare();
  void DropSpare();

  Files& files_;
  const std::string spare_path_;
  const std::uint64_t segment_bytes_;
  const std::uint64_t piece_;

  std::atomic<bool> roll_waits_{false};  // the worker steps back: a mutex alone would let it go on and on
  std::mutex work_mutex_;                // held for one piece of work; guards the next seven
  std::shared_ptr<File> active_;
  std::uint64_t capacity_ = 0;
  std::deque<std::shared_ptr<File>> sealed_;  // the newest, kept in the system's memory
  SegmentHash hash_;
  std::unique_ptr<File> spare_;
  bool spare_taken_ = false;
  bool spare_failed_ = false;

  std::mutex wake_mutex_;  // guards the next three
  std::condition_variable wake_;
  std::uint64_t end_ = 0;
  std::uint64_t seen_ = 0;  // end_ as the worker last saw it
  bool stop_ = false;
  std::uint64_t next_wake_ = 0;  // of the appending thread
  std::thread thread_;
};

}  // namespace dlo::store
