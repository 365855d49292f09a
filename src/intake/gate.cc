#include "intake/gate.h"

#include <algorithm>

#include "base/log.h"

namespace dlo::intake {
namespace {

constexpr double kOpenShare = 1.6;  // 8 % of the disk for 5 %
constexpr std::uint64_t kOpenBytes = 2;
constexpr double kWarnedUntil = 1;  // a point above, so that a level at the mark is not told each second

template <typename Int>
bool Over(bool closed, Int value, Int limit) {
  return value >= (closed ? limit - limit / 10 : limit);
}

std::uint64_t Share(double percent, std::uint64_t total) {
  return static_cast<std::uint64_t>(percent / 100 * static_cast<double>(total));
}

}  // namespace

Gate::Gate(const Config& config, Metrics& metrics)
    : max_waiting_(config.store.max_waiting),
      min_free_(config.store.min_free),
      max_memory_(config.server.max_memory),
      min_free_percent_(config.store.min_free_percent),
      warn_free_percent_(config.store.warn_free_percent) {
  metrics.gauge(
      "dlo_disk_low", "0 enough is free, 1 less than warn_free_percent, 2 receipts are refused",
      [disk = disk_] { return std::vector<Sample>{{{}, static_cast<double>(disk->load(std::memory_order_relaxed))}}; });
  for (const SourceConfig& source : config.sources) {
    Source& made = sources_[source.name];
    made.limit = source.max_waiting;
    made.refused = &metrics.counter("dlo_refused_total", "Deliveries that were told to come back: a limit was met",
                                    {{"source", source.name}});
  }
}

void Gate::Set(std::atomic<bool>& closed, bool value, const char* what, const std::string& source) {
  if (closed.exchange(value) == value) return;
  if (value) {
    log::Error("receipts_refused",
               {{"limit", what},
                {"source", source},
                {"do", "senders are told to come back; see what holds up the handler, the disk or the memory"}});
  } else {
    log::Info("receipts_accepted_again", {{"limit", what}, {"source", source}});
  }
}

bool Gate::MemoryOver(std::uint64_t resident_bytes) const {
  return max_memory_ > 0 && Over(memory_high_.load(), resident_bytes, max_memory_);
}

void Gate::LookAtDisk(std::uint64_t free, std::optional<std::uint64_t> total) {
  std::uint64_t need = disk_low_ ? kOpenBytes * min_free_ : min_free_;
  if (total) need = std::max(need, Share(min_free_percent_ * (disk_low_ ? kOpenShare : 1), *total));
  Set(disk_low_, free < need, "store.min_free", "");
  const bool warn = total && free < Share(warn_free_percent_ + (disk_warned_ ? kWarnedUntil : 0), *total);
  if (warn && !disk_warned_) {
    log::Warn("disk_filling", {{"free_bytes", free},
                               {"of_bytes", *total},
                               {"limit", "store.warn_free_percent"},
                               {"do", "make room, or give it a larger disk: receipts are refused at store.min_free"}});
  }
  disk_warned_ = warn;
  *disk_ = disk_low_ ? Disk::low : warn ? Disk::warned : Disk::enough;
}

void Gate::Update(const store::Figures& figures, const Machine& machine) {
  std::int64_t all = 0;
  std::map<std::string, std::int64_t> waiting;
  for (const store::StateCount& count : figures.counts) {
    if (count.state != State::waiting) continue;
    all += count.count;
    waiting[count.source] += count.count;
  }
  Set(full_, Over(full_, all, max_waiting_), "store.max_waiting", "");
  if (figures.free_bytes) LookAtDisk(*figures.free_bytes, machine.disk_bytes);
  if (machine.resident_bytes) Set(memory_high_, MemoryOver(*machine.resident_bytes), "server.max_memory", "");
  for (auto& [name, source] : sources_) {
    Set(source.closed, Over(source.closed, waiting[name], source.limit), "source.max_waiting", name);
  }
}

std::optional<Error> Gate::Refusal(const std::string& name) const {
  const auto source = sources_.find(name);
  if (source == sources_.end()) return std::nullopt;
  const auto refuse = [&](const char* code, const char* why) {
    source->second.refused->Add();
    return Error{ErrorKind::unavailable, code, why};
  };
  if (disk_low_.load(std::memory_order_relaxed))
    return refuse("disk_low", "The disk is nearly full. Send it again later.");
  if (memory_high_.load(std::memory_order_relaxed))
    return refuse("memory_high", "The server is short of memory. Send it again later.");
  if (full_.load(std::memory_order_relaxed)) return refuse("backlog", "Too many events wait. Send it again later.");
  if (source->second.closed.load(std::memory_order_relaxed)) {
    return refuse("source_backlog", "Too many events of this source wait. Send it again later.");
  }
  return std::nullopt;
}

}  // namespace dlo::intake
