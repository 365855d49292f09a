#include "server/view.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <cmath>
#include <string>

#include "base/time_text.h"
#include "server/utf8.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

json::value When(const std::optional<Time>& time) {
  return time ? json::value(FormatTime(*time)) : json::value(nullptr);
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

json::value Maybe(const std::optional<bool>& flag) {
  return flag ? json::value(*flag) : json::value(nullptr);
}

}  // namespace

std::string_view Name(OutcomeKind kind) {
  static constexpr std::array<std::string_view, 8> kNames = {
      "applied", "already_applied", "not_applicable", "retryable", "permanent", "gone", "crashed", "corrupt"};
  return kNames.at(static_cast<std::size_t>(kind));
}

json::object View(const Letter& l) {
  return {{"id", l.id},
          {"source", l.source},
          {"key", ToUtf8(l.key)},
          {"kind", ToUtf8(l.kind)},
          {"subject", ToUtf8(l.subject)},
          {"account", ToUtf8(l.account)},
          {"livemode", Maybe(l.livemode)},
          {"occurred_at", When(l.occurred_at)},
          {"received_at", FormatTime(l.received_at)},
          {"last_seen_at", FormatTime(l.last_seen_at)},
          {"deliveries", l.deliveries},
          {"body_bytes", l.body_bytes},
          {"state", Name(l.state)},
          {"class", Name(l.failure_class)},
          {"attempts", l.attempts},
          {"tries", l.tries},
          {"attempt_number", l.attempt_number},
          {"crashes", l.crashes},
          {"replays", l.replays},
          {"replays_failed", l.replays_failed},
          {"replay_id", l.replay_id},
          {"due_at", When(l.due_at)},
          {"lease_until", When(l.lease_until)},
          {"first_failed_at", When(l.first_failed_at)},
          {"last_failed_at", When(l.last_failed_at)},
          {"parked_at", When(l.parked_at)},
          {"finished_at", When(l.finished_at)},
          {"code", ToUtf8(l.code)},
          {"message", ToUtf8(l.message)},
          {"fingerprint", l.fingerprint},
          {"handler_version", ToUtf8(l.handler_version)},
          {"conflict_of", l.conflict_of},
          {"hold_link", ToUtf8(l.hold_link)},
          {"hold_owner", ToUtf8(l.hold_owner)},
          {"wake_on_handler", ToUtf8(l.wake_on_handler)},
          {"hold_until", When(l.hold_until)},
          {"resolve_code", l.resolve_code ? json::value(Name(*l.resolve_code)) : json::value(nullptr)},
          {"resolve_reason", ToUtf8(l.resolve_reason)},
          {"behind", l.behind},
          {"events_behind", l.events_behind}};
}

json::object View(const LetterDetail& d, std::string_view signature_header) {
  json::object out = View(d.letter);
  out["timeline"] = ViewAll(d.attempts);
  out["detail"] = ToUtf8(d.detail);
  out["verdict"] = json::object{{"verified", d.verdict.verified},
                                {"scheme", d.verdict.scheme},
                                {"secret_id", d.verdict.secret_id},
                                {"signed_at", When(d.verdict.signed_at)}};
  out["body_sha256"] = d.body_sha256;
  out["headers"] = ViewHeaders(d.headers, signature_header);
  return out;
}

json::object View(const Attempt& a) {
  return {{"number", a.number},
          {"started_at", FormatTime(a.started_at)},
          {"finished_at", When(a.finished_at)},
          {"worker", ToUtf8(a.worker)},
          {"target", a.target},
          {"outcome", a.outcome ? json::value(Name(*a.outcome)) : json::value(nullptr)},
          {"code", ToUtf8(a.code)},
          {"message", ToUtf8(a.message)},
          {"detail", ToUtf8(a.detail)},
          {"http_status", a.http_status},
          {"handler_version", ToUtf8(a.handler_version)},
          {"effect", ToUtf8(a.effect)},
          {"replay_id", a.replay_id},
          {"late", a.late}};
}

json::object View(const AuditRecord& r) {
  boost::system::error_code error;
  json::value details = json::parse(r.details, error);
  if (error) details = ToUtf8(r.details);
  return {
      {"seq", r.seq},       {"at", FormatTime(r.at)}, {"actor", ToUtf8(r.actor)},   {"role", r.role},
      {"action", r.action}, {"event_id", r.event_id}, {"reason", ToUtf8(r.reason)}, {"details", std::move(details)}};
}

