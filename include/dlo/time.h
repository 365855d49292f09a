// Time in this library is UTC with microseconds. Nothing reads the system clock except env/.
#pragma once

#include <chrono>

namespace dlo {

using Duration = std::chrono::microseconds;
using Time = std::chrono::sys_time<Duration>;

}  // namespace dlo
