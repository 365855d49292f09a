#include "env/memory.h"

#include <malloc.h>
#include <unistd.h>

#include <fstream>

namespace dlo {

std::optional<std::uint64_t> ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  std::uint64_t size = 0, resident = 0;  // in pages
  if (!(in >> size >> resident)) return std::nullopt;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

void ReturnFreeMemory() {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace dlo
