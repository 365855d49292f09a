#include "store/embedded/replay_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/triage.h"

namespace dlo::store {
namespace {

struct Releasing {
  std::int64_t id = 0;
  Filter filter;
  std::int64_t stagger_us = 0;
  bool goes_on = false;  // canary or running
  bool canary = false;
};

Result<Releasing> ReadReleasing(Db& db, std::int64_t replay_id) {
  Statement rows = db.Prepare("SELECT state, filter, stagger_us FROM replays WHERE id = ?1");
  auto row = rows.Bind(1, replay_id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "replay_not_found", fmt::format("There is no replay {}.", replay_id));
  auto filter = FilterFromJson(rows.Text(1));
  if (!filter) {
    return Fail(ErrorKind::corrupt, "replay_corrupt",
                fmt::format("The filter of replay {} cannot be read.", replay_id));
  }
  const bool canary = rows.Text(0) == "canary";
  return Releasing{.id = replay_id,
                   .filter = std::move(*filter),
                   .stagger_us = rows.Int(2),
                   .goes_on = canary || rows.Text(0) == "running",
                   .canary = canary};
}

struct SourceQueue {
  std::int64_t source = 0;
  std::string name;
  EventId through = 0;
  std::vector<EventId> ids;  // by receipt
};

Result<std::vector<SourceQueue>> QueuesOf(Db& db, std::int64_t replay_id) {
  Statement rows = db.Prepare(
      "SELECT s.source, n.name, s.released_through FROM replay_sources s JOIN names n ON n.id = s.source "
      "WHERE s.replay_id = ?1 AND s.queued > 0");
  rows.Bind(1, replay_id);
  std::vector<SourceQueue> queues;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return queues;
    queues.push_back({rows.Int(0), rows.String(1), rows.Int(2), {}});
  }
}

Result<void> ReadQueue(Db& db, const Releasing& replay, SourceQueue& queue, std::int64_t n) {
  Statement rows = replay.canary ? db.Prepare(
                                       "SELECT event_id FROM replay_items INDEXED BY replay_items_canary "
                                       "WHERE replay_id = ?1 AND source = ?2 AND event_id > ?3 AND state = 0 "
                                       "AND canary = 1 ORDER BY event_id LIMIT ?4")
                                 : db.Prepare(
                                       "SELECT event_id FROM replay_items WHERE replay_id = ?1 AND source = ?2 "
                                       "AND event_id > ?3 AND state = 0 ORDER BY event_id LIMIT ?4");
  rows.Bind(1, replay.id).Bind(2, queue.source).Bind(3, replay.canary ? 0 : queue.through).Bind(4, n);
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    queue.ids.push_back(rows.Int(0));
  }
}

/// The first `order.n` by receipt, of each source at most what the order says.
Result<std::vector<std::pair<EventId, std::int64_t>>> NextItems(Db& db, const Releasing& replay,
                                                                std::vector<SourceQueue>& queues,
                                                                const ReleaseOrder& order) {
  std::vector<std::pair<EventId, std::int64_t>> items;
  for (SourceQueue& queue : queues) {
    const auto most = order.most.find(queue.name);
    const std::int64_t n = order.most.empty()         ? order.n
                           : most == order.most.end() ? 0
                                                      : std::min(order.n, most->second);
    if (n <= 0) continue;
    if (auto read = ReadQueue(db, replay, queue, n); !read) return std::unexpected(read.error());
    for (const EventId id : queue.ids) items.emplace_back(id, queue.source);
  }
  std::ranges::sort(items);
  if (std::ssize(items) > order.n) items.resize(static_cast<std::size_t>(std::max<std::int64_t>(order.n, 0)));
  return items;
}

int WhySkipped(const std::optional<LetterRow>& row) {
  if (!row) return kSkippedErased;
  if (row->replaying) return kSkippedOtherReplay;
  const bool dead = row->state == State::dead;
  return dead && IsPoison(row->failure_class, row->replays_failed) ? kSkippedPoison : kSkippedState;
}

/// Hands one letter over, or says why it is skipped and returns false.
Result<bool> ReleaseOne(Db& db, Counts& counts, Lanes& lanes, const Releasing& replay, EventId id, std::int64_t source,
                        Time now) {
  const auto row = ReadLetterRow(db, id);
  if (!row) return std::unexpected(row.error());
  bool released = false;
  if (*row && MayReplay(replay.filter, (*row)->state, (*row)->failure_class, (*row)->replays_failed)) {
    auto moved = MoveToReplay(db, counts, lanes, **row, replay.id, now);
    if (!moved) return std::unexpected(moved.error());
    released = *moved;
  }
  const int result = released ? 0 : WhySkipped(*row);
  if (!released) {
    counts.replays().End(replay.id, source, {.was = ItemState::queued, .canary = replay.canary, .result = result}, now);
  }
  auto written =
      db.Prepare(
            "UPDATE replay_items SET state = ?4, result = ?5 WHERE replay_id = ?1 AND source = ?2 AND event_id = ?3 "
            "AND state = 0")
          .Bind(1, replay.id)
          .Bind(2, source)
          .Bind(3, id)
          .Bind(4, static_cast<int>(released ? ItemState::open : ItemState::ended))
          .Bind(5, result)
          .Run();
  if (!written) return std::unexpected(written.error());
  return released;
}

