// The admin API: finds the route, checks who asks, takes the request apart, runs the act away from the I/O threads.
#pragma once

#include <string_view>
#include <vector>

#include "server/auth.h"
#include "server/http_server.h"
#include "server/routes.h"
#include "server/work_pool.h"

namespace dlo::server {

class AdminApi final : public Handler {
 public:
  explicit AdminApi(AdminDeps deps);

  /// Reads the tokens. Until then only the bootstrap token is known.
  Result<void> Start();

  std::expected<Admission, Response> Begin(RequestHead& head) override;
  void Handle(RequestHead head, std::string body, Responder respond) override;

 private:
  const Route* FindRoute(const RequestHead& head, std::vector<std::string>* params, std::string* allowed) const;
  std::expected<Actor, Response> Authorize(const Route& route, const RequestHead& head);
  Response Run(const Route& route, const RequestHead& head, const std::string& body);
  Response RunChecked(const Route& route, const RequestHead& head, const std::string& body);

  AdminDeps deps_;
  Authenticator auth_;
  const std::vector<Route> routes_;
  // Last, so that their threads end before what they use.
  WorkPool store_lane_;
  WorkPool wait_lane_;
};

}  // namespace dlo::server
