// Tokens, and the record of who did what.
#include <algorithm>
#include <array>
#include <boost/json.hpp>

#include "base/time_text.h"
#include "server/routes.h"
#include "server/view.h"

namespace dlo::server {
namespace {

constexpr std::size_t kMaxTokenName = 64;

bool IsTokenName(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.' || c == '@';
  };
  return !name.empty() && name.size() <= kMaxTokenName && std::ranges::all_of(name, plain);
}

Result<Response> ListTokens(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto tokens = context.deps.store.Tokens();
  if (!tokens) return std::unexpected(tokens.error());
  return PageOf(ViewAll(*tokens), std::nullopt);
}

// The token is in this one answer and nowhere else.
Result<Response> CreateToken(Context& context, Call& call) {
  const std::string name = call.body.Text("name");
  const auto role = RoleByName(call.body.Text("role"));
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  if (!IsTokenName(name) || name == "bootstrap" || name == "system") {
    return Fail(
        ErrorKind::invalid, "bad_field",
        "The field \"name\" takes 1 to 64 letters, digits and - _ . @, and neither \"bootstrap\" nor \"system\".");
  }
  if (!role) return Fail(ErrorKind::invalid, "bad_field", "The field \"role\" takes viewer, operator or admin.");
  const std::string secret = MakeToken();
  const auto token = context.deps.store.CreateToken(name, std::string(Name(*role)), HashToken(secret), call.actor,
                                                    context.deps.clock.Now());
  if (!token) return std::unexpected(token.error());
  if (auto fresh = context.auth.Refresh(); !fresh) return std::unexpected(fresh.error());
  boost::json::object answer = View(*token);
  answer["token"] = secret;
  Response response = Json(200, answer);
  response.headers.push_back({"Cache-Control", "no-store"});
  return response;
}

Result<Response> RevokeToken(Context& context, Call& call) {
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto token = context.deps.store.RevokeToken(call.params.at(0), call.actor, context.deps.clock.Now());
  if (!token) return std::unexpected(token.error());
  if (auto fresh = context.auth.Refresh(); !fresh) return std::unexpected(fresh.error());
  return Json(200, View(*token));
}

Result<std::optional<Time>> TakeTime(Query& query, const std::string& name) {
  auto text = query.Once(name);
  if (!text) return std::unexpected(text.error());
  if (!*text) return std::optional<Time>();
  std::ranges::replace(**text, ' ', '+');  // of a time zone that was not percent-encoded
  const auto time = ParseTime(**text);
  if (!time) {
    return Fail(ErrorKind::invalid, "bad_query",
                "The word \"" + name + "\" takes a time like 2026-11-30T13:23:29Z or a date.");
  }
  return name == "until" && IsDate(**text) ? *time + std::chrono::hours(24) : *time;
}

Result<store::AuditFilter> TakeAuditFilter(Query& query) {
  store::AuditFilter filter;
  for (const auto& [name, into] : {std::pair("actor", &filter.actor), std::pair("action", &filter.action)}) {
    auto text = query.Once(name);
    if (!text) return std::unexpected(text.error());
    if (*text && (*text)->empty()) {
      return Fail(ErrorKind::invalid, "bad_query", std::string("The word \"") + name + "\" takes a name.");
    }
    *into = text->value_or("");
  }
  const auto event = query.Number("event", 0, 1, INT64_MAX);
  if (!event) return std::unexpected(event.error());
  filter.event_id = *event;
  for (const auto& [name, into] : {std::pair("since", &filter.since), std::pair("until", &filter.until)}) {
    auto time = TakeTime(query, name);
    if (!time) return std::unexpected(time.error());
    *into = *time;
  }
  return filter;
}

Result<Response> ListAudit(Context& context, Call& call) {
  const auto filter = TakeAuditFilter(call.query);
  if (!filter) return std::unexpected(filter.error());
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto before = call.query.Number("cursor", 0, 1, INT64_MAX);
  if (!before) return std::unexpected(before.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto records = context.deps.store.Audit(*filter, *before, static_cast<int>(*limit));
  if (!records) return std::unexpected(records.error());
  std::optional<std::string> next;
  if (std::ssize(*records) == *limit) next = std::to_string(records->back().seq);
  return PageOf(ViewAll(*records), next);
}

Result<Response> ShowHead(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto head = context.deps.store.Head();
  if (!head) return std::unexpected(head.error());
  Response response;
  response.body = store::HeadToJson(*head);
  return response;
}

constexpr std::array kRoutes = {
    Route("GET", "/v1/tokens", Permission::admin, ListTokens),
    Route("POST", "/v1/tokens", Permission::admin, CreateToken),
    Route("POST", "/v1/tokens/{name}/revoke", Permission::admin, RevokeToken),
    Route("GET", "/v1/audit", Permission::viewer, ListAudit),
    Route("GET", "/v1/audit/head", Permission::viewer, ShowHead),
};

}  // namespace

std::span<const Route> AccessRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
