// Calls a C++ handler on a pool of threads of its own.
#pragma once

#include <memory>

#include "dispatch/target.h"

namespace dlo::dispatch {

/// Takes up to twice its concurrency, so that a worker that ends finds its next delivery without waiting for the store.
class InProcessTarget final : public Target {
 public:
  InProcessTarget(const TargetConfig& config, Clock& clock);
  /// Waits for handlers that run, unless abandoned: then their threads end by themselves and their answers go nowhere.
  ~InProcessTarget() override;
  [[nodiscard]] int capacity() const override;
  void Start(Delivery delivery, Done done) override;
  void DropQueued() override;
  void Abandon() override;

 private:
  struct Pool;
  std::shared_ptr<Pool> pool_;
  int concurrency_;
};

}  // namespace dlo::dispatch
