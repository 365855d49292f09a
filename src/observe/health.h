// Is the process alive, and may work be sent to it?
#pragma once

#include <atomic>
#include <string>

#include "store/figures.h"

namespace dlo::observe {

class Health {
 public:
  explicit Health(store::FigureSource& store) : store_(store) {}

  /// From now on not ready: a balancer stops sending before the listener closes.
  void SetDraining() { draining_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool draining() const { return draining_.load(std::memory_order_relaxed); }

  struct Report {
    bool ready = false;
    std::string json;  // {"status":"ready","checks":{"store":"ok","draining":false}}
  };
  /// May ask the store; not for I/O threads.
  [[nodiscard]] Report Ready() const;

 private:
  store::FigureSource& store_;
  std::atomic<bool> draining_{false};
};

}  // namespace dlo::observe
