// The law of states, in one table: which act moves an event from which state to which. The schema's CHECK constraints
// and docs/lifecycle.md repeat it; a test compares all three.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dlo/states.h"

namespace dlo {

enum class Act : std::uint8_t {
  claim,      // dispatcher: a lease is taken and the attempt is counted
  apply,      // dispatcher or rescuer: what Decide said
  hand_back,  // shutdown: the attempt is not counted
  replay,     // a person, a replay or a drain
  hold,
  release,
  resolve,
  reopen,
};

struct Move {
  Act act;
  State from;
  State to;
};

/// Every legal move; nothing else is.
[[nodiscard]] std::span<const Move> LegalMoves();
[[nodiscard]] bool IsLegal(Act act, State from, State to);
/// Where a person's act leads from a state; nullopt = refused there.
[[nodiscard]] std::optional<State> Target(Act act, State from);
[[nodiscard]] std::string_view Name(Act act);

}  // namespace dlo
