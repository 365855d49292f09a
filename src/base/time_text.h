// RFC 3339 times and short durations as people write them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dlo/time.h"

namespace dlo {

/// "2026-11-30T13:23:29.123456Z"; the fraction is left out when zero.
[[nodiscard]] std::string FormatTime(Time time);
/// RFC 3339 with offset ("Z" or "+01:00"), or a date (its start, UTC). nullopt when it is neither.
[[nodiscard]] std::optional<Time> ParseTime(std::string_view text);
/// True for "2026-11-30": a date without a time.
[[nodiscard]] bool IsDate(std::string_view text);
/// "30s", "5m", "24h", "14d", "250ms". nullopt otherwise.
[[nodiscard]] std::optional<Duration> ParseDuration(std::string_view text);
/// The largest whole unit: "5m", "90s", "250ms".
[[nodiscard]] std::string FormatDuration(Duration duration);
/// For people: "3 s", "12 min", "4 h", "9 d".
[[nodiscard]] std::string FormatAge(Duration age);

[[nodiscard]] inline std::int64_t ToMicros(Time t) {
  return t.time_since_epoch().count();
}
[[nodiscard]] inline Time FromMicros(std::int64_t us) {
  return Time(Duration(us));
}

}  // namespace dlo
