#include "observe/alarms.h"

#include <fmt/format.h>

#include "base/log.h"
#include "base/time_text.h"

namespace dlo::observe {
namespace {

constexpr Duration kLookEvery = std::chrono::seconds(1);
constexpr Duration kTestWait = std::chrono::seconds(15);
constexpr Duration kTestLook = std::chrono::milliseconds(50);

std::string Names(const std::vector<AlertConfig>& receivers) {
  std::string names;
  for (const AlertConfig& receiver : receivers) names += (names.empty() ? "" : ", ") + ReceiverName(receiver);
  return names;
}

}  // namespace

Alarms::Alarms(const Config& config, AlarmDeps deps)
    : receivers_(config.alerts),
      deps_(std::move(deps)),
      sender_(receivers_,
              {deps_.store, deps_.http, deps_.clock, deps_.random, deps_.crash_points, deps_.metrics, deps_.ring}) {
  for (const SourceConfig& source : config.sources) {
    if (source.silent_after == Duration(0)) continue;
    Counter& received = deps_.metrics.counter("dlo_received_total", "Deliveries stored, duplicates included",
                                              {{"source", source.name}});
    watched_.push_back({source.name, source.silent_after, &received, received.value(), {}});
  }
}

Result<void> Alarms::Begin(Time now) {
  std::vector<std::string> names;
  for (const AlertConfig& receiver : receivers_) names.push_back(ReceiverName(receiver));
  const Result<std::int64_t> dropped = deps_.store.KeepReceivers(names);
  if (!dropped) return std::unexpected(dropped.error());
  if (*dropped > 0)
    log::Warn("alerts.receiver_gone", {{"dropped", *dropped}, {"why", "not in the configuration any more"}});
  if (!watched_.empty()) {
    const auto receipts = deps_.store.LastReceipts();
    if (!receipts) return std::unexpected(receipts.error());
    for (Watched& watched : watched_) {
      watched.last = now;
      for (const store::LastReceipt& last : *receipts) {
        if (last.source == watched.source || last.source.empty()) watched.last = std::min(now, last.at);
        if (last.source == watched.source) break;
      }
    }
  }
  begun_ = true;
  return {};
}

Result<AlarmFacts> Alarms::Look(Time now, const store::AlarmsNow& alarms) {
  AlarmFacts facts;
  facts.now = now;
  for (Watched& watched : watched_) {
    const std::uint64_t received = watched.received->value();
    if (received != watched.seen) watched.last = now;
    watched.seen = received;
    facts.sources.push_back({watched.source, watched.last, watched.limit});
  }
  if (receivers_.empty()) return facts;
  Result<store::Figures> figures = deps_.store.Read();
  if (!figures) return std::unexpected(figures.error());
  facts.figures = std::move(*figures);
  Result<std::vector<store::OverdueHold>> holds = deps_.store.OverdueHolds(now);
  if (!holds) return std::unexpected(holds.error());
  facts.holds = std::move(*holds);
  facts.disk_level = deps_.disk_level ? deps_.disk_level() : 0;
  facts.probe_failed = alarms.probe_failed;
  return facts;
}

Result<Time> Alarms::RunOnce(Time now) {
  if (!begun_) {
    if (Result<void> begun = Begin(now); !begun) return std::unexpected(begun.error());
  }
  const Result<store::AlarmsNow> alarms = deps_.store.ReadAlarms();
  if (!alarms) return std::unexpected(alarms.error());
  const Result<AlarmFacts> facts = Look(now, *alarms);
  if (!facts) return std::unexpected(facts.error());
  const store::AlarmPass pass = Judge(receivers_, *facts, *alarms);
  if (ChangesAnything(pass)) {
    if (const Result<bool> done = deps_.store.CommitAlarms(pass); !done) return std::unexpected(done.error());
  }
  if (Result<void> sent = sender_.RunOnce(now); !sent) return std::unexpected(sent.error());
  return now + kLookEvery;
}

Result<store::Alert> Alarms::Test(const std::string& receiver, const Actor& actor) {
  const AlertConfig* found = nullptr;
  for (const AlertConfig& one : receivers_) {
    if (ReceiverName(one) == receiver || (receiver.empty() && receivers_.size() == 1)) found = &one;
  }
  if (found == nullptr) {
    return Fail(ErrorKind::not_found, "no_receiver",
                receivers_.empty() ? "No [[alert]] is configured."
                                   : fmt::format("Name the receiver; there are: {}.", Names(receivers_)));
  }
  const Time now = deps_.clock.Now();
  store::Alert alert;
  alert.receiver = ReceiverName(*found);
  alert.rule = "test";
  alert.name = std::to_string(ToMicros(now));
  alert.route = "page";
  alert.status = "test";
  alert.since = alert.created_at = alert.next_at = now;
  alert.what = fmt::format("sent by {} to see whether alerts arrive; nothing is wrong", actor.name);
  alert.alert = AlertId(alert);
  const Result<std::int64_t> id = deps_.store.QueueTestAlert(alert, actor, now);
  if (!id) return std::unexpected(id.error());
  if (deps_.ring) deps_.ring();
  const Duration until = deps_.clock.Monotonic() + kTestWait;
  for (;;) {
    Result<store::Alert> shown = deps_.store.GetAlert(*id);
    if (!shown || shown->attempts > 0) return shown;
    if (deps_.clock.Monotonic() >= until) break;
    deps_.wait(kTestLook);
  }
  return Fail(ErrorKind::unavailable, "no_answer",
              fmt::format("{} did not answer within {}; the test stays in the outbox: dlo alerts list", alert.receiver,
                          FormatDuration(kTestWait)));
}

}  // namespace dlo::observe
