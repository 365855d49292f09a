// Whether a source may send now. What waits must not grow without bound, one source must not fill the house for the
// others, and the disk must not be filled to its last byte. Limits are met with a refusal that tells the sender to come
// back; they are looked at once a second, so that a little more than a limit can come in.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "base/metrics.h"
#include "dlo/config.h"
#include "dlo/result.h"
#include "store/figures.h"

namespace dlo::intake {

class Gate {
 public:
  Gate(const Config& config, Metrics& metrics);

  /// With the store's figures, about once a second. A limit that was met opens again below 90 % of it (a disk at twice
  /// the free space that closed it).
  void Update(const store::Figures& figures);
  /// From any thread. Errors of kind unavailable: "source_backlog", "backlog", "disk_low".
  [[nodiscard]] std::optional<Error> Refusal(const std::string& source) const;

 private:
  struct Source {
    std::int64_t limit = 0;
    std::atomic<bool> closed = false;
    Counter* refused = nullptr;
  };
  void Set(std::atomic<bool>& closed, bool value, const char* what, const std::string& source);

  const std::int64_t max_waiting_;
  const std::uint64_t min_free_;
  std::atomic<bool> full_ = false, disk_low_ = false;
  std::map<std::string, Source, std::less<>> sources_;
};

}  // namespace dlo::intake
