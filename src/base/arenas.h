// The allocator's arenas. glibc makes up to eight for each core, and what one thread frees in its own stays there: with
// handler threads and I/O threads that is a third of the memory in use (docs/performance.md). Called first in main; a
// library leaves the choice to its program.
#pragma once

#include <malloc.h>

namespace dlo {

inline void LimitArenas() {
  constexpr int kArenas = 2;
  mallopt(M_ARENA_MAX, kArenas);
}

}  // namespace dlo
