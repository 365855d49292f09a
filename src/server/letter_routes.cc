// Events and dead letters: reading them, and the acts of triage on one.
#include <array>
#include <boost/json.hpp>

#include "server/routes.h"
#include "server/view.h"

namespace dlo::server {
namespace {

Result<Response> ListLetters(Context& context, Call& call) {
  const auto filter = call.query.TakeFilter();
  if (!filter) return std::unexpected(filter.error());
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto cursor = call.query.Once("cursor");
  if (!cursor) return std::unexpected(cursor.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto page = context.deps.letters.List(*filter, static_cast<int>(*limit), cursor->value_or(std::string()));
  if (!page) return std::unexpected(page.error());
  return PageOf(ViewAll(page->items), page->next);
}

Result<Response> CountLetters(Context& context, Call& call) {
  const auto filter = call.query.TakeFilter();
  if (!filter) return std::unexpected(filter.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto count = context.deps.letters.Count(*filter);
  if (!count) return std::unexpected(count.error());
  return Json(200, {{"count", *count}});
}

Result<Response> GroupLetters(Context& context, Call& call) {
  const auto filter = call.query.TakeFilter();
  if (!filter) return std::unexpected(filter.error());
  const auto by = call.query.Once("by");
  if (!by) return std::unexpected(by.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto groups = context.deps.letters.Groups(*filter, by->value_or("fingerprint"));
  if (!groups) return std::unexpected(groups.error());
  return PageOf(ViewAll(*groups), std::nullopt);
}

Result<Response> ShowEvent(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto detail = context.deps.letters.Show(*id);
  if (!detail) return std::unexpected(detail.error());
  return Json(200, View(*detail, SignatureHeader(context.deps, detail->letter.source)));
}

Result<Response> ShowPayload(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  auto payload = context.deps.letters.Payload(*id);
  if (!payload) return std::unexpected(payload.error());
  return PayloadAnswer(std::move(*payload), "event-" + std::to_string(*id) + ".body");
}

Result<Response> ShowAttempts(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto detail = context.deps.letters.Show(*id);
  if (!detail) return std::unexpected(detail.error());
  return PageOf(ViewAll(detail->attempts), std::nullopt);
}

Result<Response> ShowAudit(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto records = context.deps.letters.AuditOf(*id);
  if (!records) return std::unexpected(records.error());
  return PageOf(ViewAll(*records), std::nullopt);
}

/// What all acts on one letter share: the id, the reason, strictness, and the letter as the answer.
template <typename Do>
Result<Response> ActOnOne(Call& call, Do act) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const Result<Letter> letter = act(*id);
  if (!letter) return std::unexpected(letter.error());
  return Json(200, View(*letter));
}

Result<Response> Replay(Context& context, Call& call) {
  auto done = ActOnOne(call, [&](EventId id) { return context.deps.letters.Requeue(id, call.actor); });
  if (!done) return done;
  return Json(202, {{"requeued", 1}});
}

Result<Response> Hold(Context& context, Call& call) {
  const HoldRequest request = TakeHold(call.body);
  return ActOnOne(call, [&](EventId id) { return context.deps.letters.Hold(id, request, call.actor); });
}

Result<Response> Release(Context& context, Call& call) {
  return ActOnOne(call, [&](EventId id) { return context.deps.letters.Release(id, call.actor); });
}

Result<Response> Resolve(Context& context, Call& call) {
  const std::string name = call.body.Text("code");
  return ActOnOne(call, [&](EventId id) -> Result<Letter> {
    const auto code = CodeOf(name);
    if (!code) return std::unexpected(code.error());
    return context.deps.letters.Resolve(id, *code, call.actor);
  });
}

Result<Response> Reopen(Context& context, Call& call) {
  return ActOnOne(call, [&](EventId id) { return context.deps.letters.Reopen(id, call.actor); });
}

constexpr std::array kRoutes = {
    Route("GET", "/v1/dead-letters", Permission::viewer, ListLetters),
    Route("GET", "/v1/dead-letters/count", Permission::viewer, CountLetters),
    Route("GET", "/v1/dead-letters/groups", Permission::viewer, GroupLetters),
    Route("POST", "/v1/dead-letters/{id}/replay", Permission::operator_, Replay),
    Route("POST", "/v1/dead-letters/{id}/hold", Permission::operator_, Hold),
    Route("POST", "/v1/dead-letters/{id}/release", Permission::operator_, Release),
    Route("POST", "/v1/dead-letters/{id}/resolve", Permission::operator_, Resolve),
    Route("POST", "/v1/dead-letters/{id}/reopen", Permission::operator_, Reopen),
    Route("GET", "/v1/events/{id}", Permission::viewer, ShowEvent),
    Route("GET", "/v1/events/{id}/payload", Permission::operator_, ShowPayload),
    Route("GET", "/v1/events/{id}/attempts", Permission::viewer, ShowAttempts),
    Route("GET", "/v1/events/{id}/audit", Permission::viewer, ShowAudit),
};

}  // namespace

std::span<const Route> LetterRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
