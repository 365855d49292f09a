// The store's numbers as metrics: depth, age, and the accounting that must come out even. docs/operating.md says which
// of them to alert on.
#pragma once

#include <memory>
#include <string>

#include "base/metrics.h"
#include "env/clock.h"
#include "store/figures.h"

namespace dlo::observe {

/// Registers the gauges with `metrics` and renders everything. All three outlive it.
class Scrape {
 public:
  Scrape(Metrics& metrics, store::FigureSource& store, Clock& clock);

  /// Reads the store once, before the metrics' lock is taken. When it cannot be read, its gauges are absent rather than
  /// stale, and dlo_store_readable is 0. Thread-safe; may block on the store.
  [[nodiscard]] std::string Render();

 private:
  struct Snapshot;
  Metrics& metrics_;
  store::FigureSource& store_;
  Clock& clock_;
  std::shared_ptr<Snapshot> snapshot_;
};

}  // namespace dlo::observe
