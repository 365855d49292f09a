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

// jemalloc's, where the program is linked with it.
extern "C" __attribute__((weak)) int mallctl(const char* name, void* old, std::size_t* old_size, void* fresh,
                                             std::size_t fresh_size);

void ReturnFreeMemory() {
  if (mallctl != nullptr) {
    mallctl("arena.4096.purge", nullptr, nullptr, nullptr, 0);  // 4096: of all arenas
    return;
  }
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

}  // namespace dlo
