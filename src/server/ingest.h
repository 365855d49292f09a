// POST /in/{source}: the door for webhooks. The hottest path of the server.
#pragma once

#include <memory>

#include "dlo/config.h"
#include "intake/gate.h"
#include "intake/receiver.h"
#include "server/http_server.h"

namespace dlo::server {

class Ingest final : public Handler {
 public:
  /// Receiver and gate outlive every request. Without a gate everybody may send.
  Ingest(intake::Receiver& receiver, Duration commit_deadline, const intake::Gate* gate = nullptr)
      : receiver_(receiver), commit_deadline_(commit_deadline), gate_(gate) {}

  static constexpr std::string_view kPrefix = "/in/";

  std::expected<Admission, Response> Begin(RequestHead& head) override;
  /// Answers 200 after the commit only; 503 when there is none within the deadline, even if one comes later.
  void Handle(RequestHead head, std::string body, Responder respond) override;

 private:
  intake::Receiver& receiver_;
  const Duration commit_deadline_;
  const intake::Gate* const gate_;
};

}  // namespace dlo::server
