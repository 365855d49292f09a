// What becomes of what is over: prune, legal holds, and the archive.
#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/time_text.h"
#include "server/routes.h"
#include "server/utf8.h"
#include "server/view.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

constexpr Duration kDefaultWait = std::chrono::seconds(30);
constexpr Duration kMaxWait = std::chrono::minutes(10);

json::object View(const LegalHold& hold) {
  boost::system::error_code error;
  json::value filter = json::parse(hold.filter, error);
  return {{"id", hold.id},
          {"created_at", FormatTime(hold.created_at)},
          {"actor", ToUtf8(hold.actor)},
          {"reason", ToUtf8(hold.reason)},
          {"filter", std::move(filter)},
          {"ended_at", hold.ended_at ? json::value(FormatTime(*hold.ended_at)) : json::value(nullptr)},
          {"ended_by", ToUtf8(hold.ended_by)},
          {"end_reason", ToUtf8(hold.end_reason)}};
}

json::object View(const ArchivedSegment& s) {
  return {{"segment", s.segment},
          {"first", s.first},
          {"last", s.last},
          {"events", s.events},
          {"letters", s.letters},
          {"pruned", s.pruned},
          {"parts", s.parts},
          {"bytes", s.bytes},
          {"file", s.file},
          {"original_bytes", s.original_bytes},
          {"sha256", s.sha256},
          {"original_sha256", s.original_sha256},
          {"moved_at", FormatTime(s.moved_at)}};
}

Result<Response> Prune(Context& context, Call& call) {
  const PruneRequest request{.dead_older_than_days = call.body.Days("dead_older_than_days"),
                             .succeeded_older_than_days = call.body.Days("succeeded_older_than_days")};
  const Duration wait = call.body.Length("wait", kDefaultWait);
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto done = context.deps.letters.PruneOlder(request, std::min(wait, kMaxWait), call.actor);
  if (!done) return std::unexpected(done.error());
  return Json(done->finished ? 200 : 202, {{"pruned", done->pruned()},
                                           {"succeeded", done->succeeded},
                                           {"closed", done->closed},
                                           {"letters_archived", done->letters},
                                           {"segments", done->segments},
                                           {"segments_on_legal_hold", done->on_hold},
                                           {"finished", done->finished}});
}

Result<Response> ListHolds(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto holds = context.deps.letters.LegalHolds();
  if (!holds) return std::unexpected(holds.error());
  json::array items;
  for (const LegalHold& hold : *holds) items.push_back(View(hold));
  return PageOf(std::move(items), std::nullopt);
}

Result<Response> AddHold(Context& context, Call& call) {
  const Filter filter = call.body.TakeFilter("filter");
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto hold = context.deps.letters.AddLegalHold(filter, call.actor);
  if (!hold) return std::unexpected(hold.error());
  return Json(200, View(*hold));
}

Result<Response> EndHold(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto hold = context.deps.letters.EndLegalHold(*id, call.actor);
  if (!hold) return std::unexpected(hold.error());
  return Json(200, View(*hold));
}

Result<Response> ListArchive(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto after = call.query.Number("cursor", 0, 1, INT64_MAX);
  if (!after) return std::unexpected(after.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto segments = context.deps.store.Archive(*after, static_cast<int>(*limit));
  if (!segments) return std::unexpected(segments.error());
  json::array items;
  for (const ArchivedSegment& segment : *segments) items.push_back(View(segment));
  std::optional<std::string> next;
  if (std::ssize(*segments) == *limit) next = std::to_string(segments->back().segment);
  return PageOf(std::move(items), next);
}

Result<Response> ShowArchived(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto records = context.deps.store.ArchivedRecords(*id);
  if (!records) return std::unexpected(records.error());
  json::array items;
  for (const std::string& record : *records) items.push_back(json::parse(record));
  return PageOf(std::move(items), std::nullopt);
}

constexpr std::array kRoutes = {
    Route("POST", "/v1/prune", Permission::admin, Prune, Lane::waits),
    Route("GET", "/v1/legal-holds", Permission::viewer, ListHolds),
    Route("POST", "/v1/legal-holds", Permission::admin, AddHold),
    Route("POST", "/v1/legal-holds/{id}/end", Permission::admin, EndHold),
    Route("GET", "/v1/archive", Permission::viewer, ListArchive),
    Route("GET", "/v1/archive/events/{id}", Permission::viewer, ShowArchived),
};

}  // namespace

std::span<const Route> RetentionRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
