#include "deadletter/replay_window.h"

#include <algorithm>
#include <utility>

namespace dlo::deadletter {
namespace {

/// Slow: lately twice as long as usually, and by more than chance makes of a fast one.
constexpr Duration kSlowBy = std::chrono::milliseconds(20);

bool Slow(const dispatch::TargetFlow& flow) {
  return flow.took_lately > 2 * flow.took_usually + kSlowBy;
}

}  // namespace

std::int64_t ReplayWindow::Look(const dispatch::TargetFlow& flow, std::int64_t live_due, Time now) {
  const std::uint64_t good = flow.good - std::exchange(good_, flow.good),
                      bad = flow.bad - std::exchange(bad_, flow.bad);
  const double capacity = std::max(flow.capacity, 1);
  const bool first = size_ == 0;
  const std::uint64_t live = flow.live - std::exchange(live_, flow.live);
  if (live_due > 0 || (!first && live > 0)) live_at_ = now;
  if (!flow.closed) {
    size_ = 1;  // whoever was ill is not met with all that has gathered
    return 0;
  }
  if (first) {
    size_ = capacity;
  } else if (bad > 0 || live_due > 0 || Slow(flow)) {
    Shrink(flow, now);
  } else {
    // A sixteenth of the target's places for each window that ended well.
    const double step = std::max(1.0, capacity / 16);
    size_ = std::min(size_ + step * static_cast<double>(good) / size_, std::max(kMost, capacity));
  }
  if (live_at_ && now - *live_at_ < kLiveLately && now >= *live_at_)
    size_ = std::min(size_, std::max(1.0, capacity / 2));
  return static_cast<std::int64_t>(size_);
}

void ReplayWindow::Shrink(const dispatch::TargetFlow& flow, Time now) {
  // A clock that was set back must not keep it large.
  if (now >= shrunk_at_ && now < shrunk_at_ + std::max(kShrinkEvery, flow.took_lately)) return;
  shrunk_at_ = now;
  size_ = std::max(1.0, size_ / 2);
}

}  // namespace dlo::deadletter
