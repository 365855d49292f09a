#include "dispatch/breaker.h"

#include <algorithm>

namespace dlo::dispatch {

bool IsTargetFailure(const Outcome& outcome) {
  if (outcome.kind != OutcomeKind::retryable) return false;
  const int status = outcome.http_status;
  return status == 0 || status >= 500 || status == 429 || status == 408 || status == 425;
}

int Breaker::Permits(Time now) const {
  if (state_ == State::closed) return kUnlimited;
  if (state_ == State::half_open) return 0;
  // A wall clock that was set back must not keep it open for hours.
  return now >= retry_at_ || now < opened_at_ ? 1 : 0;
}

bool Breaker::Claimed(Time now) {
  if (state_ != State::open || Permits(now) == 0) return false;
  state_ = State::half_open;
  return true;
}

bool Breaker::Ended(bool probe, bool target_failed, Time now, double unit) {
  if (state_ == State::half_open && probe) {
    if (target_failed) {
      Open(now, unit);
      return true;
    }
    *this = Breaker(limits_);
    return false;
  }
  if (state_ != State::closed) return false;

  in_a_row_ = target_failed ? in_a_row_ + 1 : 0;
  failed_[next_] = target_failed;
  next_ = (next_ + 1) % kWindow;
  seen_ = std::min(seen_ + 1, kWindow);
  const auto failures = static_cast<std::size_t>(std::ranges::count(failed_, true));
  const bool too_many = seen_ == kWindow && failures * 100 >= kWindow * static_cast<std::size_t>(limits_.percent);
  if (in_a_row_ < limits_.in_a_row && !too_many) return false;
  Open(now, unit);
  return true;
}

void Breaker::NotAsked(bool probe) {
  // retry_at_ has passed, so the next claim is a probe again.
  if (probe && state_ == State::half_open) state_ = State::open;
}

void Breaker::Open(Time now, double unit) {
  state_ = State::open;
  in_a_row_ = 0;
  failed_.fill(false);
  seen_ = 0;
  next_ = 0;
  const Duration base = std::min(limits_.first_open * (1 << std::min(openings_, 10)), limits_.longest_open);
  ++openings_;
  opened_at_ = now;
  retry_at_ = now + Duration(static_cast<Duration::rep>(static_cast<double>(base.count()) * (0.5 + unit)));
}

}  // namespace dlo::dispatch
