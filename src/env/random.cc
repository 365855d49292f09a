#include "env/random.h"

#include <sys/random.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace dlo {
namespace {

std::uint64_t SplitMix64(std::uint64_t& state) {
  state += 0x9E3779B97F4A7C15ULL;
  std::uint64_t z = state;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

std::uint64_t SecretWord() {
  std::uint64_t word = 0;
  FillWithSecretBytes(std::span(reinterpret_cast<unsigned char*>(&word), sizeof word));
  return word;
}

}  // namespace

std::uint64_t RealRandom::Next() {
  // One generator a thread: no lock, and the system is asked once for each.
  thread_local std::uint64_t state = SecretWord();
  return SplitMix64(state);
}

std::uint64_t SeededRandom::Next() {
  return SplitMix64(state_);
}

void FillWithSecretBytes(std::span<unsigned char> out) {
  while (!out.empty()) {
    const ssize_t got = getrandom(out.data(), out.size(), 0);
    if (got < 0) {
      if (errno == EINTR) continue;
      std::perror("dlo: the operating system gives no random bytes (getrandom)");
      std::abort();
    }
    out = out.subspan(static_cast<std::size_t>(got));
  }
}

}  // namespace dlo
