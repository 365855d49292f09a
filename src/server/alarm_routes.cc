// Alarms: what was told to whom, a test of a receiver, a probe of the dead-letter path, and what the letters look like.
#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>

#include "base/time_text.h"
#include "deadletter/diagnosis.h"
#include "observe/alarms.h"
#include "observe/alert_formats.h"
#include "server/routes.h"
#include "server/utf8.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

json::object ViewAlert(const store::Alert& alert) {
  return {{"id", alert.id},
          {"alert", alert.alert},
          {"receiver", alert.receiver},
          {"rule", alert.rule},
          {"name", ToUtf8(alert.name)},
          {"source", alert.source},
          {"status", alert.status},
          {"severity", observe::Severity(alert)},
          {"summary", ToUtf8(observe::Summary(alert))},
          {"event", alert.sample},
          {"since", FormatTime(alert.since)},
          {"created_at", FormatTime(alert.created_at)},
          {"attempts", alert.attempts},
          {"sent_at", alert.sent_at ? json::value(FormatTime(*alert.sent_at)) : json::value(nullptr)},
          {"next_at", alert.sent_at ? json::value(nullptr) : json::value(FormatTime(alert.next_at))},
          {"answer", ToUtf8(alert.answer)}};
}

Result<Response> ListAlerts(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto before = call.query.Number("cursor", 0, 1, INT64_MAX);
  if (!before) return std::unexpected(before.error());
  const auto pending = call.query.Flag("pending");
  if (!pending) return std::unexpected(pending.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto alerts = context.deps.store.Alerts(*pending, *before, static_cast<int>(*limit));
  if (!alerts) return std::unexpected(alerts.error());
  json::array items;
  for (const store::Alert& alert : *alerts) items.push_back(ViewAlert(alert));
  std::optional<std::string> next;
  if (std::ssize(*alerts) == *limit) next = std::to_string(alerts->back().id);
  return PageOf(std::move(items), next);
}

Result<Response> TestAlert(Context& context, Call& call) {
  const std::string receiver = call.body.Text("receiver");
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  if (context.deps.alarms == nullptr) return Fail(ErrorKind::not_found, "no_receiver", "No [[alert]] is configured.");
  const auto sent = context.deps.alarms->Test(receiver, call.actor);
  if (!sent) return std::unexpected(sent.error());
  json::object answer = ViewAlert(*sent);
  answer["taken"] = observe::Taken(*sent);
  return Json(200, answer);
}

json::value Millis(Duration length) {
  return std::chrono::duration<double, std::milli>(length).count();
}

Result<Response> RunProbe(Context& context, Call& call) {
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  if (!context.deps.probe) return Fail(ErrorKind::not_found, "no_probe", "This office has no probe.");
  const auto report = context.deps.probe(call.actor);
  if (!report) return std::unexpected(report.error());
  return Json(200, {{"ok", report->failed.empty()},
                    {"failed", report->failed.empty() ? json::value(nullptr) : json::value(ToUtf8(report->failed))},
                    {"event", report->id},
                    {"receipt_ms", Millis(report->receipt)},
                    {"dispatch_ms", Millis(report->dispatch)},
                    {"dead_ms", Millis(report->dead)},
                    {"resolve_ms", Millis(report->resolve)},
                    {"left_over", report->left_over}});
}

json::array ViewCounted(const std::vector<std::pair<std::string, std::int64_t>>& counted, const char* name) {
  json::array out;
  for (const auto& [word, n] : counted) out.push_back(json::object{{name, ToUtf8(word)}, {"letters", n}});
  return out;
}

json::array Texts(const std::vector<std::string>& texts) {
  json::array out;
  for (const std::string& text : texts) out.push_back(json::value(ToUtf8(text)));
  return out;
}

json::object ViewFinding(const deadletter::Finding& finding) {
  const deadletter::Evidence& e = finding.evidence;
  const auto when = [](const std::optional<Time>& t) { return t ? json::value(FormatTime(*t)) : json::value(nullptr); };
  json::object evidence = {{"letters", e.letters},
                           {"first_seen", when(e.first_seen)},
                           {"last_seen", when(e.last_seen)},
                           {"one_message", e.one_message},
                           {"fingerprint", e.fingerprint},
                           {"message", ToUtf8(e.message)},
                           {"sample_id", e.sample},
                           {"kinds", ViewCounted(e.kinds, "kind")},
                           {"kinds_in_all", e.kinds_in_all},
                           {"accounts", ViewCounted(e.accounts, "account")},
                           {"accounts_in_all", e.accounts_in_all},
                           {"handler_versions", Texts(e.versions)},
                           {"handler_versions_before", Texts(e.versions_before)},
                           {"breaker_open", e.breaker_open},
                           {"curve", json::array(e.curve.begin(), e.curve.end())},
                           {"curve_part_seconds", std::chrono::duration<double>(e.part).count()}};
  return {{"shape", deadletter::Name(finding.shape)},
          {"source", finding.source},
          {"says", ToUtf8(finding.says)},
          {"next", ToUtf8(finding.next)},
          {"evidence", std::move(evidence)}};
}

Result<Response> Diagnose(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  std::set<std::string> open;
  const auto breakers = context.deps.breakers ? context.deps.breakers() : std::vector<dispatch::BreakerView>();
  for (const SourceConfig& source : context.deps.sources) {
    for (const dispatch::BreakerView& breaker : breakers) {
      if (breaker.target == source.target && breaker.state != "closed") open.insert(source.name);
    }
  }
  const auto report = deadletter::DiagnoseStore(context.deps.store, std::move(open), context.deps.clock.Now());
  if (!report) return std::unexpected(report.error());
  json::array findings;
  for (const deadletter::Finding& finding : report->findings) findings.push_back(ViewFinding(finding));
  return Json(200, {{"letters", report->looked_at},
                    {"capped", report->capped},
                    {"window_seconds", std::chrono::duration_cast<std::chrono::seconds>(deadletter::kWindow).count()},
                    {"findings", std::move(findings)}});
}

constexpr std::array kRoutes = {
    Route("GET", "/v1/diagnosis", Permission::viewer, Diagnose),
    Route("GET", "/v1/alerts", Permission::viewer, ListAlerts),
    Route("POST", "/v1/alerts/test", Permission::operator_, TestAlert),
    Route("POST", "/v1/probe", Permission::operator_, RunProbe),
};

}  // namespace

std::span<const Route> AlarmRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