/// What was taken from a source's queue.
struct Taken {
  std::int64_t n = 0, released = 0;
  EventId last = 0;
};
/// A canary's letters are not the first ones of the queue, so its beginning stays where it is.
Result<void> MoveOn(Db& db, const Releasing& replay, std::int64_t source, const Taken& taken) {
  return db
      .Prepare(
          "UPDATE replay_sources SET queued = queued - ?3, open = open + ?5, "
          "released_through = max(released_through, ?4) WHERE replay_id = ?1 AND source = ?2")
      .Bind(1, replay.id)
      .Bind(2, source)
      .Bind(3, taken.n)
      .Bind(4, replay.canary ? 0 : taken.last)
      .Bind(5, taken.released)
      .Run();
}

}  // namespace

Result<std::int64_t> CreateSingleReplay(Db& db, EventId id, std::int64_t source, const Actor& actor, Time now) {
  Filter filter;
  filter.ids = {id};
  const std::string name = CleanText(actor.name, 200), reason = CleanText(actor.reason, 4'096);
  const std::string filter_json = FilterToJson(filter), digest = HexEncode(Sha256(std::to_string(id)));
  Statement insert = db.Prepare(
      "INSERT INTO replays (kind, state, created_at, actor, reason, filter, digest, count, batch_size, stagger_us, "
      "next_batch_at, mark_at, next_mark_at) VALUES ('replay', 'running', ?1, ?2, ?3, ?4, ?5, 1, 1, 0, ?1, ?1, ?1)");
  auto done = insert.Bind(1, ToMicros(now)).Bind(2, name).Bind(3, reason).Bind(4, filter_json).Bind(5, digest).Run();
  if (!done) return std::unexpected(done.error());
  const std::int64_t replay_id = sqlite3_last_insert_rowid(db.handle());
  auto item = db.Prepare("INSERT INTO replay_items (replay_id, source, event_id, state) VALUES (?1, ?2, ?3, 1)")
                  .Bind(1, replay_id)
                  .Bind(2, source)
                  .Bind(3, id)
                  .Run();
  if (!item) return std::unexpected(item.error());
  auto of = db.Prepare(
                  "INSERT INTO replay_sources (replay_id, source, queued, open, released_through) "
                  "VALUES (?1, ?2, 0, 1, ?3)")
                .Bind(1, replay_id)
                .Bind(2, source)
                .Bind(3, id)
                .Run();
  if (!of) return std::unexpected(of.error());
  return replay_id;
}

Result<std::optional<std::int64_t>> ReplayThatHolds(Db& db, EventId id, std::int64_t source) {
  Statement rows = db.Prepare(
      "SELECT o.id FROM replays o INDEXED BY replays_holding CROSS JOIN replay_items i ON i.replay_id = o.id "
      "AND i.source = ?2 AND i.event_id = ?1 AND i.state = 0 "
      "WHERE o.state IN ('plan', 'canary', 'running', 'paused', 'stopped') AND o.queued > 0 LIMIT 1");
  auto row = rows.Bind(1, id).Bind(2, source).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::nullopt;
  return rows.Int(0);
}

Result<std::vector<RunningReplay>> RunningReplays(Db& db) {
  // One statement, so that one moment is seen. In the canary only its own letters may be handed over.
  Statement rows = db.Prepare(
      "SELECT r.id, r.state = 'canary', r.batch_size, r.stagger_us, r.next_batch_at, r.stop_percent, r.recent, "
      "r.recent_n, r.canary_left, r.canary_ended, r.canary_dead, n.name, s.queued, s.open, s.retrying, "
      "CASE WHEN r.state = 'canary' THEN (SELECT count(*) FROM replay_items i INDEXED BY replay_items_canary "
      "WHERE i.replay_id = r.id AND i.source = s.source AND i.canary = 1 AND i.state = 0) END "
      "FROM replays r INDEXED BY replays_active CROSS JOIN replay_sources s ON s.replay_id = r.id "
      "CROSS JOIN names n ON n.id = s.source "
      "WHERE r.state IN ('plan', 'canary', 'running') AND r.state <> 'plan' "
      "AND (r.queued > 0 OR r.state = 'canary') ORDER BY r.id");
  std::vector<RunningReplay> running;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return running;
    if (running.empty() || running.back().id != rows.Int(0)) {
      RunningReplay& r = running.emplace_back();
      r.id = rows.Int(0);
      r.canary = rows.Int(1) != 0;
      r.batch_size = static_cast<int>(rows.Int(2));
      r.stagger = Duration(rows.Int(3));
      r.next_batch_at = FromMicros(rows.Int(4));
      r.stop_percent = static_cast<int>(rows.Int(5));
      r.recent = static_cast<int>(std::min<std::int64_t>(rows.Int(7), kRecentEnds));
      const auto bits = static_cast<std::uint64_t>(rows.Int(6)) & ((std::uint64_t{1} << r.recent) - 1);
      r.recent_dead = std::popcount(bits);
      r.canary_left = rows.Int(8);
      r.canary_ended = rows.Int(9);
      r.canary_dead = rows.Int(10);
    }
    running.back().sources.push_back({.source = rows.String(11),
                                      .queued = rows.IsNull(15) ? rows.Int(12) : rows.Int(15),
                                      .open = rows.Int(13),
                                      .retrying = rows.Int(14)});
  }
}

