// A small billing application behind the target protocol: what a real handler does right (idempotent by key, honest
// outcomes) and what goes wrong in one (an unknown kind, a customer that was deleted, a currency nobody thought of, a
// ledger that is busy). Its second version cures some of it, so that a replay can be seen to succeed.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "dlo/time.h"
#include "env/clock.h"
#include "server/http_server.h"

namespace dlo::cli {

struct BillingOptions {
  bool fixed = false;  // start as version 2
  Duration outage{};   // 503 to everything for so long after the start
};

/// Thread-safe.
class BillingApp final : public server::Handler {
 public:
  BillingApp(BillingOptions options, const Clock& clock)
      : clock_(clock), fixed_(options.fixed), up_at_(clock.Monotonic() + options.outage) {}

  void Handle(server::RequestHead head, std::string body, server::Responder respond) override {
    respond(Answer(head, body));
  }
  /// POST /fix makes it version 2; GET / shows its counters; any other POST is an event.
  server::Response Answer(const server::RequestHead& head, const std::string& body);

 private:
  server::Response Judge(const server::RequestHead& head, const std::string& body);
  [[nodiscard]] server::Response Figures() const;

  const Clock& clock_;
  std::mutex mutex_;
  bool fixed_;
  const Duration up_at_;
  std::map<std::string, std::int64_t> applied_;  // key -> number of its ledger entry
  std::map<std::string, int> busy_;              // key -> times it met the busy ledger
  std::int64_t already_applied_ = 0, refused_ = 0, unavailable_ = 0;
};

}  // namespace dlo::cli
