// Rows go: of events that a verified sidecar holds as they still stand. A small step at a time, on the index thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "dlo/result.h"
#include "env/clock.h"
#include "store/embedded/index_context.h"
#include "store/embedded/journal.h"
#include "store/embedded/sidecar.h"
#include "store/retention.h"

namespace dlo::store {

struct PruneStep {
  std::size_t looked_at = 0;  // of the events given
  std::int64_t succeeded = 0, closed = 0;
};

/// Prunes from the beginning of `events` on, until `budget` is over; at least one. Leaves events that changed since the
/// sidecar was written, and those on legal hold.
Result<PruneStep> PruneEvents(IndexContext& context, std::span<const SidecarEvent> events, Duration budget);

/// What is kept of a pruned event.
struct PrunedEvent {
  Place place;
  EventId conflict_of = 0;
  bool same_key = false, same_body = false;  // as the receipt that was asked about
};
/// nullopt: it was not pruned. Without a receipt only the place is told.
Result<std::optional<PrunedEvent>> FindPruned(Db& db, EventId id, const Receipt* receipt,
                                              const Sha256Digest* body_sha256);

/// An event that is over and has no rows: its key stays known. For PruneEvents, and for an index that is rebuilt.
Result<void> KeepPruned(Db& db, EventId id, std::string_view source, std::string_view key, std::string_view body_sha256,
                        std::int64_t conflict_of, const Place& place);
Result<void> CountPruned(Db& db, std::int64_t events);

}  // namespace dlo::store
