// From the bytes of one delivery to a durable receipt: verify over the exact bytes, extract, accept, answer.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/metrics.h"
#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "env/clock.h"
#include "store/inbox.h"
#include "store/quarantine.h"

namespace dlo::intake {

struct Incoming {
  std::vector<Header> headers;
  std::string body;
  std::string remote;  // address of the peer, for the quarantine
};

/// Error kinds and what the edge answers: not_found 404, forbidden 401 (message says nothing but "rejected"; the reason
/// is counted and quarantined), too_large 413, invalid 415 (content coding), unavailable 503.
using ReceiveDone = std::move_only_function<void(Result<std::vector<Accepted>>)>;

/// Thread-safe; never blocks.
class Receiver {
 public:
  Receiver(const std::vector<SourceConfig>& sources, store::Inbox& inbox, store::Quarantine& quarantine, Clock& clock,
           Metrics& metrics);
  ~Receiver();

  /// nullptr = unknown source. Lives as long as the Receiver.
  [[nodiscard]] const SourceConfig* Find(std::string_view source) const;
  /// `done` is called exactly once, maybe before Receive returns (a rejection), else on a store thread.
  void Receive(const SourceConfig& source, Incoming incoming, ReceiveDone done);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlo::intake
