// What a thread is called in ps, top, perf and a core dump.
#pragma once

#include <pthread.h>

namespace dlo {

/// Names the calling thread; at most 15 characters.
inline void NameThread(const char* name) {
  (void)pthread_setname_np(pthread_self(), name);
}

}  // namespace dlo
