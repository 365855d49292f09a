// The user's code. Called by the dispatcher and by nothing else, for live traffic and for replays alike.
#pragma once

#include <functional>

#include "dlo/event.h"
#include "dlo/outcome.h"

namespace dlo {

/// Applies the effect of one delivery. Runs on a worker thread of its target, up to `concurrency` at once, never twice
/// at once for one subject. Must be idempotent on Delivery::IdempotencyKey(): the same event can come again after a
/// crash, a timeout or a lost answer. A std::exception that escapes counts as a permanent failure with code
/// "exception" (return Outcome::Retryable for what time can cure); anything else thrown does too.
using Handler = std::function<Outcome(const Delivery&)>;

}  // namespace dlo
