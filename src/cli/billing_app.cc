#include "cli/billing_app.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <string_view>

#include "base/encoding.h"
#include "cli/json.h"
#include "cli/samples.h"

namespace dlo::cli {
namespace {

using server::Response;

constexpr std::array<std::string_view, 4> kCurrencies = {"usd", "eur", "gbp", "chf"};
// The ledger is busy at the first tries of some events: of one in twelve for less than a retry budget (which ones hangs
// on the key alone, so that a run can be repeated), of a locked customer for all of the demo's short one, so that a
// drain finds something that time has cured. Rare enough that the target's breaker stays closed.
constexpr std::int64_t kBusyOneIn = 12;
constexpr int kBusyTries = 2, kLockedTries = 4;

int BusyTries(const std::string& key, std::string_view customer) {
  if (customer == LockedCustomer()) return kLockedTries;
  return (Digest64(key) & 0x7fffffff) % kBusyOneIn == 0 ? kBusyTries : 0;
}

Response Refuse(int status, std::string_view reason, const std::string& message) {
  boost::json::object body = {{"error", {{"code", reason}, {"message", message}}}};
  return {.status = status,
          .content_type = "application/json",
          .body = boost::json::serialize(body),
          .headers = {{"Dlo-Reason", std::string(reason)}},
          .close = false};
}

Response Took(std::string_view outcome, std::int64_t entry) {
  return {.status = 200,
          .content_type = "application/json",
          .body = fmt::format("{{\"entry\":{}}}", entry),
          .headers = {{"Dlo-Outcome", std::string(outcome)}, {"Dlo-Effect", fmt::format("ledger:{}", entry)}},
          .close = false};
}

Response Busy(const std::string& why) {
  Response response = Refuse(503, "ledger_busy", why);
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

bool Knows(std::string_view kind) {
  auto kinds = SampleKinds();
  return std::ranges::find(kinds.first(kinds.size() - 1), kind) != kinds.end() - 1;
}

// Empty when the event can be applied; else why version 1 cannot.
Response Validate(const boost::json::value& event, bool fixed) {
  std::string kind = Text(event, "type");
  if (kind.empty()) return Refuse(400, "schema_mismatch", "the event has no type");
  if (!Knows(kind)) return Refuse(422, "unsupported_kind", fmt::format("no handler for {}", kind));
  const boost::json::value* data = Field(event, "data");
  const boost::json::value* object = data ? Field(*data, "object") : nullptr;
  if (!object) return Refuse(400, "schema_mismatch", "the event has no data.object");
  std::string customer = Text(*object, "customer"), currency = Text(*object, "currency");
  if (!fixed && std::ranges::find(DeletedCustomers(), customer) != DeletedCustomers().end()) {
    return Refuse(404, "not_found", fmt::format("No such customer: '{}'", customer));
  }
  if (!fixed && std::ranges::find(kCurrencies, currency) == kCurrencies.end()) {
    return Refuse(400, "unsupported_currency", fmt::format("amounts in {} are not supported", currency));
  }
  return {.status = 200, .content_type = {}, .body = {}, .headers = {}, .close = false};
}

}  // namespace

Response BillingApp::Answer(const server::RequestHead& head, const std::string& body) {
  std::lock_guard lock(mutex_);
  Response response;
  if (head.method == "GET") {
    response = Figures();
  } else if (head.path() == "/fix") {
    fixed_ = true;
    response = Figures();
  } else {
    response = Judge(head, body);
    if (response.status == 503) ++unavailable_;
    if (response.status / 100 == 4) ++refused_;
  }
  response.headers.push_back({"Dlo-Handler-Version", fixed_ ? "2" : "1"});
  return response;
}

Response BillingApp::Judge(const server::RequestHead& head, const std::string& body) {
  if (clock_.Monotonic() < up_at_) return Busy("the ledger is starting");
  boost::json::error_code ec;
  boost::json::value event = boost::json::parse(body, ec);
  if (ec) return Refuse(400, "schema_mismatch", "the body is not JSON");
  std::string key(head.Find("Idempotency-Key").value_or(""));
  if (key.empty()) key = Text(event, "id");
  if (key.empty()) return Refuse(400, "schema_mismatch", "the event has no id");
  if (auto entry = applied_.find(key); entry != applied_.end()) {
    ++already_applied_;
    return Took("already-applied", entry->second);
  }
  Response verdict = Validate(event, fixed_);
  if (verdict.status != 200) {
    busy_[key] = kLockedTries;  // once it is cured, its replay meets a ledger that is free
    return verdict;
  }
  const boost::json::value& object = event.at("data").at("object");  // Validate saw that they are there
  if (int tries = BusyTries(key, Text(object, "customer")); tries > 0 && busy_[key] < tries) {
    ++busy_[key];
    return Busy("lock wait timeout on table ledger");
  }
  auto entry = static_cast<std::int64_t>(applied_.size()) + 1;
  applied_[key] = entry;
  busy_.erase(key);
  return Took("applied", entry);
}

Response BillingApp::Figures() const {
  boost::json::object figures = {{"version", fixed_ ? 2 : 1},
                                 {"applied", applied_.size()},
                                 {"already_applied", already_applied_},
                                 {"refused", refused_},
                                 {"unavailable", unavailable_}};
  return {.status = 200,
          .content_type = "application/json",
          .body = boost::json::serialize(figures) + "\n",
          .headers = {},
          .close = false};
}

}  // namespace dlo::cli
