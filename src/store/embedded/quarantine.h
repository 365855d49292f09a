// Rejected deliveries as rows, capped by number and by bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dlo/result.h"
#include "store/embedded/sqlite.h"
#include "store/quarantine.h"

namespace dlo::store {

inline constexpr std::int64_t kMaxRejected = 1'000;
inline constexpr std::int64_t kMaxRejectedBytes = std::int64_t{64} << 20;  // headers and bodies

/// Inserts in order, then deletes the oldest over either cap; the newest one always stays. In the caller's transaction.
Result<void> KeepRejected(Db& db, std::span<const Rejected> rejected);
/// Newest first, without bodies; empty source = all; `before` 0 = from the newest; at most 500.
Result<std::vector<Rejected>> ListRejected(Db& db, const std::string& source, std::int64_t before, int limit);
/// With body. Error not_found.
Result<Rejected> ReadRejected(Db& db, std::int64_t id);

}  // namespace dlo::store
