// Replays of many letters, and the drain.
#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "server/routes.h"
#include "server/view.h"

namespace dlo::server {
namespace {

constexpr Duration kDefaultWait = std::chrono::seconds(30);
constexpr Duration kMaxWait = std::chrono::minutes(10);

int Narrow(std::int64_t number) {
  return static_cast<int>(std::clamp<std::int64_t>(number, INT32_MIN, INT32_MAX));
}

Result<Response> CreateReplay(Context& context, Call& call) {
  const Filter filter = call.body.TakeFilter("filter");
  const ReplayOptions defaults;
  ReplayOptions options;
  options.batch_size = Narrow(call.body.Number("batch_size", defaults.batch_size));
  options.stagger_ms = Narrow(call.body.Number("stagger_ms", defaults.stagger_ms));
  options.rate = call.body.Decimal("rate");
  options.max = call.body.Number("max", defaults.max);
  options.force = call.body.Flag("force");
  options.dry_run = call.body.Flag("dry_run");
  options.canary = Narrow(call.body.Number("canary", defaults.canary));
  options.stop_percent = Narrow(call.body.Number("stop_percent", defaults.stop_percent));
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto plan = context.deps.letters.RequeueWhere(filter, options, call.actor);
  if (!plan) return std::unexpected(plan.error());
  boost::json::object answer = View(*plan);
  if (!options.dry_run) return Json(202, answer);
  answer.erase("id");
  answer["would_requeue"] = plan->count;
  return Json(200, answer);
}

Result<Response> ListReplays(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto replays = context.deps.letters.Replays(static_cast<int>(*limit));
  if (!replays) return std::unexpected(replays.error());
  return PageOf(ViewAll(*replays), std::nullopt);
}

Result<Response> ShowReplay(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto progress = context.deps.letters.Replay(*id);
  if (!progress) return std::unexpected(progress.error());
  return Json(200, View(*progress));
}

Result<Response> ListItems(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto state = call.query.Once("state"), result = call.query.Once("result"), cursor = call.query.Once("cursor");
  for (const auto* word : {&state, &result, &cursor}) {
    if (!*word) return std::unexpected(word->error());
  }
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto page = context.deps.letters.Items(*id, {.state = state->value_or(""), .result = result->value_or("")},
                                               static_cast<int>(*limit), cursor->value_or(""));
  if (!page) return std::unexpected(page.error());
  return PageOf(ViewAll(page->items), page->next);
}

using Steer = Result<ReplayProgress> (DeadLetters::*)(std::int64_t, const Actor&);

template <Steer kSteer>
Result<Response> SteerReplay(Context& context, Call& call) {
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto progress = (context.deps.letters.*kSteer)(*id, call.actor);
  if (!progress) return std::unexpected(progress.error());
  return Json(200, View(*progress));
}

Result<Response> Drain(Context& context, Call& call) {
  const std::string source = call.body.Text("source");
  const Duration wait = call.body.Length("wait", kDefaultWait);
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const bool known = source.empty() || std::ranges::any_of(context.deps.sources, [&](const SourceConfig& config) {
                       return config.name == source;
                     });
  if (!known) return Fail(ErrorKind::not_found, "unknown_source", "No source is named \"" + source + "\".");
  const auto stats = context.deps.letters.Drain(source, std::min(wait, kMaxWait), call.actor);
  if (!stats) return std::unexpected(stats.error());
  boost::json::object answer = {
      {"committed", stats->committed}, {"requeued", stats->requeued}, {"parked", stats->parked}};
  if (stats->finished) return Json(200, answer);
  answer["id"] = stats->replay_id;
  return Json(202, answer);
}

constexpr std::array kRoutes = {
    Route("POST", "/v1/replays", Permission::operator_, CreateReplay),
    Route("GET", "/v1/replays", Permission::viewer, ListReplays),
    Route("GET", "/v1/replays/{id}", Permission::viewer, ShowReplay),
    Route("GET", "/v1/replays/{id}/items", Permission::viewer, ListItems),
    Route("POST", "/v1/replays/{id}/pause", Permission::operator_, SteerReplay<&DeadLetters::Pause>),
    Route("POST", "/v1/replays/{id}/resume", Permission::operator_, SteerReplay<&DeadLetters::Resume>),
    Route("POST", "/v1/replays/{id}/cancel", Permission::operator_, SteerReplay<&DeadLetters::Cancel>),
    Route("POST", "/v1/drain", Permission::operator_, Drain, Lane::waits),
};

}  // namespace

std::span<const Route> ReplayRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
