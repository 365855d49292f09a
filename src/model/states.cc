#include "dlo/states.h"

#include <array>

#include "model/law.h"

namespace dlo {
namespace {

constexpr std::array<std::string_view, kStateCount> kStates = {"waiting", "running",  "succeeded", "dead",
                                                               "held",    "replayed", "resolved"};
constexpr std::array<std::string_view, kClassCount> kClasses = {"none",    "exhausted", "permanent", "poison",
                                                                "crashed", "conflict",  "invalid",   "corrupt"};
constexpr std::array<std::string_view, kResolveCodeCount> kResolveCodes = {
    "entity_deleted", "test_event", "unsupported_kind", "duplicate", "superseded", "handled_manually", "other"};
constexpr std::array<std::string_view, 8> kActs = {"claim", "apply",   "hand_back", "replay",
                                                   "hold",  "release", "resolve",   "reopen"};

template <typename Enum, std::size_t N>
std::optional<Enum> ByName(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

constexpr std::array kMoves = {
    Move{Act::claim, State::waiting, State::running},     Move{Act::apply, State::running, State::waiting},
    Move{Act::apply, State::running, State::succeeded},   Move{Act::apply, State::running, State::dead},
    Move{Act::apply, State::running, State::replayed},    Move{Act::apply, State::running, State::resolved},
    Move{Act::hand_back, State::running, State::waiting}, Move{Act::replay, State::dead, State::waiting},
    Move{Act::replay, State::held, State::waiting},       Move{Act::hold, State::dead, State::held},
    Move{Act::release, State::held, State::dead},         Move{Act::resolve, State::dead, State::resolved},
    Move{Act::resolve, State::held, State::resolved},     Move{Act::reopen, State::resolved, State::dead},
};

}  // namespace

std::string_view Name(State state) {
  return kStates.at(static_cast<std::size_t>(state));
}
std::string_view Name(FailureClass failure_class) {
  return kClasses.at(static_cast<std::size_t>(failure_class));
}
std::string_view Name(ResolveCode code) {
  return kResolveCodes.at(static_cast<std::size_t>(code));
}
std::string_view Name(Act act) {
  return kActs.at(static_cast<std::size_t>(act));
}

std::optional<State> StateByName(std::string_view name) {
  return ByName<State>(kStates, name);
}
std::optional<FailureClass> FailureClassByName(std::string_view name) {
  return ByName<FailureClass>(kClasses, name);
}
std::optional<ResolveCode> ResolveCodeByName(std::string_view name) {
  return ByName<ResolveCode>(kResolveCodes, name);
}

std::span<const Move> LegalMoves() {
  return kMoves;
}

bool IsLegal(Act act, State from, State to) {
  for (const Move& m : kMoves) {
    if (m.act == act && m.from == from && m.to == to) return true;
  }
  return false;
}

std::optional<State> Target(Act act, State from) {
  if (act == Act::apply) return std::nullopt;  // Decide's business
  for (const Move& m : kMoves) {
    if (m.act == act && m.from == from) return m.to;
  }
  return std::nullopt;
}

}  // namespace dlo
