// Reads for a diagnosis. Each costs what its limit says, whatever the store holds.
#pragma once

#include <string>
#include <vector>

#include "store/diagnosis.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

Result<std::vector<LetterBrief>> NewestLetters(Db& db, Time since, int limit);
Result<std::vector<TrafficBrief>> NewestTraffic(Db& db, int limit);
Result<std::vector<std::string>> VersionsBefore(Db& db, EventId id, int events);

}  // namespace dlo::store
