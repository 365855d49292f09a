// The words for where an event is. Their law (who may move an event from where to where) is in src/model/law.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dlo {

enum class State : std::uint8_t {
  waiting = 0,    // due for an attempt at due_at
  running = 1,    // leased; its attempt row already exists
  succeeded = 2,  // effect applied by live traffic
  dead = 3,       // needs a person or a drain; has a failure class
  held = 4,       // waits for a fix
  replayed = 5,   // effect applied by a replay, or terminal skip
  resolved = 6,   // not applicable
};
inline constexpr int kStateCount = 7;

enum class FailureClass : std::uint8_t {
  none = 0,
  exhausted = 1,  // budget spent; the only class an automatic drain touches
  permanent = 2,
  poison = 3,    // replay cap reached
  crashed = 4,   // three workers died of it
  conflict = 5,  // same key, other content
  invalid = 6,   // cannot be parsed
  corrupt = 7,   // stored bytes fail their digest
};
inline constexpr int kClassCount = 8;

/// Why a letter was resolved: the closed list of codes.
enum class ResolveCode : std::uint8_t {
  entity_deleted = 0,
  test_event = 1,
  unsupported_kind = 2,
  duplicate = 3,
  superseded = 4,
  handled_manually = 5,
  other = 6,
};
inline constexpr int kResolveCodeCount = 7;

[[nodiscard]] std::string_view Name(State state);
[[nodiscard]] std::string_view Name(FailureClass failure_class);
[[nodiscard]] std::string_view Name(ResolveCode code);
[[nodiscard]] std::optional<State> StateByName(std::string_view name);
[[nodiscard]] std::optional<FailureClass> FailureClassByName(std::string_view name);
[[nodiscard]] std::optional<ResolveCode> ResolveCodeByName(std::string_view name);

}  // namespace dlo
