#include "store/embedded/prune.h"

#include <algorithm>

#include "base/encoding.h"
#include "store/embedded/legal_holds.h"

namespace dlo::store {
namespace {

/// As long as a digest must be so that nobody finds two keys with one.
constexpr std::size_t kHashBytes = 16;

std::string KeyHash(std::string_view source, std::string_view key) {
  const Sha256Digest digest = Sha256(std::string(source).append(1, '\0').append(key));
  return {reinterpret_cast<const char*>(digest.data()), kHashBytes};
}

/// False: it is gone, or it is no longer as the sidecar has it.
Result<bool> KeepKey(IndexContext& context, const SidecarEvent& event, std::int64_t& source) {
  Statement row = context.db.Prepare(
      "SELECT e.source, e.state, e.class, e.finished_at, e.token, n.name, r.key, r.body_sha256, r.conflict_of, "
      "r.segment, r.position, r.length, r.key_digest, r.key_ordinal FROM events e JOIN receipts r ON r.id = e.id "
      "JOIN names n ON n.id = e.source WHERE e.id = ?1");
  const auto there = row.Bind(1, event.id).Step();
  if (!there) return std::unexpected(there.error());
  if (!*there || row.Int(1) != static_cast<int>(event.state) || row.Int(3) != event.finished_at ||
      row.Int(2) != static_cast<int>(event.failure_class) || row.Int(4) != event.token) {
    return false;
  }
  source = row.Int(0);
  if (auto kept = KeepPruned(context.db, event.id, row.Text(5), row.Text(6), row.Text(7), row.Int(8),
                             {row.Int(9), row.Int(10), row.Int(11)});
      !kept) {
    return std::unexpected(kept.error());
  }
  // The newest keys are still to come into the table, from rows that go now (key_index.h).
  auto done = context.db
                  .Prepare(
                      "INSERT INTO event_keys (key_digest, key_ordinal, event_id) VALUES (?1, ?2, ?3) "
                      "ON CONFLICT (key_digest, key_ordinal) DO NOTHING")
                  .Bind(1, row.Int(12))
                  .Bind(2, row.Int(13))
                  .Bind(3, event.id)
                  .Run();
  if (!done) return std::unexpected(done.error());
  return true;
}

}  // namespace

Result<void> KeepPruned(Db& db, EventId id, std::string_view source, std::string_view key, std::string_view body_sha256,
                        std::int64_t conflict_of, const Place& place) {
  const std::string key_hash = KeyHash(source, key);
  return db
      .Prepare(
          "INSERT INTO pruned (id, key_hash, body_hash, conflict_of, segment, position, length) "
          "VALUES (?1, ?2, ?3, nullif(?4, 0), ?5, ?6, ?7)")
      .Bind(1, id)
      .BindBlob(2, key_hash)
      .BindBlob(3, body_sha256.substr(0, kHashBytes))
      .Bind(4, conflict_of)
      .Bind(5, place.segment)
      .Bind(6, place.position)
      .Bind(7, place.length)
      .Run();
}

Result<void> CountPruned(Db& db, std::int64_t events) {
  return db.Prepare("UPDATE meta SET value = value + ?1 WHERE name = 'pruned'").Bind(1, events).Run();
}

Result<PruneStep> PruneEvents(IndexContext& context, std::span<const SidecarEvent> events, Duration budget) {
  const Duration began = context.clock.Monotonic();
  PruneStep step;
  if (events.empty()) return step;
  const auto held = EventsOnHold(context.db, events.front().id, events.back().id);
  if (!held) return std::unexpected(held.error());
  for (const SidecarEvent& event : events) {
    if (step.looked_at > 0 && context.clock.Monotonic() - began >= budget) break;
    ++step.looked_at;
    if (!event.pruned || std::ranges::binary_search(*held, event.id)) continue;
    std::int64_t source = 0;
    const auto kept = KeepKey(context, event, source);
    if (!kept) return std::unexpected(kept.error());
    if (!*kept) continue;
    for (const SidecarTable& table : SidecarTables()) {
      if (table.prune == nullptr) continue;
      if (auto gone = context.db.Prepare(table.prune).Bind(1, event.id).Run(); !gone) {
        return std::unexpected(gone.error());
      }
    }
    context.counts.Add(source, event.state, event.failure_class, -1);
    ++(event.state == State::succeeded ? step.succeeded : step.closed);
  }
  if (step.succeeded + step.closed == 0) return step;
  if (auto counted = CountPruned(context.db, step.succeeded + step.closed); !counted) {
    return std::unexpected(counted.error());
  }
  return step;
}

Result<std::optional<PrunedEvent>> FindPruned(Db& db, EventId id, const Receipt* receipt,
                                              const Sha256Digest* body_sha256) {
  Statement row =
      db.Prepare("SELECT segment, position, length, conflict_of, key_hash, body_hash FROM pruned WHERE id = ?1");
  const auto there = row.Bind(1, id).Step();
  if (!there) return std::unexpected(there.error());
  if (!*there) return std::nullopt;
  PrunedEvent found{.place = {row.Int(0), row.Int(1), row.Int(2)}, .conflict_of = row.Int(3)};
  if (receipt != nullptr) found.same_key = row.Text(4) == KeyHash(receipt->source, receipt->key);
  if (body_sha256 != nullptr) {
    found.same_body = row.Text(5) == std::string_view(reinterpret_cast<const char*>(body_sha256->data()), kHashBytes);
  }
  return found;
}

}  // namespace dlo::store
