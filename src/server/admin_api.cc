#include "server/admin_api.h"

#include <algorithm>
#include <boost/json.hpp>
#include <exception>

#include "base/log.h"
#include "server/answer.h"

namespace dlo::server {
namespace {

constexpr int kStoreThreads = 2;
constexpr int kMaxWaiting = 64;

/// "/v1/events/7" against "/v1/events/{id}".
bool Matches(std::string_view pattern, std::string_view path, std::vector<std::string>& params) {
  params.clear();
  while (true) {
    const std::string_view want = pattern.substr(0, pattern.find('/'));
    const std::string_view have = path.substr(0, path.find('/'));
    if (want.starts_with('{') ? have.empty() : want != have) return false;
    if (want.starts_with('{')) params.emplace_back(have);
    pattern.remove_prefix(want.size());
    path.remove_prefix(have.size());
    if (pattern.empty() || path.empty()) return pattern.empty() && path.empty();
    pattern.remove_prefix(1);
    path.remove_prefix(1);
  }
}

/// A page on the web can make a browser send requests to this machine under a name that its DNS points here. The name
/// gives it away.
bool IsLocalHost(std::string_view host) {
  if (host.starts_with('[')) {
    const std::size_t end = host.find(']');
    return end != std::string_view::npos && host.substr(0, end + 1) == "[::1]" &&
           (end + 1 == host.size() || host[end + 1] == ':');
  }
  const std::string_view name = host.substr(0, host.find(':'));
  return name == "127.0.0.1" || std::ranges::equal(name, std::string_view("localhost"), [](char a, char b) {
           return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
         });
}

bool IsJson(const RequestHead& head) {
  const auto type = head.Find("Content-Type");
  if (!type) return false;
  std::string name(type->substr(0, type->find(';')));
  while (name.ends_with(' ')) name.pop_back();
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return name == "application/json";
}

std::expected<boost::json::object, Response> ParseBody(const RequestHead& head, const std::string& body) {
  if (body.empty()) return boost::json::object();
  if (!IsJson(head)) {
    return std::unexpected(Problem(415, "not_json", "The body must be JSON, with Content-Type: application/json."));
  }
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(body, error);
  if (error) return std::unexpected(Problem(400, "bad_json", "The body is not valid JSON: " + error.message() + "."));
  if (!value.is_object()) return std::unexpected(Problem(400, "bad_json", "The body must be a JSON object."));
  return std::move(value.as_object());
}

}  // namespace

AdminApi::AdminApi(AdminDeps deps)
    : deps_(std::move(deps)),
      auth_(deps_.store, deps_.clock, deps_.bootstrap_token, deps_.bad_tokens_per_minute),
      routes_(AllRoutes()),
      store_lane_(kStoreThreads, kMaxWaiting),
      wait_lane_(1, 0) {
  deps_.bootstrap_token.clear();
}

Result<void> AdminApi::Start() {
  return auth_.Refresh();
}

const Route* AdminApi::FindRoute(const RequestHead& head, std::vector<std::string>* params,
                                 std::string* allowed) const {
  const std::string_view method = head.method == "HEAD" ? std::string_view("GET") : std::string_view(head.method);
  for (const Route& route : routes_) {
    if (!Matches(route.pattern, head.path(), *params)) continue;
    if (route.method == method) return &route;
    if (allowed == nullptr) continue;
    *allowed += (allowed->empty() ? "" : ", ") + std::string(route.method);
    if (route.method == "GET") *allowed += ", HEAD";
  }
  return nullptr;
}

std::expected<Actor, Response> AdminApi::Authorize(const Route& route, const RequestHead& head) {
  if (route.permission == Permission::open) return Actor{.name = "anonymous", .role = "viewer"};
  auto identity = auth_.Identify(head);
  if (!identity) return std::unexpected(std::move(identity.error()));
  if (static_cast<int>(identity->role) < static_cast<int>(route.permission)) {
    const Role needed = static_cast<Role>(route.permission);
    return std::unexpected(Problem(403, "forbidden",
                                   "This needs the role " + std::string(Name(needed)) + "; the token \"" +
                                       identity->name + "\" has the role " + std::string(Name(identity->role)) + "."));
  }
  return Actor{.name = identity->name, .role = std::string(Name(identity->role))};
}

std::expected<Admission, Response> AdminApi::Begin(RequestHead& head) {
  if (head.listens_on_loopback && !IsLocalHost(head.Find("Host").value_or(std::string_view("localhost")))) {
    return std::unexpected(Problem(421, "wrong_host",
                                   "The server listens on this machine only, so its name is localhost, 127.0.0.1 or "
                                   "[::1]. Behind a proxy, let it send one of these as Host."));
  }
  std::vector<std::string> params;
  std::string allowed;
  const Route* route = FindRoute(head, &params, &allowed);
  if (route == nullptr) {
    if (allowed.empty()) return std::unexpected(Problem(404, "no_such_path", "There is nothing at this path."));
    Response response = Problem(405, "method_not_allowed", "This path takes " + allowed + ".");
    response.headers.push_back({"Allow", allowed});
    return std::unexpected(std::move(response));
  }
  if (auto actor = Authorize(*route, head); !actor) return std::unexpected(std::move(actor.error()));
  head.route = route;
  std::size_t max_body = deps_.max_body;
  if (route->body == Body::payload) {
    for (const SourceConfig& source : deps_.sources) max_body = std::max(max_body, source.max_body);
  }
  return Admission{.max_body = max_body, .answer_within = std::nullopt};
}

void AdminApi::Handle(RequestHead head, std::string body, Responder respond) {
  const Route& route = *static_cast<const Route*>(head.route);
  if (route.lane == Lane::quick) return respond(Run(route, head, body));
  WorkPool& pool = route.lane == Lane::waits ? wait_lane_ : store_lane_;
  if (!pool.Reserve()) {
    return respond(route.lane == Lane::waits
                       ? Problem(409, "drain_running", "Another drain is being waited for. Try again when it ended.")
                       : Later(503, "overloaded", "Too many admin calls wait already."));
  }
  pool.Submit([this, &route, head = std::move(head), body = std::move(body),
               respond = std::move(respond)]() mutable -> WorkPool::LastStep {
    return
        [response = Run(route, head, body), respond = std::move(respond)]() mutable { respond(std::move(response)); };
  });
}

Response AdminApi::Run(const Route& route, const RequestHead& head, const std::string& body) {
  try {
    return RunChecked(route, head, body);
  } catch (const std::exception& e) {
    log::Error("admin_call_failed", {{"route", route.pattern}, {"error", e.what()}});
    return Problem(500, "internal", "The call failed inside the server; its log has more.");
  }
}

Response AdminApi::RunChecked(const Route& route, const RequestHead& head, const std::string& body) {
  // Judged again: since the head was read, the token may have been revoked.
  auto actor = Authorize(route, head);
  if (!actor) return std::move(actor.error());
  std::vector<std::string> params;
  FindRoute(head, &params, nullptr);
  if (route.method == "GET" && !body.empty()) return Problem(400, "unexpected_body", "GET takes no body.");
  auto object = route.body == Body::payload ? boost::json::object() : ParseBody(head, body);
  if (!object) return std::move(object.error());
  auto query = Query::Parse(head.query());
  if (!query) return FromError(query.error());

  Call call{.head = head,
            .params = std::move(params),
            .query = std::move(*query),
            .body = Fields(*object),
            .actor = std::move(*actor),
            .raw = body};
  Context context{.deps = deps_, .auth = auth_};
  auto response = route.act(context, call);
  if (route.method == "POST") {
    log::Info("admin_call", {{"route", route.pattern},
                             {"actor", call.actor.name},
                             {"role", call.actor.role},
                             {"remote", head.remote},
                             {"status", response ? response->status : FromError(response.error()).status}});
  }
  return response ? std::move(*response) : FromError(response.error());
}

}  // namespace dlo::server
