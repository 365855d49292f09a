// The admin API as data: which method and path, who may, what does it. The router, the permission check and the tests'
// matrix of roles read the same table.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "deadletter/probe.h"
#include "dispatch/dispatcher.h"
#include "dlo/config.h"
#include "dlo/dead_letters.h"
#include "env/clock.h"
#include "observe/alarms.h"
#include "observe/figures.h"
#include "observe/health.h"
#include "server/auth.h"
#include "server/http_server.h"
#include "server/request_words.h"
#include "store/store.h"

namespace dlo::server {

/// What the admin API works on. All of it outlives the API.
struct AdminDeps {
  DeadLetters& letters;  // the rules of triage
  store::Store& store;
  Clock& clock;
  observe::Scrape& scrape;
  observe::Health& health;
  const std::vector<SourceConfig>& sources;
  std::function<std::vector<dispatch::BreakerView>()> breakers;
  std::function<void(const std::string& source)> resumed;  // Dispatcher::Resumed
  observe::Alarms* alarms = nullptr;                       // nullptr = none
  std::function<Result<deadletter::ProbeReport>(const Actor&)> probe;
  std::string bootstrap_token;  // DLO_ADMIN_TOKEN; empty = none
  std::size_t max_body = 256 * 1024;
  int bad_tokens_per_minute = 5;  // of one address
};

struct Call {
  const RequestHead& head;
  std::vector<std::string> params;  // what stood for each {…} of the pattern
  Query query;
  Fields body;
  Actor actor;             // its reason is set by the route that reads one
  const std::string& raw;  // of a route that takes a payload: its bytes
};

struct Context {
  AdminDeps& deps;
  Authenticator& auth;
};

enum class Permission : unsigned char { open, viewer, operator_, admin };

using Act = Result<Response> (*)(Context&, Call&);

/// Where an act runs, so that none starves another.
enum class Lane : unsigned char {
  quick,  // on the I/O thread: touches nothing that can block
  store,  // on the pool: takes a store call or a few
  waits,  // on a thread of its own: blocks for as long as the caller asked; one at a time
};

/// What a POST carries.
enum class Body : unsigned char {
  json,     // an object, or nothing
  payload,  // an event's payload: any bytes, as many as the largest max_body of a source
};

/// A route without a permission does not compile.
struct Route {
  consteval Route(std::string_view m, std::string_view p, Permission who, Act a, Lane l = Lane::store,
                  Body b = Body::json)
      : method(m), pattern(p), permission(who), act(a), lane(l), body(b) {}
  std::string_view method;   // GET (HEAD goes with it) or POST
  std::string_view pattern;  // "/v1/events/{id}/payload"
  Permission permission;
  Act act;
  Lane lane;
  Body body;
};

std::span<const Route> LetterRoutes();     // events and dead letters
std::span<const Route> DecisionRoutes();   // acts on many, rules, notes, revisions
std::span<const Route> ReplayRoutes();     // replays and drain
std::span<const Route> AccessRoutes();     // tokens and audit
std::span<const Route> RetentionRoutes();  // prune, legal holds, archive
std::span<const Route> OperationRoutes();  // sources, rejected, stats, metrics, health
std::span<const Route> AlarmRoutes();      // alerts, probe, diagnosis
[[nodiscard]] std::vector<Route> AllRoutes();

/// {"items":[…],"next":"…"}; `next` is null on the last page.
[[nodiscard]] Response PageOf(boost::json::array items, const std::optional<std::string>& next);
[[nodiscard]] Response Json(int status, const boost::json::object& body);
/// The number in place `i` of the path; error not_found.
[[nodiscard]] Result<std::int64_t> PathNumber(const Call& call, std::size_t i);
/// Bytes from outside, so that nothing runs or renders them.
[[nodiscard]] Response PayloadAnswer(std::string payload, const std::string& file_name);
/// The words of a hold: link, owner, until, wake_on_handler.
[[nodiscard]] HoldRequest TakeHold(Fields& body);
/// Error invalid, "bad_field", naming the codes there are.
[[nodiscard]] Result<ResolveCode> CodeOf(const std::string& name);
/// The header that carries a source's signature, where its name is configured; else "".
[[nodiscard]] std::string SignatureHeader(const AdminDeps& deps, std::string_view source);

inline constexpr int kDefaultPage = 50;
inline constexpr int kMaxPage = 500;

}  // namespace dlo::server
