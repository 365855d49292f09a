// How fast a bulk replay hands letters to the dispatcher.
#pragma once

#include <cstdint>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

struct Pace {
  int batch_size = 100;
  Duration stagger{};  // between two batches
};

/// From batch and stagger, or from a rate: about ten batches a second. Error invalid, "bad_replay_options", naming the
/// option and its bounds.
Result<Pace> PaceOf(const ReplayOptions& options);
/// Until the last batch is handed over; the first one goes at once. How long handlers then take is not in it.
[[nodiscard]] double EstimateSeconds(std::int64_t count, const Pace& pace);

}  // namespace dlo::store
