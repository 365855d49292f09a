#include "store/embedded/key_filter.h"

#include <algorithm>
#include <array>

namespace dlo::store {
namespace {

// A split block: eight words, one bit of each per key, so a key touches 64 bytes. At 20 bits a key that answers "maybe"
// to less than 0.1 % of new keys when full (measured by the test): each maybe is a sender who waits for the index. Each
// later layer holds twice as many keys at two more bits a key, about half the error.
constexpr std::size_t kWords = 8;
constexpr std::int64_t kBlockBits = 512;
constexpr std::int64_t kBitsPerKey = 20;
constexpr std::int64_t kMoreBitsPerLayer = 2;

std::uint64_t Mix(std::uint64_t x) {
  x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDULL;
  x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ULL;
  return x ^ (x >> 33);
}

struct Probe {
  std::uint64_t block_hash;
  std::array<std::uint64_t, kWords> bits;
};

// Mixed once more even though digests are even already: a caller may hand over small numbers.
Probe ProbeOf(std::int64_t digest) {
  Probe probe{};
  probe.block_hash = Mix(static_cast<std::uint64_t>(digest));
  std::uint64_t rest = Mix(probe.block_hash + 0x9E3779B97F4A7C15ULL);
  for (auto& bit : probe.bits) {
    bit = std::uint64_t{1} << (rest & 63);
    rest >>= 6;
  }
  return probe;
}

std::size_t FirstWord(const Probe& probe, std::size_t words) {
  const std::uint64_t blocks = words / kWords;
  const auto product = static_cast<unsigned __int128>(probe.block_hash) * blocks;
  return static_cast<std::size_t>(product >> 64) * kWords;
}

}  // namespace

KeyFilter::KeyFilter(std::int64_t expected) {
  const std::int64_t capacity = std::max<std::int64_t>(expected, 64);
  const std::int64_t blocks = (capacity * kBitsPerKey + kBlockBits - 1) / kBlockBits;
  layers_.push_back({std::vector<std::uint64_t>(static_cast<std::size_t>(blocks) * kWords), capacity, 0});
}

bool KeyFilter::AddAndTest(std::int64_t key_digest) {
  const Probe probe = ProbeOf(key_digest);
  // A layer that answers "maybe" has all bits of this key already: nothing to add.
  for (const Layer& layer : layers_) {
    const std::uint64_t* words = layer.blocks.data() + FirstWord(probe, layer.blocks.size());
    bool all = true;
    for (std::size_t i = 0; i < kWords; ++i) all = all && (words[i] & probe.bits[i]) != 0;
    if (all) return true;
  }
  if (layers_.back().used >= layers_.back().capacity) {
    const std::int64_t capacity = layers_.back().capacity * 2;
    const std::int64_t bits = kBitsPerKey + kMoreBitsPerLayer * static_cast<std::int64_t>(layers_.size());
    const std::int64_t blocks = (capacity * bits + kBlockBits - 1) / kBlockBits;
    layers_.push_back({std::vector<std::uint64_t>(static_cast<std::size_t>(blocks) * kWords), capacity, 0});
  }
  Layer& newest = layers_.back();
  std::uint64_t* words = newest.blocks.data() + FirstWord(probe, newest.blocks.size());
  for (std::size_t i = 0; i < kWords; ++i) words[i] |= probe.bits[i];
  ++newest.used;
  return false;
}

std::int64_t KeyFilter::memory_bytes() const {
  std::int64_t bytes = 0;
  for (const Layer& layer : layers_) bytes += static_cast<std::int64_t>(layer.blocks.size() * sizeof(std::uint64_t));
  return bytes;
}

}  // namespace dlo::store
