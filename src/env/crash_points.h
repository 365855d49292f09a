// Named places where a test may kill the process. The set of names is part of the tests' contract: grep for
// `crash_points.At(`.
#pragma once

#include <atomic>
#include <string>
#include <string_view>

namespace dlo {

class CrashPoints {
 public:
  virtual ~CrashPoints() = default;
  /// Returns, or the process ends here as by kill -9.
  virtual void At(std::string_view name) = 0;
};

class NoCrashPoints final : public CrashPoints {
 public:
  void At(std::string_view) override {}
};

/// `spec` is "name" or "name:N": dies (SIGKILL to itself) at the Nth passing of `name`. Empty spec never dies.
/// The binary reads it from DLO_CRASH_AT.
class CrashAt final : public CrashPoints {
 public:
  explicit CrashAt(std::string_view spec);
  void At(std::string_view name) override;

 private:
  std::string name_;
  std::atomic<long> countdown_{0};
};

}  // namespace dlo
