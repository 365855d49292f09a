#include "observe/alert_formats.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/time_text.h"

namespace dlo::observe {
namespace {

namespace json = boost::json;

/// Beside repeat_every: how long after a missed repeat Alertmanager goes on believing.
constexpr Duration kBelieved = std::chrono::minutes(5);

std::string Letters(std::int64_t n) {
  return n == 1 ? "1 new letter" : fmt::format("{} new letters", n);
}

std::string AlertmanagerUrl(const std::string& url) {
  const std::size_t authority = url.find("://");
  const std::size_t path = authority == std::string::npos ? authority : url.find('/', authority + 3);
  if (path == std::string::npos) return url + "/api/v2/alerts";
  return path + 1 == url.size() ? url + "api/v2/alerts" : url;
}

std::string Alertmanager(const AlertConfig& receiver, const store::Alert& alert, Time now) {
  json::object labels = {
      {"alertname", "dlo_" + alert.rule}, {"service", "dlo"}, {"rule", alert.rule}, {"severity", Severity(alert)}};
  if (!alert.source.empty()) labels["source"] = alert.source;
  if (!alert.name.empty() && alert.name != alert.source) labels["cause"] = alert.name;
  json::object annotations = {{"summary", Summary(alert)}, {"alert_id", alert.alert}};
  if (alert.sample != 0) annotations["event"] = std::to_string(alert.sample);
  const bool firing = alert.status == "firing";
  return json::serialize(json::array{
      json::object{{"labels", std::move(labels)},
                   {"annotations", std::move(annotations)},
                   {"startsAt", FormatTime(alert.since)},
                   {"endsAt", FormatTime(firing ? now + receiver.repeat_every + kBelieved : alert.created_at)}}});
}

/// Slack reads these three as markup.
std::string SlackText(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else
      out += c;
  }
  return out;
}

std::string Slack(const store::Alert& alert) {
  std::string text = alert.status == "resolved" ? "Over: " : alert.status == "test" ? "Test: " : "";
  if (alert.status == "firing") text = fmt::format("[{}] ", Severity(alert));
  text += Summary(alert);
  if (alert.sample != 0 && alert.status == "firing") text += fmt::format("\ndlo show {}", alert.sample);
  return json::serialize(json::object{{"text", SlackText(text)}});
}

std::string OwnJson(const store::Alert& alert) {
  return json::serialize(json::object{{"id", alert.alert},
                                      {"rule", alert.rule},
                                      {"name", alert.name},
                                      {"status", alert.status},
                                      {"severity", Severity(alert)},
                                      {"source", alert.source},
                                      {"receiver", alert.receiver},
                                      {"summary", Summary(alert)},
                                      {"letters", alert.n},
                                      {"letters_in_all", alert.total},
                                      {"event", alert.sample},
                                      {"since", FormatTime(alert.since)},
                                      {"at", FormatTime(alert.created_at)}});
}

}  // namespace

std::string_view Severity(const store::Alert& alert) {
  return alert.route == "page" ? "page" : "ticket";
}

bool Taken(const store::Alert& alert) {
  return alert.sent_at.has_value() && alert.answer.starts_with("HTTP 2");
}

std::string Summary(const store::Alert& alert) {
  const std::string of = alert.source.empty() ? "" : " of " + alert.source;
  if (alert.rule != "arrivals") return alert.rule + of + ": " + alert.what;
  if (alert.n > 0) return fmt::format("{}{}: {}", Letters(alert.n), of, alert.what);
  return fmt::format("no more letters{} ({} in all): {}", of, alert.total, alert.what);
}

Outgoing Format(const AlertConfig& receiver, const std::optional<intake::Signer>& signer, const store::Alert& alert,
                Time now) {
  Outgoing out;
  out.url = alert.route == "outside" ? receiver.outside : receiver.url;
  out.headers = {"Content-Type: application/json", "Idempotency-Key: " + alert.alert};
  if (receiver.format == "alertmanager") {
    out.url = AlertmanagerUrl(out.url);
    out.body = Alertmanager(receiver, alert, now);
  } else if (receiver.format == "slack") {
    out.body = Slack(alert);
  } else {
    out.body = OwnJson(alert);
    if (signer) {
      for (const Header& header : signer->Sign(out.body, now, alert.alert)) {
        out.headers.push_back(header.name + ": " + header.value);
      }
    }
  }
  return out;
}

}  // namespace dlo::observe
