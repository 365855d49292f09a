#include "server/routes.h"

#include <boost/json.hpp>
#include <charconv>

namespace dlo::server {

std::vector<Route> AllRoutes() {
  std::vector<Route> all;
  for (const auto& family : {LetterRoutes(), ReplayRoutes(), AccessRoutes(), OperationRoutes(), AlarmRoutes()}) {
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

std::string SignatureHeader(const AdminDeps& deps, std::string_view source) {
  for (const SourceConfig& config : deps.sources) {
    if (config.name == source) return config.hmac.signature_header;
  }
  return {};
}

}  // namespace dlo::server
