// Deliveries that failed verification: kept so that a mis-set secret can be repaired, never dispatched by themselves.
// Capped: the newest 1,000 and at most 64 MiB. Not durable beyond the ordinary flush; a flood of forgeries must not
// cost the disk what receipts cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"

namespace dlo::store {

struct Rejected {
  std::int64_t id = 0;
  Time at{};
  std::string source;
  std::string reason;  // RejectReason by name: "no_match", "too_old", ...
  std::string remote;
  std::vector<Header> headers;
  std::string body;  // empty in lists; see body_bytes
  std::int64_t body_bytes = 0;
};

class Quarantine {
 public:
  virtual ~Quarantine() = default;
  /// Returns at once; dropped (and counted) when the store is busy.
  virtual void Keep(Rejected rejected) = 0;
  /// Newest first, without bodies; empty source = all.
  virtual Result<std::vector<Rejected>> RejectedList(const std::string& source, std::int64_t before, int limit) = 0;
  virtual Result<Rejected> RejectedOne(std::int64_t id) = 0;  // with body
};

}  // namespace dlo::store
