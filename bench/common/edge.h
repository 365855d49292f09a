// The HTTP edge over any inbox: what a sender meets.
#pragma once

#include <string>

#include "base/metrics.h"
#include "bench/common/load.h"
#include "intake/receiver.h"
#include "server/http_server.h"
#include "server/ingest.h"

namespace dlo::bench {

class NoQuarantine final : public store::Quarantine {
 public:
  void Keep(store::Rejected rejected) override { Die("a delivery was rejected: " + rejected.reason); }
  Result<std::vector<store::Rejected>> RejectedList(const std::string&, std::int64_t, int) override { return {}; }
  Result<store::Rejected> RejectedOne(std::int64_t) override { return store::Rejected{}; }
};

inline SourceConfig StripeSource() {
  SourceConfig source{.name = "stripe", .scheme = "stripe", .target = "billing"};
  source.secrets = {{"secrets[0]", kSecret}};
  return source;
}

class Edge {
 public:
  Edge(store::Inbox& inbox, Clock& clock)
      : receiver_({StripeSource()}, inbox, quarantine_, clock, metrics_),
        ingest_(receiver_, std::chrono::seconds(3)),
        http_({}, clock) {
    if (auto ok = http_.Start("127.0.0.1:0", ingest_); !ok) Die(ok.error().message);
  }
  ~Edge() { http_.Stop(); }
  Edge(const Edge&) = delete;
  Edge& operator=(const Edge&) = delete;
  [[nodiscard]] int port() const { return http_.port(); }

 private:
  Metrics metrics_;
  NoQuarantine quarantine_;
  intake::Receiver receiver_;
  server::Ingest ingest_;
  server::HttpServer http_;
};

}  // namespace dlo::bench
