// Small turns of values into columns, shared by the functions that write events.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace dlo::store {

/// 16 hex digits as the number that the index keeps; nullopt for anything else.
[[nodiscard]] inline std::optional<std::int64_t> FingerprintNumber(std::string_view hex) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), value, 16);
  if (hex.size() != 16 || error != std::errc() || end != hex.data() + hex.size()) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

[[nodiscard]] inline std::optional<std::int64_t> When(bool set, std::int64_t value) {
  if (!set) return std::nullopt;
  return value;
}

}  // namespace dlo::store
