// Outgoing HTTP. One guarded client for every call we make: the address actually dialled is checked against the policy,
// redirects are not followed, environment proxies are ignored, and one deadline covers connect, headers and body.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/event.h"
#include "dlo/time.h"

namespace dlo {

struct HttpRequest {
  std::string method = "POST";
  std::string url;
  std::vector<std::string> headers;  // "Name: value"; values already free of CR and LF
  std::string_view body;
  std::shared_ptr<const void> body_owner;  // keeps `body` alive; no copy is made
  Duration timeout = std::chrono::seconds(30);
  Duration connect_timeout = std::chrono::seconds(3);
  bool allow_private = false;  // metadata addresses (169.254/16, fd00:ec2::254) are refused all the same
  std::size_t max_header_bytes = 32 * 1024;
  std::size_t max_body_bytes = 64 * 1024;  // read; more is an error, since a handler has no reason to send it
  std::size_t keep_body_bytes = 4 * 1024;  // kept
};

enum class HttpFailure : unsigned char {
  none,
  blocked_address,
  resolve,
  connect,
  tls,
  timeout,
  reset,  // closed or broken before a whole answer
  answer_too_large,
  invalid_url,
  stopped,  // the client is shutting down
};

struct HttpResponse {
  HttpFailure failure = HttpFailure::none;
  std::string failure_message;
  int status = 0;
  std::vector<Header> headers;
  std::string body;  // at most keep_body_bytes
  Duration took{};
};

class HttpClient {
 public:
  using Done = std::move_only_function<void(HttpResponse)>;
  virtual ~HttpClient() = default;
  /// Returns at once; `done` is called exactly once, on a thread of the client (or within Start for a simulated one).
  virtual void Start(HttpRequest request, Done done) = 0;
};

}  // namespace dlo
