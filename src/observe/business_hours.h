// Is somebody at work, and when will somebody be? Hours are local to a zone of the tz database, so that they stay where
// people live when the clocks change.
#pragma once

#include "dlo/config.h"
#include "dlo/result.h"
#include "dlo/time.h"

namespace dlo::observe {

/// Error invalid, "bad_zone", saying what to do.
[[nodiscard]] Result<void> CheckZone(const std::string& zone);
/// `to` itself is outside. The zone must have passed CheckZone.
[[nodiscard]] bool IsOpen(const BusinessHours& hours, Time now);
/// `now` while open, else when they next begin. A beginning that the clocks jump over is the moment of the jump; one
/// that they repeat is the first of the two.
[[nodiscard]] Time NextOpening(const BusinessHours& hours, Time now);

}  // namespace dlo::observe
