#include "store/pace.h"

#include <algorithm>
#include <cmath>

namespace dlo::store {
namespace {

constexpr int kMaxBatch = 10'000;
constexpr int kMaxStaggerMs = 3'600'000;
constexpr int kMaxCanary = 100;
constexpr double kMinRate = 0.01, kMaxRate = 100'000;
constexpr double kBatchesPerSecond = 10;

std::unexpected<Error> Bad(const char* message) {
  return Fail(ErrorKind::invalid, "bad_replay_options", message);
}

}  // namespace

Result<Pace> PaceOf(const ReplayOptions& options) {
  if (options.max < 0) return Bad("max is 0 or more.");
  if (options.canary < 0 || options.canary > kMaxCanary) return Bad("canary is 0 to 100 letters of each group.");
  if (options.stop_percent < 1 || options.stop_percent > 100)
    return Bad("stop_percent is 1 to 100; 100 never stops it.");
  if (options.rate) {
    if (!(*options.rate >= kMinRate && *options.rate <= kMaxRate))
      return Bad("rate is 0.01 to 100,000 events a second.");
    const double batch = std::max(1.0, std::floor(*options.rate / kBatchesPerSecond));
    return Pace{.batch_size = static_cast<int>(batch),
                .stagger = Duration(static_cast<std::int64_t>(std::llround(batch / *options.rate * 1e6)))};
  }
  if (options.batch_size < 1 || options.batch_size > kMaxBatch) return Bad("batch_size is 1 to 10,000.");
  if (options.stagger_ms < 0 || options.stagger_ms > kMaxStaggerMs) return Bad("stagger_ms is 0 to 3,600,000.");
  return Pace{.batch_size = options.batch_size, .stagger = std::chrono::milliseconds(options.stagger_ms)};
}

double EstimateSeconds(std::int64_t count, const Pace& pace) {
  if (count <= 0) return 0;
  const std::int64_t batches = (count + pace.batch_size - 1) / pace.batch_size;
  return static_cast<double>(batches - 1) * std::chrono::duration<double>(pace.stagger).count();
}

}  // namespace dlo::store
