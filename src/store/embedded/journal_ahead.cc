#include "store/embedded/journal_ahead.h"

#include <algorithm>

#include "base/thread_name.h"

namespace dlo::store {
namespace {

// Small enough that a roll which waits for one, or a sync beside one, waits some milliseconds.
constexpr std::uint64_t kMaxPiece = std::uint64_t{1} << 20;
constexpr std::uint64_t kPiecesOfASegment = 16;
/// Sealed segments that stay in the system's memory, for handlers that are behind: 256 MiB.
constexpr std::size_t kCachedSegments = 4;

}  // namespace

JournalAhead::JournalAhead(Files& files, const std::string& folder, std::uint64_t segment_bytes, bool own_thread)
    : files_(files),
      spare_path_(folder + "/spare.seg.new"),
      segment_bytes_(segment_bytes),
      piece_(std::clamp<std::uint64_t>(segment_bytes / kPiecesOfASegment, 1, kMaxPiece)) {
  if (own_thread) thread_ = std::thread([this] { Run(); });
}

JournalAhead::~JournalAhead() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(wake_mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  // A spare left behind is removed by the next start; here that gives its space back at once.
  DropSpare();
}

void JournalAhead::Begin(std::shared_ptr<File> active, std::uint64_t capacity) {
  const std::lock_guard work(work_mutex_);
  if (active_ != nullptr) sealed_.push_back(std::move(active_));
  if (sealed_.size() > kCachedSegments) sealed_.pop_front();
  active_ = std::move(active);
  capacity_ = capacity;
  hash_.Reset();
  spare_failed_ = false;
  spare_taken_ = false;
  const std::lock_guard lock(wake_mutex_);
  end_ = seen_ = 0;
  next_wake_ = 0;
}

void JournalAhead::Advanced(std::uint64_t end) {
  if (!thread_.joinable() || end < next_wake_) return;
  next_wake_ = end + piece_;
  {
    const std::lock_guard lock(wake_mutex_);
    end_ = end;
  }
  wake_.notify_one();
}

Result<Sha256Digest> JournalAhead::Hash(std::uint64_t end) {
  roll_waits_ = true;
  const std::lock_guard work(work_mutex_);
  roll_waits_ = false;
  if (auto done = hash_.Advance(*active_, end); !done) return std::unexpected(done.error());
  return hash_.Digest();
}

std::unique_ptr<File> JournalAhead::TakeSpare() {
  const std::lock_guard work(work_mutex_);
  spare_taken_ = true;  // until Begin no other is due
  return std::move(spare_);
}

void JournalAhead::Run() {
  NameThread("dlo-ahead");
  while (true) {
    std::uint64_t end = 0;
    {
      std::unique_lock lock(wake_mutex_);
      wake_.wait(lock, [&] { return stop_ || end_ != seen_; });
      if (stop_) return;
      end = seen_ = end_;
    }
    if (end > 0) Step(end);
  }
}

void JournalAhead::Step(std::uint64_t end) {
  while (!roll_waits_) {
    const std::lock_guard work(work_mutex_);
    {
      // The segment may have been closed meanwhile; its end says nothing about the next one.
      const std::lock_guard lock(wake_mutex_);
      if (stop_ || end_ < end) return;
    }
    const std::uint64_t hashed = hash_.bytes();
    if (hashed < end) {
      // A failure shows again, and is handled, when the appending thread asks for the whole.
      if (!hash_.Advance(*active_, std::min(end, hashed + piece_))) return;
      if (sealed_.size() == kCachedSegments) sealed_.front()->Uncache(hashed, hash_.bytes() - hashed);
      continue;
    }
    if (end < capacity_ / 2 || spare_taken_ || spare_failed_ || spare_ != nullptr) return;
    if (auto done = ReserveSpare(); !done) {
      // Most likely a full disk: the space is better given back. The roll itself tries again and reports.
      DropSpare();
      spare_failed_ = true;
    }
  }
}

Result<void> JournalAhead::ReserveSpare() {
  if (files_.Exists(spare_path_)) {
    if (auto removed = files_.Remove(spare_path_); !removed) return removed;
  }
  auto created = files_.Open(spare_path_, OpenMode::create_new);
  if (!created) return std::unexpected(created.error());
  spare_ = std::move(*created);
  if (auto reserved = spare_->Allocate(segment_bytes_); !reserved) return reserved;
  return spare_->Sync();
}

void JournalAhead::DropSpare() {
  if (spare_ == nullptr) return;
  spare_.reset();
  static_cast<void>(files_.Remove(spare_path_));
}

}  // namespace dlo::store
