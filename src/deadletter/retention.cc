#include "deadletter/retention.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>
#include <string_view>

#include "base/log.h"
#include "base/time_text.h"
#include "deadletter/desk.h"

namespace dlo::deadletter {
namespace {

constexpr Duration kLookAgain = std::chrono::minutes(1), kLookAgainSoonest = std::chrono::milliseconds(200);
constexpr Duration kAfterTrouble = std::chrono::seconds(30);
constexpr Duration kLongestRest = std::chrono::milliseconds(100);
constexpr double kMaxDays = 365'000;
constexpr Duration kBusyWait = std::chrono::milliseconds(200);

/// Infinity is unset. Error invalid, "bad_days".
Result<std::optional<Time>> Before(std::optional<double> days, const char* name, Time now) {
  if (!days || std::isinf(*days)) return std::nullopt;
  if (!(*days > 0) || *days > kMaxDays) {
    return Fail(ErrorKind::invalid, "bad_days",
                fmt::format("{} is {}; it must be more than 0 and at most {}, or \"infinity\" for never.", name, *days,
                            kMaxDays));
  }
  return now - Duration(static_cast<Duration::rep>(*days * 86'400e6));
}

boost::json::value Said(std::optional<double> days) {
  return days && std::isfinite(*days) ? boost::json::value(*days) : boost::json::value("infinity");
}

void Add(PruneReport& sum, const PruneReport& more) {
  sum.succeeded += more.succeeded;
  sum.closed += more.closed;
  sum.letters += more.letters;
  sum.segments += more.segments;
  sum.on_hold = std::max(sum.on_hold, more.on_hold);
}

bool Blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

}  // namespace

store::RetentionCutoffs CutoffsAt(const RetentionConfig& config, Time now) {
  const auto before = [&](std::optional<Duration> kept) {
    return kept ? std::optional<Time>(now - *kept) : std::nullopt;
  };
  return {.succeeded = before(config.succeeded), .closed = before(config.closed), .cold = before(config.cold_after)};
}

Duration RestAfter(Duration worked) {
  return std::min(3 * worked, kLongestRest);
}

Time Archivist::RunOnce(Time now) {
  const auto work = store_.ArchiveNext(CutoffsAt(config_, now), now, go_on_, kBusyWait);
  if (!work) {
    const Error& error = work.error();
    if (error.code != "busy" && error.code != "stopping" && error.code != trouble_) {
      trouble_ = error.code;
      log::Error("archive.trouble", {{"code", error.code},
                                     {"message", error.message},
                                     {"then", "nothing is pruned meanwhile; it is tried again every 30 s"}});
    }
    return now + (error.code == "busy" ? kLookAgainSoonest : kAfterTrouble);
  }
  trouble_.clear();
  Tell(*work);
  if (work->stopped) return now + kLookAgain;
  if (work->worked) return now;
  Duration shortest = kLookAgain;
  for (const auto& kept : {config_.succeeded, config_.closed, config_.cold_after}) {
    if (kept) shortest = std::min(shortest, *kept / 4);
  }
  return now + std::max(shortest, kLookAgainSoonest);
}

void Archivist::Tell(const store::ArchiveWork& work) {
  if (!work.worked || (work.report.segments == 0 && work.report.pruned() == 0)) return;
  log::Info("archive.moved",
            {{"segments", work.report.segments}, {"pruned", work.report.pruned()}, {"letters", work.report.letters}});
}

Result<PruneReport> Desk::PruneOlder(const PruneRequest& request, Duration wait, const Actor& actor) {
  if (Blank(actor.name)) {
    return Fail(ErrorKind::invalid, "no_actor", "An act needs the name of who acts, for the audit log.");
  }
  if (wait < Duration(0)) return Fail(ErrorKind::invalid, "bad_wait", "wait must not be negative.");
  const Time now = deps_.clock.Now();
  const auto cold = Before(request.dead_older_than_days, "dead_older_than_days", now);
  if (!cold) return std::unexpected(cold.error());
  const auto succeeded = Before(request.succeeded_older_than_days, "succeeded_older_than_days", now);
  if (!succeeded) return std::unexpected(succeeded.error());
  PruneReport sum;
  if (!*cold && !*succeeded) return sum;  // nothing was done, so nothing is recorded

  boost::json::object details{{"dead_older_than_days", Said(request.dead_older_than_days)},
                              {"succeeded_older_than_days", Said(request.succeeded_older_than_days)}};
  auto audited = deps_.store.AuditRetention("prune", boost::json::serialize(details), actor, now);
  if (!audited) return std::unexpected(audited.error());
  store::RetentionCutoffs cutoffs{.succeeded = *succeeded, .cold = *cold, .now = true};
  if (deps_.keep_closed) cutoffs.closed = now - *deps_.keep_closed;
  const Duration end = deps_.clock.Monotonic() + wait;
  const auto go_on = [&](Duration worked) {
    return !stopping_.load() && deps_.clock.Monotonic() < end && (!deps_.go_on || deps_.go_on(worked));
  };
  for (bool more = true; more;) {
    const Duration left = end - deps_.clock.Monotonic();
    auto work = deps_.store.ArchiveNext(cutoffs, now, go_on, std::max(left, Duration(0)));
    if (!work) {
      if (work.error().code != "busy") return std::unexpected(work.error());
      sum.finished = false;
      break;
    }
    // A segment that has its line in the manifest is finished by the archive's own thread.
    Add(sum, work->report);
    sum.finished = !work->stopped;
    more = work->worked && !work->stopped;
  }
  details["pruned"] = sum.pruned();
  details["letters"] = sum.letters;
  details["segments"] = sum.segments;
  details["on_hold"] = sum.on_hold;
  details["finished"] = sum.finished;
  audited = deps_.store.AuditRetention("prune_end", boost::json::serialize(details), actor, deps_.clock.Now());
  if (!audited) return std::unexpected(audited.error());
  return sum;
}

Result<std::vector<LegalHold>> Desk::LegalHolds() {
  return deps_.store.LegalHolds();
}

Result<LegalHold> Desk::AddLegalHold(const Filter& filter, const Actor& actor) {
  return deps_.store.AddLegalHold(filter, actor, deps_.clock.Now());
}

Result<LegalHold> Desk::EndLegalHold(std::int64_t id, const Actor& actor) {
  return deps_.store.EndLegalHold(id, actor, deps_.clock.Now());
}

}  // namespace dlo::deadletter
