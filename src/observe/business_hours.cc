#include "observe/business_hours.h"

#include <date/tz.h>
#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"

namespace dlo::observe {
namespace {

bool IsWorkday(const BusinessHours& hours, date::local_days day) {
  const int number = static_cast<int>(date::weekday(day).c_encoding());
  return std::ranges::find(hours.days, number) != hours.days.end();
}

}  // namespace

Result<void> CheckZone(const std::string& zone) {
  try {  // the library has no other answer
    (void)date::locate_zone(zone);
    return {};
  } catch (const std::exception&) {
    return Fail(
        ErrorKind::invalid, "bad_zone",
        fmt::format("\"{}\" is not a zone of this machine's tz database: write one such as \"Europe/Berlin\", and "
                    "install tzdata if it is missing",
                    CleanText(zone, 64)));
  }
}

bool IsOpen(const BusinessHours& hours, Time now) {
  const auto local = date::locate_zone(hours.zone)->to_local(now);
  const auto day = date::floor<date::days>(local);
  const auto since_midnight = std::chrono::duration_cast<Duration>(local - day);
  return IsWorkday(hours, day) && since_midnight >= hours.from && since_midnight < hours.to;
}

Time NextOpening(const BusinessHours& hours, Time now) {
  if (IsOpen(hours, now)) return now;
  const auto* zone = date::locate_zone(hours.zone);
  const auto today = date::floor<date::days>(zone->to_local(now));
  for (int ahead = 0; ahead <= 8; ++ahead) {
    const date::local_days day = today + date::days(ahead);
    if (!IsWorkday(hours, day)) continue;
    const Time opening = std::chrono::time_point_cast<Duration>(
        zone->to_sys(date::local_time<Duration>(day) + hours.from, date::choose::earliest));
    if (opening > now) return opening;
  }
  return now;  // no workday at all: validated away
}

}  // namespace dlo::observe
