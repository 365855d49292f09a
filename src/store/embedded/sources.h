// Paused sources as rows. Those that write work inside the caller's transaction.
#pragma once

#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"
#include "store/sources.h"

namespace dlo::store {

/// Pausing a paused source changes nothing and leaves no record.
Result<void> PauseSource(Db& db, const SourcePause& pause, const Actor& actor);
/// Error not_found, "not_paused".
Result<void> ResumeSource(Db& db, const std::string& source, const Actor& actor, Time now);
Result<std::vector<SourcePause>> ReadPauses(Db& db);

}  // namespace dlo::store
