#include "intake/gate.h"

#include "base/log.h"

namespace dlo::intake {
namespace {

bool Over(bool closed, std::int64_t waiting, std::int64_t limit) {
  return waiting >= (closed ? limit - limit / 10 : limit);
}

}  // namespace

Gate::Gate(const Config& config, Metrics& metrics)
    : max_waiting_(config.store.max_waiting), min_free_(config.store.min_free) {
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
                {"do", "senders are told to come back; see what holds up the handler or the disk"}});
  } else {
    log::Info("receipts_accepted_again", {{"limit", what}, {"source", source}});
  }
}

void Gate::Update(const store::Figures& figures) {
  std::int64_t all = 0;
  std::map<std::string, std::int64_t> waiting;
  for (const store::StateCount& count : figures.counts) {
    if (count.state != State::waiting) continue;
    all += count.count;
    waiting[count.source] += count.count;
  }
  Set(full_, Over(full_, all, max_waiting_), "store.max_waiting", "");
  if (figures.free_bytes) {
    Set(disk_low_, *figures.free_bytes < (disk_low_ ? 2 * min_free_ : min_free_), "store.min_free", "");
  }
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
  if (full_.load(std::memory_order_relaxed)) return refuse("backlog", "Too many events wait. Send it again later.");
  if (source->second.closed.load(std::memory_order_relaxed)) {
    return refuse("source_backlog", "Too many events of this source wait. Send it again later.");
  }
  return std::nullopt;
}

}  // namespace dlo::intake
