// The real HttpClient: libcurl's multi interface on one thread, connections kept alive between requests.
#pragma once

#include <memory>

#include "env/http_client.h"

namespace dlo {

/// Thread-safe. HTTP/1.1 only. A kept connection is used again only if its address is allowed to the new request too.
class RealHttpClient final : public HttpClient {
 public:
  RealHttpClient();
  ~RealHttpClient() override;  // as Stop
  RealHttpClient(const RealHttpClient&) = delete;
  RealHttpClient& operator=(const RealHttpClient&) = delete;

  /// `done` must not throw and must not call Stop.
  void Start(HttpRequest request, Done done) override;
  /// Answers what is outstanding, and all that comes later, with HttpFailure::stopped. Returns when no `done` of an
  /// outstanding request will be called any more. Idempotent.
  void Stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlo
