#include "base/time_text.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

namespace dlo {
namespace {

using std::chrono::days;
using std::chrono::floor;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::minutes;
using std::chrono::seconds;

/// Reads exactly `n` digits at `at`; -1 if they are not digits.
int Digits(std::string_view text, std::size_t at, std::size_t n) {
  if (at + n > text.size()) return -1;
  int value = 0;
  for (std::size_t i = at; i < at + n; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

std::optional<Time> Date(std::string_view text) {
  if (text.size() < 10 || text[4] != '-' || text[7] != '-') return std::nullopt;
  const int y = Digits(text, 0, 4), m = Digits(text, 5, 2), d = Digits(text, 8, 2);
  if (y < 0 || m < 1 || d < 1) return std::nullopt;
  const std::chrono::year_month_day date{std::chrono::year(y), std::chrono::month(static_cast<unsigned>(m)),
                                         std::chrono::day(static_cast<unsigned>(d))};
  if (!date.ok()) return std::nullopt;
  return std::chrono::sys_days(date);
}

struct Unit {
  std::string_view name;
  Duration length;
};
constexpr std::array kUnits = {Unit{"d", days(1)},
                               Unit{"h", hours(1)},
                               Unit{"m", minutes(1)},
                               Unit{"s", seconds(1)},
                               Unit{"ms", std::chrono::milliseconds(1)},
                               Unit{"us", microseconds(1)}};

}  // namespace

std::string FormatTime(Time time) {
  const auto day = floor<days>(time);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss clock(time - day);
  std::string out = fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}", static_cast<int>(date.year()),
                                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()),
                                clock.hours().count(), clock.minutes().count(), clock.seconds().count());
  if (clock.subseconds().count() != 0) out += fmt::format(".{:06}", clock.subseconds().count());
  return out + "Z";
}

bool IsDate(std::string_view text) {
  return text.size() == 10 && Date(text).has_value();
}

std::optional<Time> ParseTime(std::string_view text) {
  const auto date = Date(text);
  if (!date) return std::nullopt;
  if (text.size() == 10) return date;
  if (text.size() < 20 || (text[10] != 'T' && text[10] != 't' && text[10] != ' ')) return std::nullopt;
  const int h = Digits(text, 11, 2), m = Digits(text, 14, 2), s = Digits(text, 17, 2);
  if (h < 0 || h > 23 || m < 0 || m > 59 || s < 0 || s > 60 || text[13] != ':' || text[16] != ':') return std::nullopt;
  Time time = *date + hours(h) + minutes(m) + seconds(s);
  std::size_t i = 19;
  if (text[i] == '.') {
    std::int64_t scale = 100'000;
    std::size_t digits = 0;
    for (++i; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i, ++digits, scale /= 10) {
      time += microseconds((text[i] - '0') * scale);
    }
    if (digits == 0) return std::nullopt;
  }
  if (i >= text.size()) return std::nullopt;
  if (text[i] == 'Z' || text[i] == 'z') return i + 1 == text.size() ? std::optional(time) : std::nullopt;
  if ((text[i] != '+' && text[i] != '-') || i + 6 != text.size() || text[i + 3] != ':') return std::nullopt;
  const int oh = Digits(text, i + 1, 2), om = Digits(text, i + 4, 2);
  if (oh < 0 || oh > 23 || om < 0 || om > 59) return std::nullopt;
  const Duration offset = hours(oh) + minutes(om);
  return text[i] == '+' ? time - offset : time + offset;
}

std::optional<Duration> ParseDuration(std::string_view text) {
  std::int64_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || n < 0) return std::nullopt;
  const std::string_view unit(end, static_cast<std::size_t>(text.data() + text.size() - end));
  for (const Unit& u : kUnits) {
    if (unit != u.name) continue;
    if (n > std::numeric_limits<std::int64_t>::max() / u.length.count()) return std::nullopt;
    return u.length * n;
  }
  return std::nullopt;
}

std::string FormatDuration(Duration duration) {
  if (duration.count() == 0) return "0s";
  for (const Unit& u : kUnits) {
    if (duration.count() % u.length.count() == 0) return fmt::format("{}{}", duration / u.length, u.name);
  }
  return fmt::format("{}us", duration.count());
}

std::string FormatAge(Duration age) {
  if (age < seconds(0)) age = seconds(0);
  if (age < minutes(2)) return fmt::format("{} s", age / seconds(1));
  if (age < hours(2)) return fmt::format("{} min", age / minutes(1));
  if (age < hours(48)) return fmt::format("{} h", age / hours(1));
  return fmt::format("{} d", age / hours(24));
}

}  // namespace dlo
