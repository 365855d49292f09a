// Chance as a value passed in.
#pragma once

#include <cstdint>
#include <span>

namespace dlo {

class Random {
 public:
  virtual ~Random() = default;
  virtual std::uint64_t Next() = 0;
  /// In [0, 1).
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
};

/// Good for jitter and tokens of leases; thread-safe.
class RealRandom final : public Random {
 public:
  std::uint64_t Next() override;
};

/// splitmix64: the same seed gives the same run.
class SeededRandom final : public Random {
 public:
  explicit SeededRandom(std::uint64_t seed) : state_(seed) {}
  std::uint64_t Next() override;

 private:
  std::uint64_t state_;
};

/// From the operating system, fit for secrets. Aborts if the system has none.
void FillWithSecretBytes(std::span<unsigned char> out);

}  // namespace dlo
