// The figures, read from the index at one moment.
#pragma once

#include <cstdint>

#include "dlo/result.h"
#include "dlo/time.h"
#include "store/embedded/sqlite.h"
#include "store/figures.h"

namespace dlo::store {

/// What the index cannot know by itself.
struct FigureFacts {
  std::int64_t journal_seq = 0;             // newest record of the journal
  Time now{};                               // for held letters whose date has passed
  std::optional<std::uint64_t> free_bytes;  // on the store's file system
};

/// Cheap: reads the kept counts, one index look-up per source, and held letters that are overdue.
Result<Figures> ReadFigures(Db& db, const FigureFacts& facts);
/// Counts the rows. `counts` are those of the rows; accounting_difference is not 0 when the rows do not add up to what
/// was taken in, or when any kept count differs from its rows (then: the sum of those differences without their signs,
/// when the totals agree).
Result<Figures> RecountFigures(Db& db, const FigureFacts& facts);

}  // namespace dlo::store
