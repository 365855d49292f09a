#include "base/metrics.h"

#include <fmt/format.h>

#include <algorithm>

namespace dlo {
namespace {

std::string EscapeLabel(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

std::string LabelText(const Labels& labels) {
  if (labels.empty()) return {};
  std::string out = "{";
  for (const auto& [name, value] : labels) {
    if (out.size() > 1) out += ',';
    out += name + "=\"" + EscapeLabel(value) + '"';
  }
  return out + "}";
}

std::string Number(double value) {
  if (value == static_cast<double>(static_cast<std::int64_t>(value)))
    return fmt::format("{}", static_cast<std::int64_t>(value));
  return fmt::format("{:.6f}", value);
}

}  // namespace

void Histogram::Observe(double seconds) {
  const auto* bucket = std::lower_bound(kBounds.begin(), kBounds.end(), seconds);
  buckets_[static_cast<std::size_t>(bucket - kBounds.begin())].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(static_cast<std::uint64_t>(std::max(0.0, seconds) * 1e9), std::memory_order_relaxed);
}

Counter& Metrics::counter(const std::string& name, const std::string& help, Labels labels) {
  const std::lock_guard lock(mutex_);
  Family& family = families_[name];
  family.help = help;
  family.type = "counter";
  auto& slot = family.counters[std::move(labels)];
  if (!slot) slot = std::make_unique<Counter>();
  return *slot;
}

Histogram& Metrics::histogram(const std::string& name, const std::string& help, Labels labels) {
  const std::lock_guard lock(mutex_);
  Family& family = families_[name];
  family.help = help;
  family.type = "histogram";
  auto& slot = family.histograms[std::move(labels)];
  if (!slot) slot = std::make_unique<Histogram>();
  return *slot;
}

void Metrics::gauge(const std::string& name, const std::string& help, std::function<std::vector<Sample>()> read) {
  const std::lock_guard lock(mutex_);
  Family& family = families_[name];
  family.help = help;
  family.type = "gauge";
  family.read = std::move(read);
}

std::string Metrics::Render() const {
  const std::lock_guard lock(mutex_);
  std::string out;
  for (const auto& [name, family] : families_) {
    out += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, family.help, name, family.type);
    for (const auto& [labels, counter] : family.counters) {
      out += fmt::format("{}{} {}\n", name, LabelText(labels), counter->value());
    }
    if (family.read) {
      for (const Sample& sample : family.read()) {
        out += fmt::format("{}{} {}\n", name, LabelText(sample.labels), Number(sample.value));
      }
    }
    for (const auto& [labels, histogram] : family.histograms) {
      std::uint64_t total = 0;
      for (std::size_t i = 0; i < histogram->buckets_.size(); ++i) {
        total += histogram->buckets_[i].load(std::memory_order_relaxed);
        Labels with_bound = labels;
        with_bound.emplace_back("le",
                                i < Histogram::kBounds.size() ? fmt::format("{}", Histogram::kBounds[i]) : "+Inf");
        out += fmt::format("{}_bucket{} {}\n", name, LabelText(std::move(with_bound)), total);
      }
      const double sum = static_cast<double>(histogram->nanoseconds_.load(std::memory_order_relaxed)) / 1e9;
      out +=
          fmt::format("{}_sum{} {:.6f}\n{}_count{} {}\n", name, LabelText(labels), sum, name, LabelText(labels), total);
    }
  }
  return out;
}

}  // namespace dlo
