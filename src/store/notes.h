// Words of people on events and on groups of like failures; only ever added.
#pragma once

#include <cstdint>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

class NoteBook {
 public:
  virtual ~NoteBook() = default;
  /// On `note.event_id`, or if that is 0 on `note.fingerprint`. Audited. Errors not_found: "not_found" (no such event),
  /// "no_such_group" (no letter and no note has the fingerprint); conflict, "too_many_notes".
  virtual Result<Note> AddNote(const Note& note, const Actor& actor, Time now) = 0;
  /// Newest first, those before `before` (0: from the newest). Errors as AddNote for what does not exist.
  virtual Result<std::vector<Note>> ReadNotes(EventId event_id, const std::string& fingerprint, std::int64_t before,
                                              int limit) = 0;
};

inline constexpr int kMaxNotes = 1'000;  // of one thread

}  // namespace dlo::store
