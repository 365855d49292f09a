#include "env/descriptors.h"

#include <sys/resource.h>

#include <algorithm>

namespace dlo {

std::size_t RaiseDescriptorLimit(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;  // unknown: as if there were enough
  if (limit.rlim_cur < wanted) {
    const rlimit raised{.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max), .rlim_max = limit.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0) limit = raised;
  }
  return limit.rlim_cur;
}

}  // namespace dlo
