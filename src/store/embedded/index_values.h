// Small turns of values into columns, shared by the functions that write events.
#pragma once

#include <cstdint>
#include <optional>

namespace dlo::store {

[[nodiscard]] inline std::optional<std::int64_t> When(bool set, std::int64_t value) {
  if (!set) return std::nullopt;
  return value;
}

}  // namespace dlo::store
