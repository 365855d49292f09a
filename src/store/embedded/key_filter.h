// "Surely new" for event keys: a growing Bloom filter over key digests. No means no; maybe is decided by the index. One
// thread at a time.
#pragma once

#include <cstdint>
#include <vector>

namespace dlo::store {

class KeyFilter {
 public:
  /// `expected` keys at about 0.1 % false maybes; grows by layers beyond that.
  explicit KeyFilter(std::int64_t expected = 1 << 20);
  /// Adds the digest; true if it may have been there before.
  bool AddAndTest(std::int64_t key_digest);
  [[nodiscard]] std::int64_t memory_bytes() const;

 private:
  struct Layer {
    std::vector<std::uint64_t> blocks;  // one cache line of 512 bits per key
    std::int64_t capacity = 0, used = 0;
  };
  std::vector<Layer> layers_;
};

}  // namespace dlo::store