Result<std::map<std::string, std::int64_t>> CountLiveDue(Db& db, std::span<const std::string> sources, Time now,
                                                         int at_most) {
  std::map<std::string, std::int64_t> due;
  for (const std::string& source : sources) {
    // Bounded twice: letters of replays stand between them.
    Statement rows = db.Prepare(
        "SELECT count(*) FROM (SELECT 1 FROM (SELECT replaying FROM events INDEXED BY events_due WHERE state = 0 "
        "AND behind = 0 AND source = (SELECT id FROM names WHERE name = ?1) AND due_at <= ?2 "
        "ORDER BY due_at, id LIMIT 4096) WHERE replaying = 0 LIMIT ?3)");
    const auto row = rows.Bind(1, source).Bind(2, ToMicros(now)).Bind(3, at_most).Step();
    if (!row) return std::unexpected(row.error());
    due[source] = rows.Int(0);
  }
  return due;
}

Result<std::int64_t> ReleaseItems(Db& db, Counts& counts, Lanes& lanes, const ReleaseOrder& order) {
  const auto replay = ReadReleasing(db, order.replay_id);
  if (!replay) return std::unexpected(replay.error());
  if (!replay->goes_on) return 0;
  auto queues = QueuesOf(db, order.replay_id);
  if (!queues) return std::unexpected(queues.error());
  const auto items = NextItems(db, *replay, *queues, order);
  if (!items) return std::unexpected(items.error());
  std::map<std::int64_t, Taken> taken;
  for (const auto& [id, source] : *items) {
    const auto released = ReleaseOne(db, counts, lanes, *replay, id, source, order.now);
    if (!released) return std::unexpected(released.error());
    Taken& of = taken[source];
    ++of.n;
    of.released += *released;
    of.last = id;
  }
  for (const auto& [source, of] : taken) {
    if (auto done = MoveOn(db, *replay, source, of); !done) return std::unexpected(done.error());
  }
  const std::int64_t next =
      order.next_batch_at ? ToMicros(*order.next_batch_at) : ToMicros(order.now) + replay->stagger_us;
  auto set = db.Prepare("UPDATE replays SET next_batch_at = ?2, queued = queued - ?3 WHERE id = ?1")
                 .Bind(1, order.replay_id)
                 .Bind(2, next)
                 .Bind(3, std::ssize(*items))
                 .Run();
  if (!set) return std::unexpected(set.error());
  Statement left = db.Prepare("SELECT queued FROM replays WHERE id = ?1");
  if (auto row = left.Bind(1, order.replay_id).Step(); !row) return std::unexpected(row.error());
  return left.Int(0);
}

Result<void> EndReplayItem(Db& db, Counts& counts, const ReplayEnd& end) {
  if (end.result == ReplayResult::none) return {};
  Statement item = db.Prepare(
      "SELECT state, canary FROM replay_items WHERE replay_id = ?1 AND source = ?2 AND event_id = ?3 "
      "AND state IN (1, 2)");
  const auto found = item.Bind(1, end.replay_id).Bind(2, end.source).Bind(3, end.id).Step();
  if (!found) return std::unexpected(found.error());
  if (!*found) return {};
  const ItemEnd ended{.was = static_cast<ItemState>(item.Int(0)),
                      .canary = item.Int(1) != 0,
                      .result = static_cast<int>(end.result),
                      .parked = end.failure_class != FailureClass::exhausted,
                      .suppressed = end.suppressed};
  auto written = db.Prepare(
                       "UPDATE replay_items SET state = 3, result = ?4, class = ?5 "
                       "WHERE replay_id = ?1 AND source = ?2 AND event_id = ?3 AND state IN (1, 2)")
                     .Bind(1, end.replay_id)
                     .Bind(2, end.source)
                     .Bind(3, end.id)
                     .Bind(4, static_cast<int>(end.result))
                     .Bind(5, static_cast<int>(end.failure_class))
                     .Run();
  if (!written) return written;
  counts.replays().End(end.replay_id, end.source, ended, end.at);
  return {};
}

Result<void> RetryReplayItem(Db& db, Counts& counts, std::int64_t replay_id, std::int64_t source, EventId id) {
  auto written = db.Prepare(
                       "UPDATE replay_items SET state = 2 "
                       "WHERE replay_id = ?1 AND source = ?2 AND event_id = ?3 AND state = 1")
                     .Bind(1, replay_id)
                     .Bind(2, source)
                     .Bind(3, id)
                     .Run();
  if (!written) return written;
  if (db.Changes() == 1) counts.replays().Retrying(replay_id, source);
  return {};
}

}  // namespace dlo::store
