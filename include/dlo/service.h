// The office as a library: open a store, give it handlers, receive events, work off dead letters.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "dlo/config.h"
#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo {

enum class AcceptStatus : unsigned char { stored, duplicate, conflict };

struct Accepted {
  AcceptStatus status = AcceptStatus::stored;
  EventId id = 0;        // of this event; for a duplicate, of the first receipt
  EventId first_id = 0;  // conflict only: the first receipt of the key
};

/// Thread-safe. Opening takes the store's lock: one process per store. Destroying it stops it.
class Service {
 public:
  /// Validates the configuration, opens and recovers the store. Nothing runs until Start.
  static Result<std::unique_ptr<Service>> Open(Config config);
  virtual ~Service() = default;

  /// Starts dispatch and, if `listen` is set, the HTTP edge.
  virtual Result<void> Start() = 0;
  /// Stops accepting, finishes or hands back work, flushes. Returns within 25 s. Idempotent.
  virtual void Stop() = 0;

  /// As `POST /in/{source}` does: verifies, extracts, stores durably; returns after the commit.
  /// Errors: not_found (no such source), forbidden (signature; the message names the reason), too_large, unavailable.
  virtual Result<std::vector<Accepted>> Receive(const std::string& source, std::vector<Header> headers,
                                                std::string body) = 0;

  virtual DeadLetters& dead_letters() = 0;
};

}  // namespace dlo
