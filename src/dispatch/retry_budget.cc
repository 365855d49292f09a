#include "dispatch/retry_budget.h"

#include <algorithm>

namespace dlo::dispatch {
namespace {

// Within this a clock that was set back is taken for one that stood still.
constexpr Duration kClockSlack = std::chrono::seconds(1);
// A promise that is kept this late counts as of its time: the rounds of a loop are not exact.
constexpr Duration kLate = std::chrono::seconds(1);
// What is put off must not come back at once.
constexpr Duration kShortestWait = std::chrono::milliseconds(100);

std::int64_t SecondOf(Time time) {
  return std::chrono::floor<std::chrono::seconds>(time).time_since_epoch().count();
}

}  // namespace

Time RetryBudget::MoveTo(Time now) {
  // A wall clock that was set back must not stop retries for hours.
  if (now < last_ - kClockSlack) *this = RetryBudget(percent_, per_second_);
  now = last_ = std::max(now, last_);
  const std::int64_t second = SecondOf(now);
  for (std::int64_t passed = std::min<std::int64_t>(second - second_, kSeconds); passed > 0; --passed) {
    std::int64_t& oldest = first_calls_[static_cast<std::size_t>(second - passed + 1) % kSeconds];
    first_total_ -= oldest;
    oldest = 0;
  }
  second_ = second;
  while (!taken_.empty() && taken_.front() <= now - kWindow) taken_.pop_front();
  // Nobody came for these: their events ended otherwise.
  while (!promised_.empty() && promised_.front() <= now - kWindow) promised_.pop_front();
  return now;
}

std::size_t RetryBudget::Allowed() const {
  const double share = percent_ / 100 * static_cast<double>(first_total_);
  return static_cast<std::size_t>(std::max({share, per_second_ * kSeconds, 1.0}));
}

void RetryBudget::First(Time now) {
  if (off()) return;
  MoveTo(now);
  ++first_calls_[static_cast<std::size_t>(second_) % kSeconds];
  ++first_total_;
}

bool RetryBudget::Take(Time now) {
  if (off()) return true;
  now = MoveTo(now);
  const bool promised = !promised_.empty() && promised_.front() <= now;
  Time at = now;
  if (promised) {  // kept, or given up for a new one
    if (promised_.front() >= now - kLate) at = promised_.front();
    promised_.pop_front();
  }
  // One without a promise does not overtake those that have one.
  if (taken_.size() + (promised ? 0 : promised_.size()) >= Allowed()) return false;
  Count(at);
  return true;
}

void RetryBudget::Force(Time now) {
  if (!off()) Count(MoveTo(now));
}

void RetryBudget::Count(Time at) {
  taken_.push_back(taken_.empty() ? at : std::max(at, taken_.back()));
}

Time RetryBudget::Defer(Time now) {
  now = MoveTo(now);
  const std::size_t allowed = Allowed();
  Time at = now + kShortestWait;
  if (!promised_.empty()) at = std::max(at, promised_.back() + kWindow / static_cast<Duration::rep>(allowed));
  // Of any `allowed` + 1 that follow each other, the last comes a window after the first.
  const std::size_t known = taken_.size() + promised_.size();
  if (known >= allowed) {
    const std::size_t index = known - allowed;
    at = std::max(at, kWindow + (index < taken_.size() ? taken_[index] : promised_[index - taken_.size()]));
  }
  if (at > now + kLongestWait) return now + kLongestWait;
  promised_.push_back(at);
  return at;
}

}  // namespace dlo::dispatch
