// How the process's allocator behaves; linked into programs, never into the library, whose users choose their own.
//
// jemalloc beside glibc's malloc: a tenth faster in all that was measured, and what one thread frees another can use
// again, so that the process stays at a third of the memory (docs/performance.md). Four arenas serve the few threads
// that work; freed memory goes back to the system after a second.
extern "C" {
extern const char* malloc_conf;
const char* malloc_conf = "narenas:4,background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0";
}
