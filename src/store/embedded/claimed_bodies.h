// The receipts of claims that were not in memory. Read on the thread of whoever asks and not on the index thread, which
// goes on with the next transaction meanwhile.
#pragma once

#include <vector>

#include "store/embedded/journal.h"
#include "store/embedded/reader_pool.h"
#include "store/queue.h"

namespace dlo::store {

/// Fills in the receipts that are missing; marks as corrupt those whose bytes are wrong. One that the disk does not
/// give just now stays missing.
void LoadClaimed(const Journal& journal, ReaderPool& readers, std::vector<Claimed>& claimed);

}  // namespace dlo::store
