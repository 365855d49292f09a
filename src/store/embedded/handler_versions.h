// Which versions the handlers of a target said they are. Noted with the first answer of each version; the newest is the
// one first seen last.
#pragma once

#include <string_view>

#include "dlo/result.h"
#include "dlo/time.h"
#include "store/embedded/index_context.h"

namespace dlo::store {

/// In the transaction of an answer: notes the version if its target is new to it. Costs a look into memory for a
/// version that was noted before. A target that never stops inventing versions is heard up to kMaxVersions of them.
Result<void> NoteHandlerVersion(IndexContext& context, std::int64_t source, EventId id, std::int64_t attempt_no,
                                std::string_view version, Time at);

inline constexpr int kMaxVersions = 1'000;

/// Condition over `events e` and `failures f`: was a version seen that the letter's wake_on_handler names (the version
/// itself, or a pattern of * and ?)? A letter that no target has tried yet is woken by any target's.
inline constexpr char kWakeSeen[] =
    "(f.wake_on_handler <> '' AND EXISTS (SELECT 1 FROM handler_versions hv WHERE "
    "(hv.version = f.wake_on_handler OR hv.version GLOB f.wake_on_handler) AND (e.attempt_no = 0 OR hv.target = "
    "(SELECT wa.target FROM attempts wa WHERE wa.event_id = e.id AND wa.number = e.attempt_no))))";

}  // namespace dlo::store
