// Receipts kept in memory from their commit to the end of their dispatch, so that a claim reads no disk. Bounded by
// bytes: when it is full new ones are not kept, since the oldest are claimed first. Index thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <unordered_map>

#include "dlo/event.h"

namespace dlo::store {

/// What a receipt costs in memory, near enough for bounds.
[[nodiscard]] inline std::size_t MemoryOf(const Receipt& receipt) {
  std::size_t bytes = sizeof(Receipt) + receipt.body.capacity() + receipt.key.size() + receipt.subject.size();
  for (const Header& header : receipt.headers) bytes += sizeof(Header) + header.name.size() + header.value.size();
  return bytes;
}

class HotCache {
 public:
  explicit HotCache(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  void Keep(std::shared_ptr<const Receipt> receipt) {
    const std::size_t bytes = MemoryOf(*receipt);
    if (bytes_ + bytes > max_bytes_) return;
    const EventId id = receipt->id;
    if (kept_.emplace(id, std::move(receipt)).second) bytes_ += bytes;
  }
  /// nullptr when it is not kept.
  [[nodiscard]] std::shared_ptr<const Receipt> Get(EventId id) const {
    const auto found = kept_.find(id);
    return found == kept_.end() ? nullptr : found->second;
  }
  void Release(EventId id) {
    const auto found = kept_.find(id);
    if (found == kept_.end()) return;
    bytes_ -= MemoryOf(*found->second);
    kept_.erase(found);
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t max_bytes_;
  std::size_t bytes_ = 0;
  std::unordered_map<EventId, std::shared_ptr<const Receipt>> kept_;
};

}  // namespace dlo::store
