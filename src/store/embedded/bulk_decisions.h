// One act on many letters, as rows. The selection is read on a reader, in one snapshot, and written down in bounded
// pieces before anybody is told of it; then it is worked off in bounded steps. So no step holds the index thread long.
//
//   freezing ──(last piece, audit record)──► running ──(last letter)──► done
//      └── died on the way: dropped at the next start
#pragma once

#include <span>
#include <vector>

#include "store/decisions.h"
#include "store/embedded/index_context.h"
#include "store/embedded/rules.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

struct FrozenLetter {
  EventId id = 0;
  State state = State::dead;
  int attempt_no = 0;
};

struct Selection {
  Decision plan;  // count, digest, by_class, by_type
  std::vector<FrozenLetter> letters;
  bool too_many = false;  // letters stops there; the counts do not
};

/// On a reader. Keeps at most `keep` letters, 0 for a plan.
Result<Selection> SelectLetters(Db& db, const Filter& filter, Act act, std::int64_t keep);

/// The next three are the pieces of a creation, each in a transaction of its own (all in one for a small selection).
Result<std::int64_t> BeginDecision(Db& db, const Filter& filter, const BulkAct& act, const Actor& actor, Time now);
Result<void> AddToDecision(Db& db, std::int64_t id, std::span<const FrozenLetter> letters);
Result<Decision> SealDecision(Db& db, std::int64_t id, const Selection& selection, const DecisionOptions& options,
                              const Actor& actor, Time now);
/// What was never sealed: at start, and when a creation fails.
Result<void> DropUnsealed(Db& db);

Result<std::vector<std::int64_t>> ReadOpenDecisions(Db& db);
Result<Decision> StepDecision(IndexContext& context, const HoldsLane& holds_lane, std::int64_t id, int n, Time now);
Result<Decision> ReadDecision(Db& db, std::int64_t id);
Result<std::vector<Decision>> ReadDecisions(Db& db, int limit);

inline constexpr std::size_t kFreezePiece = 5'000;  // letters written down in one transaction

}  // namespace dlo::store
