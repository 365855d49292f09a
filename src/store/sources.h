// Sources whose dispatch was stopped by the systemic breaker. Stored, so that a restart does not spend another fifty
// events to learn the same.
#pragma once

#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

struct SourcePause {
  std::string source;
  std::string fingerprint;
  std::string message;  // of the failure, for people
  Time since{};
};

class Sources {
 public:
  virtual ~Sources() = default;
  /// Audited (actor "system" for the breaker). Pausing a paused source changes nothing.
  virtual Result<void> Pause(const SourcePause& pause, const Actor& actor) = 0;
  /// Error not_found, code not_paused.
  virtual Result<void> Resume(const std::string& source, const Actor& actor, Time now) = 0;
  virtual Result<std::vector<SourcePause>> Pauses() = 0;
};

}  // namespace dlo::store
