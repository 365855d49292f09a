// Counters, gauges and histograms in Prometheus text form. Getting a metric takes a lock; keep the reference and use it
// without one.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace dlo {

using Labels = std::vector<std::pair<std::string, std::string>>;

class Counter {
 public:
  void Add(std::uint64_t n = 1) { value_.fetch_add(n, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// Seconds, in buckets from 100 us to 60 s.
class Histogram {
 public:
  static constexpr std::array<double, 14> kBounds = {0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                                     0.05,   0.1,    0.25,  0.5,    1,     5,    30};
  void Observe(double seconds);

 private:
  friend class Metrics;
  std::array<std::atomic<std::uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<std::uint64_t> nanoseconds_{0};
};

struct Sample {
  Labels labels;
  double value = 0;
};

class Metrics {
 public:
  Counter& counter(const std::string& name, const std::string& help, Labels labels = {});
  Histogram& histogram(const std::string& name, const std::string& help, Labels labels = {});
  /// `read` is called at each scrape.
  void gauge(const std::string& name, const std::string& help, std::function<std::vector<Sample>()> read);
  [[nodiscard]] std::string Render() const;

 private:
  struct Family {
    std::string help, type;
    std::map<Labels, std::unique_ptr<Counter>> counters;
    std::map<Labels, std::unique_ptr<Histogram>> histograms;
    std::function<std::vector<Sample>()> read;
  };
  mutable std::mutex mutex_;
  std::map<std::string, Family> families_;
};

}  // namespace dlo
