// SameEvent with each source's own volatile fields: what the store asks when a known key comes with other bytes. Made
// before the store is opened, since recovery asks too.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/config.h"
#include "intake/json_pointer.h"

namespace dlo::intake {

/// Thread-safe.
class SameEventRules {
 public:
  /// The sources have passed CheckSource.
  explicit SameEventRules(std::span<const SourceConfig> sources);
  /// A source that is no longer configured compares byte for byte.
  [[nodiscard]] bool SameEvent(const std::string& source, std::string_view first, std::string_view second) const;

 private:
  std::map<std::string, std::vector<JsonPath>> volatile_fields_;
};

}  // namespace dlo::intake
