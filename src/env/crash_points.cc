#include "env/crash_points.h"

#include <unistd.h>

#include <charconv>
#include <csignal>

namespace dlo {

CrashAt::CrashAt(std::string_view spec) {
  if (spec.empty()) return;
  const std::size_t colon = spec.rfind(':');
  name_ = spec.substr(0, colon);
  long count = 1;
  if (colon != std::string_view::npos) {
    const std::string_view number = spec.substr(colon + 1);
    std::from_chars(number.data(), number.data() + number.size(), count);
  }
  countdown_ = count;
}

void CrashAt::At(std::string_view name) {
  if (name != name_) return;
  // Two threads may pass one point; the one that takes the last count dies, and the process with it.
  if (countdown_.fetch_sub(1) == 1) kill(getpid(), SIGKILL);
}

}  // namespace dlo
