// Notes as rows. Functions that write work inside the caller's transaction on the writing connection.
#pragma once

#include "store/embedded/sqlite.h"
#include "store/notes.h"

namespace dlo::store {

inline constexpr int kNotesShown = 50;  // with an event

Result<Note> InsertNote(Db& db, const Note& note, const Actor& actor, Time now);
/// Of an event, or if that is 0 of a group. Does not ask whether it exists.
Result<std::vector<Note>> ReadNotes(Db& db, EventId event_id, const std::string& fingerprint, std::int64_t before,
                                    int limit);
/// not_found unless there is such an event, or group: a letter or a note with that fingerprint.
Result<void> CheckNoted(Db& db, EventId event_id, const std::string& fingerprint);

}  // namespace dlo::store
