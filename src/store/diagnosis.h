// What a diagnosis is made from: bounded looks at the newest letters, at the traffic around them, and at who judged
// just before they began.
#pragma once

#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo::store {

struct LetterBrief {
  EventId id = 0;
  std::string source, kind, account;
  FailureClass failure_class = FailureClass::none;
  std::string fingerprint, code, message;  // the message's first 200 characters
  std::string handler_version;
  Time parked_at{};
};

struct TrafficBrief {
  std::string source, account;
};

class Diagnosis {
 public:
  virtual ~Diagnosis() = default;
  /// The newest `limit` letters in state dead or held, of those the ones parked since `since`; newest receipt first.
  virtual Result<std::vector<LetterBrief>> NewestLetters(Time since, int limit) = 0;
  /// The newest `limit` events of whatever state.
  virtual Result<std::vector<TrafficBrief>> NewestTraffic(int limit) = 0;
  /// Versions that handlers told of themselves while they judged the `events` events received just before `id`.
  virtual Result<std::vector<std::string>> VersionsBefore(EventId id, int events) = 0;
};

}  // namespace dlo::store