json::object View(const Group& g) {
  return {{"value", ToUtf8(g.value)},
          {"count", g.count},
          {"first_seen", FormatTime(g.first_seen)},
          {"last_seen", FormatTime(g.last_seen)},
          {"sample_id", g.sample_id},
          {"class", g.failure_class},
          {"code", ToUtf8(g.code)},
          {"kind", ToUtf8(g.kind)},
          {"message", ToUtf8(g.message)}};
}

json::object View(const ReplayPlan& p) {
  const auto counts = [](const std::map<std::string, std::int64_t>& by) {
    json::object out;
    for (const auto& [name, count] : by) out[ToUtf8(name)] = count;
    return out;
  };
  return {{"id", p.id},
          {"count", p.count},
          {"over_cap", p.over_cap},
          {"digest", p.digest},
          {"in_other_replay", p.in_other_replay},
          {"canary", p.canary},
          {"by_class", counts(p.by_class)},
          {"by_type", counts(p.by_type)},
          {"oldest", When(p.oldest)},
          {"estimated_seconds", p.estimated_seconds}};
}

json::object View(const ReplayItem& i) {
  return {{"id", i.id},
          {"state", i.state},
          {"handed_over", i.handed_over},
          {"result", i.result.empty() ? json::value() : json::value(i.result)},
          {"reason", i.reason.empty() ? json::value() : json::value(ToUtf8(i.reason))}};
}

json::object View(const ReplayProgress& p) {
  boost::system::error_code error;
  json::value filter = json::parse(p.filter, error);
  if (error) filter = ToUtf8(p.filter);
  return {{"id", p.id},
          {"state", p.state},
          {"kind", p.kind},
          {"created_at", FormatTime(p.created_at)},
          {"actor", ToUtf8(p.actor)},
          {"reason", ToUtf8(p.reason)},
          {"filter", std::move(filter)},
          {"finished_at", When(p.finished_at)},
          {"word", ToUtf8(p.word)},
          {"word_of", ToUtf8(p.word_of)},
          {"count", p.count},
          {"in_other_replay", p.in_other_replay},
          {"requeued", p.requeued},
          {"queued", p.queued},
          {"running", p.running},
          {"skipped", p.skipped},
          {"committed", p.committed},
          {"already_applied", p.already_applied},
          {"dead_again", p.dead_again},
          {"parked", p.parked},
          {"remaining", p.remaining},
          {"canary", p.canary},
          {"stop_percent", p.stop_percent},
          {"notifications_suppressed", p.notifications_suppressed},
          {"per_second", std::round(p.per_second * 100) / 100},
          {"estimated_end", When(p.estimated_end)},
          {"digest", p.digest}};
}

json::object View(const store::Token& t) {
  return {{"id", t.id},
          {"name", ToUtf8(t.name)},
          {"role", t.role},
          {"created_at", FormatTime(t.created_at)},
          {"revoked_at", When(t.revoked_at)}};
}

json::object View(const store::Rejected& r, std::string_view signature_header) {
  return {{"id", r.id},
          {"at", FormatTime(r.at)},
          {"source", r.source},
          {"reason", r.reason},
          {"remote", r.remote},
          {"headers", ViewHeaders(r.headers, signature_header)},
          {"body_bytes", r.body_bytes}};
}

bool IsSecretHeader(std::string_view name) {
  const std::string lower = Lower(name);
  static constexpr std::array<std::string_view, 4> kExact = {"authorization", "proxy-authorization", "cookie",
                                                             "set-cookie"};
  static constexpr std::array<std::string_view, 7> kWithin = {"signature", "secret", "token", "password",
                                                              "api-key",   "apikey", "hmac"};
  return std::ranges::find(kExact, lower) != kExact.end() ||
         std::ranges::any_of(kWithin, [&](std::string_view part) { return lower.find(part) != std::string::npos; });
}

json::array ViewHeaders(const std::vector<Header>& headers, std::string_view signature_header) {
  json::array out;
  for (const Header& h : headers) {
    const bool secret = IsSecretHeader(h.name) || Lower(h.name) == Lower(signature_header);
    out.push_back(
        json::object{{"name", ToUtf8(h.name)}, {"value", secret ? std::string("[redacted]") : ToUtf8(h.value)}});
  }
  return out;
}

}  // namespace dlo::server
