// Puts the head of the audit log's chain where the store's owner cannot reach it unseen: a line in a file, a POST to a
// URL. Whoever rewrites the log then has to rewrite those too.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/metrics.h"
#include "dlo/config.h"
#include "env/clock.h"
#include "env/files.h"
#include "env/http_client.h"
#include "intake/sign.h"
#include "store/access.h"

namespace dlo::observe {

struct HeadKeeperDeps {
  store::Access& store;
  Files& files;
  HttpClient& http;
  Clock& clock;
  Metrics& metrics;
};

/// For a thread of its own: RunOnce waits for the disk. What fails is told, counted (dlo_audit_heads_total) and tried
/// again after 30 s, then twice as long each time up to `every`, with the head as it is then; it stops nothing else.
class HeadKeeper {
 public:
  /// With neither a file nor a URL it does nothing.
  HeadKeeper(const EvidenceConfig& config, HeadKeeperDeps deps);
  ~HeadKeeper();

  /// Returns when it wants to run again.
  Time RunOnce(Time now);

 private:
  struct Place;
  void ToFile(const store::EvidenceHead& head, Time now);
  Result<void> Append(const std::string& line);
  void ToUrl(const store::EvidenceHead& head, Time now);

  const EvidenceConfig config_;
  HeadKeeperDeps deps_;
  std::optional<intake::Signer> signer_;
  // Shared with the answers of the HTTP client, which may come after the end.
  std::shared_ptr<Place> file_, url_;
};

}  // namespace dlo::observe
