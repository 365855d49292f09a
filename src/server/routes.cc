#include "server/routes.h"

#include <boost/json.hpp>
#include <charconv>

#include "base/encoding.h"
#include "server/utf8.h"

namespace dlo::server {

std::vector<Route> AllRoutes() {
  std::vector<Route> all;
  for (const auto& family : {LetterRoutes(), DecisionRoutes(), ReplayRoutes(), AccessRoutes(), RetentionRoutes(),
                             OperationRoutes(), AlarmRoutes()}) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

Response Json(int status, const boost::json::object& body) {
  Response response;
  response.status = status;
  response.body = boost::json::serialize(body);
  return response;
}

Response PageOf(boost::json::array items, const std::optional<std::string>& next) {
  boost::json::object page;
  page["items"] = std::move(items);
  page["next"] = next ? boost::json::value(*next) : boost::json::value(nullptr);
  return Json(200, page);
}

Result<std::int64_t> PathNumber(const Call& call, std::size_t i) {
  const std::string& text = call.params.at(i);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 1) {
    return Fail(ErrorKind::not_found, "not_found", "\"" + text + "\" is no number that could be found.");
  }
  return number;
}

// A browser must never run what a stranger sent: no type but plain text, no guessing, saved rather than shown.
Response PayloadAnswer(std::string payload, const std::string& file_name) {
  Response response;
  response.content_type = IsUtf8(payload) ? "text/plain; charset=utf-8" : "application/octet-stream";
  response.headers = {{"X-Content-Type-Options", "nosniff"},
                      {"Content-Disposition", "attachment; filename=\"" + file_name + "\""},
                      {"Content-Security-Policy", "sandbox; default-src 'none'"},
                      {"Cache-Control", "no-store"},
                      {"Dlo-Sha256", HexEncode(Sha256(payload))}};
  response.body = std::move(payload);
  return response;
}

HoldRequest TakeHold(Fields& body) {
  return {.link = body.Text("link"),
          .owner = body.Text("owner"),
          .until = body.Moment("until"),
          .wake_on_handler = body.Text("wake_on_handler")};
}

Result<ResolveCode> CodeOf(const std::string& name) {
  if (const auto code = ResolveCodeByName(name)) return *code;
  std::string names;
  for (int i = 0; i < kResolveCodeCount; ++i) {
    names += (i > 0 ? ", " : "") + std::string(dlo::Name(static_cast<ResolveCode>(i)));
  }
  return Fail(ErrorKind::invalid, "bad_field", "The field \"code\" takes one of: " + names + ".");
}

std::string SignatureHeader(const AdminDeps& deps, std::string_view source) {
  for (const SourceConfig& config : deps.sources) {
    if (config.name == source) return config.hmac.signature_header;
  }
  return {};
}

}  // namespace dlo::server
