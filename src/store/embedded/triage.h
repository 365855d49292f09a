// The acts of a person on one letter, inside the caller's transaction on the writing connection. Each act reads the
// row, refuses or writes: state (fenced by the state it read), counts, lanes, failure columns and audit record.
//
// A refusal comes before the first write, so it leaves nothing to undo and other acts of the transaction go on. Any
// other error is the database's: the caller rolls back its transaction and clears the counts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/embedded/counts.h"
#include "store/embedded/lanes.h"
#include "store/embedded/sqlite.h"
#include "store/letters.h"

namespace dlo::store {

/// True if the error is a rule's and not the database's.
[[nodiscard]] bool IsRefusal(const Error& error);

/// Codes of refusals: not_found; conflict: already_replayed, in_replay (names the replay), not_dead_lettered,
/// already_held, not_held, not_resolved, corrupt; invalid: actor_missing, link_missing, resolve_code_missing.
Result<Letter> ApplyTriage(Db& db, Counts& counts, Lanes& lanes, const TriageAct& act, const Actor& actor, Time now);

/// What the move of a letter back to the dispatcher must know of its row.
struct LetterRow {
  EventId id = 0;
  std::int64_t source = 0;  // names.id
  std::string source_name;
  std::string subject;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::optional<std::int64_t> lane;
  bool replaying = false;
  std::int64_t replay_id = 0;
  int replays_failed = 0;
  int attempt_no = 0;
};

/// Why an act is done that nobody asked for by the letter's id: goes into its audit record as {word: id}.
struct TriageCause {
  const char* word = nullptr;  // "decision", "rule"
  std::int64_t id = 0;
};

/// ApplyTriage on a row read in this transaction, without reading the letter afterwards.
Result<void> ApplyToRow(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, const TriageAct& act,
                        const Actor& actor, Time now, const TriageCause& cause);

/// nullopt when there is no such event.
Result<std::optional<LetterRow>> ReadLetterRow(Db& db, EventId id);

/// The one way back to the dispatcher, for a person's replay and for bulk replays: state waiting, due now, full budget,
/// in its place in its subject's lane. False when the row is no longer as `row` says; nothing is changed then.
Result<bool> MoveToReplay(Db& db, Counts& counts, Lanes& lanes, const LetterRow& row, std::int64_t replay_id, Time now);

}  // namespace dlo::store
