// What fires, when it is told, and when it is over: pure rules over facts. Nothing here reads a clock, a store or a
// network; the store commits what a pass decided, and the sender delivers it.
//
// A condition is told when it begins, again after repeat_every while it lasts, and once when it has been over for
// resolve_after. Arrivals are told by cause: at once, then at most every arrivals_every with the number that came
// since. Outside business hours an alert is a ticket (or waits, or goes elsewhere); what still fires when they begin is
// told then, as a page.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/config.h"
#include "store/alarms.h"
#include "store/figures.h"

namespace dlo::observe {

inline constexpr std::array<std::string_view, 8> kRules = {"arrivals",      "depth",      "oldest", "overdue_holds",
                                                           "silent_source", "accounting", "disk",   "probe"};
/// Causes that fire at once for one receiver; further ones are told together as "other causes".
inline constexpr std::size_t kMaxCauses = 50;

/// Its name, or the host of its URL.
[[nodiscard]] std::string ReceiverName(const AlertConfig& alert);

struct Silence {
  std::string source;
  Time last{};  // its newest receipt, or since when it could have sent one
  Duration limit{};
};

struct AlarmFacts {
  Time now{};
  store::Figures figures;
  std::vector<store::OverdueHold> holds;
  std::vector<Silence> sources;  // those with a limit, silent or not
  int disk_level = 0;            // Gate::disk_level
  std::string probe_failed;      // empty = it did not
};

/// What fires now by the receiver's thresholds, arrivals apart. At most one of a rule and a name.
struct Firing {
  std::string rule, name, source, what;
  EventId sample = 0;
};
[[nodiscard]] std::vector<Firing> FiringNow(const AlertConfig& alert, const AlarmFacts& facts,
                                            const std::vector<store::AlarmCondition>& conditions);

/// One pass over all receivers. Its `taken` are all arrivals of `now`, whoever wants them.
[[nodiscard]] store::AlarmPass Judge(const std::vector<AlertConfig>& receivers, const AlarmFacts& facts,
                                     const store::AlarmsNow& now);
/// Does the pass change anything?
[[nodiscard]] bool ChangesAnything(const store::AlarmPass& pass);

/// The id that receivers see: another for each alert, also for one that is made anew after a power cut took it back.
[[nodiscard]] std::string AlertId(const store::Alert& alert);

}  // namespace dlo::observe
