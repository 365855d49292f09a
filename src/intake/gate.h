// Whether a source may send now. What waits must not grow without bound, one source must not fill the house for the
// others, the disk must not be filled to its last byte, and memory must not end the process. Limits are met with a
// refusal that tells the sender to come back; they are looked at once a second, so that a little more than a limit can
// come in.
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

/// What the machine has. Unset: not known, and no limit that needs it opens or closes.
struct Machine {
  std::optional<std::uint64_t> disk_bytes;      // size of the store's file system
  std::optional<std::uint64_t> resident_bytes;  // of this process
};

class Gate {
 public:
  Gate(const Config& config, Metrics& metrics);

  /// With the store's figures, about once a second. A limit that was met opens again below 90 % of it (a disk at twice
  /// the free bytes and 1.6 times the free share that closed it).
  void Update(const store::Figures& figures, const Machine& machine = {});
  /// From any thread. Errors of kind unavailable: "source_backlog", "backlog", "disk_low", "memory_high".
  [[nodiscard]] std::optional<Error> Refusal(const std::string& source) const;
  /// As dlo_disk_low says it: 1 it fills, 2 senders are refused.
  [[nodiscard]] int disk_level() const { return static_cast<int>(disk_->load()); }
  /// Is this more than may be resident?
  [[nodiscard]] bool MemoryOver(std::uint64_t resident_bytes) const;

 private:
  enum class Disk : unsigned char { enough = 0, warned = 1, low = 2 };
  struct Source {
    std::int64_t limit = 0;
    std::atomic<bool> closed = false;
    Counter* refused = nullptr;
  };
  void Set(std::atomic<bool>& closed, bool value, const char* what, const std::string& source);
  void LookAtDisk(std::uint64_t free, std::optional<std::uint64_t> total);

  const std::int64_t max_waiting_;
  const std::uint64_t min_free_, max_memory_;
  const double min_free_percent_, warn_free_percent_;
  std::atomic<bool> full_ = false, disk_low_ = false, memory_high_ = false;
  bool disk_warned_ = false;
  std::shared_ptr<std::atomic<Disk>> disk_ = std::make_shared<std::atomic<Disk>>(Disk::enough);  // for the metric
  std::map<std::string, Source, std::less<>> sources_;
};

}  // namespace dlo::intake
