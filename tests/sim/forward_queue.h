// Hands a queue on; what stands between the parts in a test overrides what it changes.
#pragma once

#include <utility>
#include <vector>

#include "store/queue.h"

namespace dlo::sim {

class ForwardQueue : public store::Queue {
 public:
  explicit ForwardQueue(store::Queue& queue) : queue_(queue) {}
  Result<store::ExchangeResult> Exchange(const store::ExchangeRequest& request) override {
    return queue_.Exchange(request);
  }
  Result<std::vector<store::LeaseRef>> Renew(std::span<const store::LeaseRef> leases, Time until) override {
    return queue_.Renew(leases, until);
  }
  Result<std::vector<RunContext>> ExpiredLeases(Time now, int max) override { return queue_.ExpiredLeases(now, max); }
  Result<int> HandBack(std::span<const store::LeaseRef> leases, Time now) override {
    return queue_.HandBack(leases, now);
  }
  Result<int> ExpireAllLeases(Time now) override { return queue_.ExpireAllLeases(now); }
  void OnWork(std::function<void()> ring) override { queue_.OnWork(std::move(ring)); }

 protected:
  store::Queue& queue() { return queue_; }

 private:
  store::Queue& queue_;
};

}  // namespace dlo::sim
