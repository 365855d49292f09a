#include "observe/figures.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <utility>

#include "dlo/config.h"

namespace dlo::observe {
namespace {

using Samples = std::vector<Sample>;

Samples One(double value) {
  return {{.labels = {}, .value = value}};
}

double InState(const store::Figures& figures, State state) {
  double sum = 0;
  for (const store::StateCount& c : figures.counts) {
    if (c.state == state) sum += static_cast<double>(c.count);
  }
  return sum;
}

Samples Depth(const store::Figures& figures, Time) {
  Samples samples;
  for (const store::StateCount& c : figures.counts) {
    if ((c.state != State::dead && c.state != State::held) || c.source == kProbeName) continue;
    samples.push_back(
        {{{"source", c.source}, {"state", std::string(Name(c.state))}, {"class", std::string(Name(c.failure_class))}},
         static_cast<double>(c.count)});
  }
  return samples;
}

Samples Oldest(const store::Figures& figures, Time now) {
  Samples samples;
  for (const store::SourceAge& age : figures.oldest) {
    if (age.source == kProbeName) continue;
    const std::chrono::duration<double> seconds = now - age.oldest_unresolved;
    samples.push_back({{{"source", age.source}}, std::max(0.0, seconds.count())});
  }
  return samples;
}

Samples Overdue(const store::Figures& figures, Time) {
  Samples samples;
  for (const auto& [source, count] : figures.holds_overdue) {
    samples.push_back({{{"source", source}}, static_cast<double>(count)});
  }
  return samples;
}

struct Gauge {
  const char* name;
  const char* help;
  Samples (*read)(const store::Figures&, Time now);
};

constexpr Gauge kGauges[] = {
    {"dlo_dead_letters", "Letters in state dead or held", Depth},
    {"dlo_oldest_unresolved_seconds", "Age of the oldest letter in state dead", Oldest},
    {"dlo_waiting", "Events due for an attempt, now or later",
     [](const store::Figures& f, Time) { return One(InState(f, State::waiting)); }},
    {"dlo_running", "Events leased to a worker",
     [](const store::Figures& f, Time) { return One(InState(f, State::running)); }},
    {"dlo_accounting_difference", "Events received but in no state, or invented; must be 0",
     [](const store::Figures& f, Time) { return One(static_cast<double>(f.accounting_difference)); }},
    {"dlo_audit_head_seq", "Number of the newest audit record",
     [](const store::Figures& f, Time) { return One(static_cast<double>(f.audit_head)); }},
    {"dlo_store_free_bytes", "Free space on the store's file system",
     [](const store::Figures& f, Time) { return One(static_cast<double>(f.free_bytes.value_or(0))); }},
    {"dlo_journal_receipts", "Receipts in the journal",
     [](const store::Figures& f, Time) { return One(static_cast<double>(f.receipts)); }},
    {"dlo_index_lag", "Receipts in the journal that are not yet in the index",
     [](const store::Figures& f, Time) { return One(static_cast<double>(f.receipts - f.indexed)); }},
    {"dlo_holds_overdue", "Held letters whose date has passed, or whose handler version is out", Overdue},
};

}  // namespace

struct Scrape::Snapshot {
  std::mutex mutex;
  std::optional<store::Figures> figures;
  Time at{};
};

Scrape::Scrape(Metrics& metrics, store::FigureSource& store, Clock& clock)
    : metrics_(metrics), store_(store), clock_(clock), snapshot_(std::make_shared<Snapshot>()) {
  for (const Gauge& gauge : kGauges) {
    metrics_.gauge(gauge.name, gauge.help, [snapshot = snapshot_, read = gauge.read]() -> Samples {
      const std::lock_guard lock(snapshot->mutex);
      return snapshot->figures ? read(*snapshot->figures, snapshot->at) : Samples();
    });
  }
  metrics_.gauge("dlo_store_readable", "1 while the store's figures can be read", [snapshot = snapshot_] {
    const std::lock_guard lock(snapshot->mutex);
    return One(snapshot->figures ? 1 : 0);
  });
}

std::string Scrape::Render() {
  auto figures = store_.Read();
  {
    const std::lock_guard lock(snapshot_->mutex);
    snapshot_->at = clock_.Now();
    if (figures) {
      snapshot_->figures = std::move(*figures);
    } else {
      snapshot_->figures.reset();
    }
  }
  return metrics_.Render();
}

}  // namespace dlo::observe
