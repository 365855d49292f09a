// What every act of the desk is asked first. Limits are in characters, not bytes: a limit that people see must not
// depend on their language.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::deadletter {

inline constexpr int kMaxPage = 500;
inline constexpr std::size_t kMaxReason = 1000;
inline constexpr std::size_t kMaxLink = 1000;
inline constexpr std::size_t kMaxName = 200;
inline constexpr std::int64_t kMaxSelection = 100'000'000;

std::unexpected<Error> Invalid(std::string code, std::string message);
/// In characters.
[[nodiscard]] std::size_t Length(std::string_view utf8);
[[nodiscard]] bool Blank(std::string_view text);
Result<void> Check(const Actor& actor);
Result<void> CheckId(EventId id);
Result<void> CheckLimit(int limit);
Result<void> CheckHold(const HoldRequest& request, Time now);

}  // namespace dlo::deadletter
