// What somebody who runs the office looks at: sources, rejected deliveries, numbers, health.
#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "server/routes.h"
#include "server/utf8.h"
#include "server/view.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

Result<Response> ListRejected(Context& context, Call& call) {
  const auto source = call.query.Once("source");
  if (!source) return std::unexpected(source.error());
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto before = call.query.Number("cursor", 0, 1, INT64_MAX);
  if (!before) return std::unexpected(before.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto rejected =
      context.deps.store.RejectedList(source->value_or(std::string()), *before, static_cast<int>(*limit));
  if (!rejected) return std::unexpected(rejected.error());
  json::array items;
  for (const store::Rejected& one : *rejected) items.push_back(View(one, SignatureHeader(context.deps, one.source)));
  std::optional<std::string> next;
  if (std::ssize(*rejected) == *limit) next = std::to_string(rejected->back().id);
  return PageOf(std::move(items), next);
}

// Nobody vouched for this body, so it needs the role that may see payloads.
Result<Response> ShowRejected(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto rejected = context.deps.store.RejectedOne(*id);
  if (!rejected) return std::unexpected(rejected.error());
  json::object answer = View(*rejected, SignatureHeader(context.deps, rejected->source));
  const bool text = IsUtf8(rejected->body);
  answer[text ? "body" : "body_base64"] = text ? rejected->body : Base64Encode(rejected->body);
  return Json(200, answer);
}

json::object Counts(const store::Figures& figures, std::string_view source) {
  json::object out;
  for (int i = 0; i < kStateCount; ++i) {
    const State state = static_cast<State>(i);
    std::int64_t sum = 0;
    for (const store::StateCount& c : figures.counts) {
      if (c.state == state && (source.empty() || c.source == source)) sum += c.count;
    }
    out[dlo::Name(state)] = sum;
  }
  return out;
}

json::object ViewPause(const store::SourcePause& pause) {
  return {{"source", pause.source},
          {"since", FormatTime(pause.since)},
          {"fingerprint", pause.fingerprint},
          {"message", ToUtf8(pause.message)}};
}

Result<Response> ListSources(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto figures = context.deps.store.Read();
  if (!figures) return std::unexpected(figures.error());
  const auto pauses = context.deps.store.Pauses();
  if (!pauses) return std::unexpected(pauses.error());
  json::array items;
  for (const SourceConfig& source : context.deps.sources) {
    json::object item = {
        {"name", source.name},         {"scheme", source.scheme},
        {"target", source.target},     {"on_park", source.on_park == OnPark::hold ? "hold" : "release"},
        {"max_body", source.max_body}, {"state", "running"},
        {"paused", nullptr},           {"counts", Counts(*figures, source.name)}};
    for (const store::SourcePause& pause : *pauses) {
      if (pause.source != source.name) continue;
      item["state"] = "paused";
      item["paused"] = ViewPause(pause);
    }
    items.push_back(std::move(item));
  }
  return PageOf(std::move(items), std::nullopt);
}

Result<Response> ResumeSource(Context& context, Call& call) {
  const std::string& name = call.params.at(0);
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = context.deps.store.Resume(name, call.actor, context.deps.clock.Now()); !ok) {
    return std::unexpected(ok.error());
  }
  if (context.deps.resumed) context.deps.resumed(name);
  return Json(200, {{"source", name}, {"state", "running"}});
}

json::array Breakers(const AdminDeps& deps) {
  json::array out;
  if (!deps.breakers) return out;
  for (const dispatch::BreakerView& b : deps.breakers()) {
    out.push_back(json::object{{"target", b.target},
                               {"state", b.state},
                               {"retry_at", b.retry_at ? json::value(FormatTime(*b.retry_at)) : json::value(nullptr)}});
  }
  return out;
}

Result<Response> Stats(Context& context, Call& call) {
  const auto recount = call.query.Flag("recount");
  if (!recount) return std::unexpected(recount.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto figures = *recount ? context.deps.store.Recount() : context.deps.store.Read();
  if (!figures) return std::unexpected(figures.error());
  const auto pauses = context.deps.store.Pauses();
  if (!pauses) return std::unexpected(pauses.error());
  const Time now = context.deps.clock.Now();

  json::array counts, oldest, paused;
  for (const store::StateCount& c : figures->counts) {
    counts.push_back(json::object{{"source", c.source},
                                  {"state", dlo::Name(c.state)},
                                  {"class", dlo::Name(c.failure_class)},
                                  {"count", c.count}});
  }
  for (const store::SourceAge& age : figures->oldest) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - age.oldest_unresolved);
    oldest.push_back(json::object{{"source", age.source},
                                  {"id", age.id},
                                  {"parked_at", FormatTime(age.oldest_unresolved)},
                                  {"seconds", std::max<std::int64_t>(0, seconds.count())}});
  }
  for (const store::SourcePause& pause : *pauses) paused.push_back(ViewPause(pause));
  json::object answer = Counts(*figures, {});  // "waiting", "running", "dead", …: over all sources
  answer["counts"] = std::move(counts);
  answer["oldest"] = std::move(oldest);
  answer["paused_sources"] = std::move(paused);
  answer["breakers"] = Breakers(context.deps);
  answer["held_overdue"] = figures->held_overdue;
  json::object overdue;
  for (const auto& [source, count] : figures->holds_overdue) overdue[source] = count;
  answer["holds_overdue"] = std::move(overdue);
  answer["audit_head"] = figures->audit_head;
  if (figures->free_bytes) answer["free_bytes"] = *figures->free_bytes;
  answer["accounting"] = json::object{{"receipts", figures->receipts},
                                      {"indexed", figures->indexed},
                                      {"duplicates", figures->duplicates},
                                      {"pruned", figures->pruned},
                                      {"difference", figures->accounting_difference},
                                      {"recounted", *recount}};
  return Json(200, answer);
}

Result<Response> Metrics(Context& context, Call&) {
  Response response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = context.deps.scrape.Render();
  return response;
}

Result<Response> Alive(Context&, Call&) {
  return Json(200, {{"status", "ok"}});
}

Result<Response> Ready(Context& context, Call&) {
  observe::Health::Report report = context.deps.health.Ready();
  Response response;
  response.status = report.ready ? 200 : 503;
  response.body = std::move(report.json);
  return response;
}

constexpr std::array kRoutes = {
    Route("GET", "/v1/rejected", Permission::viewer, ListRejected),
    Route("GET", "/v1/rejected/{id}", Permission::operator_, ShowRejected),
    Route("GET", "/v1/sources", Permission::viewer, ListSources),
    Route("POST", "/v1/sources/{name}/resume", Permission::operator_, ResumeSource),
    Route("GET", "/v1/stats", Permission::viewer, Stats),
    Route("GET", "/metrics", Permission::open, Metrics),
    Route("GET", "/healthz", Permission::open, Alive, Lane::quick),
    Route("GET", "/readyz", Permission::open, Ready),
};

}  // namespace

std::span<const Route> OperationRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
