// What a thread is called in ps, top, perf and a core dump.
#pragma once

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace dlo {

/// Names the calling thread; at most 15 characters.
inline void NameThread(const char* name) {
  (void)pthread_setname_np(pthread_self(), name);
}

/// The calling thread lets the others go first from now on.
inline void StepBack() {
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()), 10);
}

}  // namespace dlo
