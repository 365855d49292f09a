// Decisions that last: one act on many letters, standing rules, notes, and corrected payloads. Part of DeadLetters
// (dlo/dead_letters.h); each is recorded with who and when.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/letters.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo {

struct DecisionOptions {
  std::int64_t max = 10'000;  // more than this is refused (too_many) unless force
  bool force = false;
  bool all = false;  // needed for an empty filter
  bool dry_run = false;
};

/// For a dry run `id` is 0 and nothing changed.
struct Decision {
  std::int64_t id = 0;
  std::string act;    // hold | release | resolve | reopen
  std::string state;  // running | done
  Time created_at{};
  std::string actor, reason, filter;  // filter as JSON
  std::int64_t count = 0;             // frozen at creation: what comes later is not in it
  std::int64_t changed = 0;
  std::int64_t skipped = 0;          // somebody decided, or it was tried again, between the freeze and its turn
  std::vector<EventId> skipped_ids;  // when it is done, or looked at; at most 100
  std::string digest;                // SHA-256 over the ids in order, hex
  bool over_cap = false;
  std::map<std::string, std::int64_t> by_class, by_type;  // when made or planned
};

/// A decision made ahead: letters that match when they die are resolved, or held. At most once per letter and rule, and
/// never a letter that a person reopened or released.
struct Rule {
  std::int64_t id = 0;
  std::string name;  // [a-z0-9][a-z0-9_-]{0,63}, one live rule of a name; its acts are those of actor "rule:<name>"
  Filter match;      // names a type, subject, account, fingerprint or q; never ids or states
  std::optional<ResolveCode> resolve_code;  // resolve with it; unset: hold
  std::string hold_link, hold_owner;        // hold
  Time expires_at{};                        // at most kMaxRuleLife from now
  // Set by the store.
  std::string state;  // live | ended | expired
  Time created_at{};
  std::string actor, reason;
  std::int64_t hits = 0;
  std::optional<Time> last_hit_at, ended_at;
};
inline constexpr Duration kMaxRuleLife = std::chrono::hours(24 * 90);

/// What a rule would have matched among the letters that are dead now.
struct RuleTrial {
  std::int64_t count = 0;
  std::map<std::string, std::int64_t> by_class, by_type;
  std::vector<EventId> samples;  // oldest ones
};

}  // namespace dlo
