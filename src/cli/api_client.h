// One HTTP client for the commands: synchronous, one connection kept, errors already worded for the person typing.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <string>
#include <vector>

#include "dlo/result.h"
#include "dlo/time.h"

namespace dlo::cli {

struct ApiAnswer {
  int status = 0;
  std::string body;
};

/// Error codes of our own, beside the server's: "unreachable" (kind unavailable) when nothing answered.
inline constexpr char kUnreachableCode[] = "unreachable";

/// Not thread-safe.
class ApiClient {
 public:
  /// `server` is a base address, "http://127.0.0.1:8686". Proxies of the environment are ignored and redirects are not
  /// followed: the token goes to the server named and nowhere else.
  ApiClient(std::string server, std::string token);
  ~ApiClient();
  ApiClient(const ApiClient&) = delete;
  ApiClient& operator=(const ApiClient&) = delete;

  /// 2xx answers; anything else is an Error with the server's code and a message that says what to do next.
  Result<ApiAnswer> Get(const std::string& path, Duration timeout = std::chrono::seconds(60));
  Result<ApiAnswer> Post(const std::string& path, const boost::json::object& body,
                         Duration timeout = std::chrono::seconds(60));
  /// Any bytes as the body.
  Result<ApiAnswer> PostBytes(const std::string& path, std::string_view body,
                              Duration timeout = std::chrono::seconds(60));
  /// Without the token and without judging the status: for deliveries.
  Result<ApiAnswer> Deliver(const std::string& path, const std::vector<std::string>& headers, std::string_view body);

  [[nodiscard]] const std::string& server() const { return server_; }

 private:
  struct Call;
  Result<ApiAnswer> Perform(const Call& call);
  Result<ApiAnswer> PostAs(const char* type, const std::string& path, std::string_view body, Duration timeout);
  [[nodiscard]] Error Explain(const ApiAnswer& answer) const;

  struct Handle;
  std::string server_, token_;
  std::unique_ptr<Handle> handle_;
};

/// The answer's body as JSON; an Error if it is not.
[[nodiscard]] Result<boost::json::value> ParseBody(const ApiAnswer& answer);

/// Percent-encodes everything but unreserved characters: for paths and queries.
[[nodiscard]] std::string UrlEncode(std::string_view text);

}  // namespace dlo::cli
