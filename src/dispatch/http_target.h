// Calls a handler over HTTP: builds the request of the target protocol (docs/operating.md) and reads the answer.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/target.h"
#include "intake/sign.h"

namespace dlo::dispatch {

class HttpTarget final : public Target {
 public:
  HttpTarget(const TargetConfig& config, HttpClient& http, Clock& clock);
  [[nodiscard]] int capacity() const override { return concurrency_; }
  void Start(Delivery delivery, Done done) override;
  void DropQueued() override { stopping_ = true; }
  void Abandon() override {}

 private:
  const std::string name_, url_;
  const Duration timeout_, connect_timeout_;
  const bool allow_private_;
  const int concurrency_;
  const std::size_t max_header_bytes_, max_body_bytes_;
  HttpClient& http_;
  Clock& clock_;
  std::optional<intake::Signer> signer_;  // nullopt = not signed
  std::string signer_error_;
  bool stopping_ = false;
};

/// The headers of the request: those received, without hop-by-hop ones and without any that speaks in our name, then
/// ours. `signer` adds our Standard Webhooks signature over the body in place of the sender's own.
/// Dlo-Event-Key, Dlo-Kind, Dlo-Source and Idempotency-Key are percent-encoded where they hold "%", bytes outside
/// printable ASCII, or spaces at an end, so that percent-decoding always gives the exact value.
[[nodiscard]] std::vector<std::string> BuildHeaders(const Delivery& delivery, const intake::Signer* signer, Time now);

/// The table of the target protocol. nullopt: the client stopped before an answer. `now` reads a Retry-After date.
[[nodiscard]] std::optional<Outcome> OutcomeOf(const HttpResponse& response, Time now);

/// Seconds, or an HTTP date (negative when it has passed). nullopt when it is neither.
[[nodiscard]] std::optional<Duration> ParseRetryAfter(std::string_view value, Time now);

[[nodiscard]] std::string PercentEncode(std::string_view value);

}  // namespace dlo::dispatch
