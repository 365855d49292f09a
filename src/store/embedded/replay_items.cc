#include "store/embedded/replay_items.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "store/embedded/access.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/index_values.h"
#include "store/embedded/reads.h"
#include "store/embedded/triage.h"
#include "store/pace.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr int kMaxRows = 500;

/// SHA-256 over decimal ids joined by "\n", fed one by one.
class IdDigest {
 public:
  IdDigest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(EventId id) {
    text_.clear();
    fmt::format_to(std::back_inserter(text_), "{}{}", first_ ? "" : "\n", id);
    first_ = false;
    EVP_DigestUpdate(context_.get(), text_.data(), text_.size());
  }
  std::string Hex() {
    Sha256Digest digest;
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    return HexEncode(digest);
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  std::string text_;
  bool first_ = true;
};

/// From rows of id, class, kind, received_at in order of id.
Result<ReplayPlan> Summarise(Statement& rows) {
  ReplayPlan plan;
  IdDigest digest;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    digest.Add(rows.Int(0));
    ++plan.count;
    ++plan.by_class[std::string(Name(static_cast<FailureClass>(rows.Int(1))))];
    ++plan.by_type[rows.String(2)];
    const Time received = FromMicros(rows.Int(3));
    if (!plan.oldest || received < *plan.oldest) plan.oldest = received;
  }
  plan.digest = digest.Hex();
  return plan;
}

std::string SelectionFrom(const FilterSql& sql, bool with_receipts = false) {
  return fmt::format(" FROM events e{} WHERE {}", sql.Joins(with_receipts), sql.where());
}

Result<ReplayPlan> PlanWith(Db& db, const Filter& filter, const ReplayOptions& options) {
  const auto pace = PaceOf(options);
  if (!pace) return std::unexpected(pace.error());
  const auto sql = FilterSql::ForReplay(filter);
  if (!sql) return std::unexpected(sql.error());
  auto rows =
      db.PrepareOnce("SELECT e.id, e.class, r.kind, e.received_at" + SelectionFrom(*sql, true) + " ORDER BY e.id");
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  auto plan = Summarise(*rows);
  if (!plan) return plan;
  plan->over_cap = plan->count > options.max;
  plan->estimated_seconds = EstimateSeconds(plan->count, *pace);
  return plan;
}

struct ReplayRow {
  std::string kind, filter, digest;
  std::int64_t count = 0;
  EventId released_through = 0;
  Pace pace;
};

Result<std::int64_t> InsertReplay(Db& db, const ReplayRow& row, const Actor& actor, Time now) {
  const std::string name = CleanText(actor.name, 200), reason = CleanText(actor.reason, 4'096);
  Statement insert = db.Prepare(
      "INSERT INTO replays (kind, state, created_at, actor, reason, filter, digest, count, batch_size, stagger_us, "
      "next_batch_at, released_through) VALUES (?1, 'running', ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?2, ?10)");
  auto done = insert.Bind(1, row.kind)
                  .Bind(2, ToMicros(now))
                  .Bind(3, name)
                  .Bind(4, reason)
                  .Bind(5, row.filter)
                  .Bind(6, row.digest)
                  .Bind(7, row.count)
                  .Bind(8, row.pace.batch_size)
                  .Bind(9, row.pace.stagger.count())
                  .Bind(10, row.released_through)
                  .Run();
  if (!done) return std::unexpected(done.error());
  return sqlite3_last_insert_rowid(db.handle());
}

/// One statement takes the whole selection, or one more than the cap.
Result<std::int64_t> Freeze(Db& db, const FilterSql& sql, std::int64_t replay_id, std::int64_t at_most) {
  const int next = sql.next_parameter();
  auto insert =
      db.PrepareOnce(fmt::format("INSERT INTO replay_items (replay_id, event_id, state) SELECT ?{}, e.id, 0{} "
                                 "ORDER BY e.id LIMIT ?{}",
                                 next, SelectionFrom(sql), next + 1));
  if (!insert) return std::unexpected(insert.error());
  sql.BindTo(*insert);
  auto done = insert->Bind(next, replay_id).Bind(next + 1, at_most).Run();
  if (!done) return std::unexpected(done.error());
  return db.Changes();
}

std::unexpected<Error> TooLarge(Db& db, const FilterSql& sql, std::int64_t max) {
  // What was frozen just now would count as taken by another replay.
  if (auto undone = db.Exec("ROLLBACK TO create_replay"); !undone) return std::unexpected(undone.error());
  auto rows = db.PrepareOnce("SELECT count(*)" + SelectionFrom(sql));
  if (!rows) return std::unexpected(rows.error());
  sql.BindTo(*rows);
  if (auto row = rows->Step(); !row) return std::unexpected(row.error());
  return Fail(
      ErrorKind::too_large, "replay_too_large",
      fmt::format("The filter selects {} letters and the cap is {}. Narrow the filter, raise max, or set force.",
                  rows->Int(0), max));
}

Result<ReplayPlan> CreateInside(Db& db, const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                const Actor& actor, Time now) {
  const auto pace = PaceOf(options);
  if (!pace) return std::unexpected(pace.error());
  const auto sql = FilterSql::ForReplay(filter);
  if (!sql) return std::unexpected(sql.error());
  const std::string filter_json = FilterToJson(filter);
  const auto id = InsertReplay(db, {.kind = kind, .filter = filter_json, .pace = *pace}, actor, now);
  if (!id) return std::unexpected(id.error());
  // A max of all there is must not wrap around when one is added.
  const std::int64_t at_most = options.force ? -1 : std::min(options.max, INT64_MAX - 1) + 1;
  const auto frozen = Freeze(db, *sql, *id, at_most);
  if (!frozen) return std::unexpected(frozen.error());
  if (!options.force && *frozen > options.max) return TooLarge(db, *sql, options.max);

  Statement items = db.Prepare(
      "SELECT e.id, e.class, r.kind, e.received_at FROM replay_items i CROSS JOIN events e ON e.id = i.event_id "
      "CROSS JOIN receipts r ON r.id = i.event_id "
      "WHERE i.replay_id = ?1 ORDER BY i.event_id");
  auto plan = Summarise(items.Bind(1, *id));
  if (!plan) return plan;
  plan->id = *id;
  plan->over_cap = plan->count > options.max;
  plan->estimated_seconds = EstimateSeconds(plan->count, *pace);
  // One of nothing is done at once; any other with its last item.
  const bool over = plan->count == 0;
  auto counted =
      db.Prepare("UPDATE replays SET count = ?2, queued = ?2, digest = ?3, state = ?4, finished_at = ?5 WHERE id = ?1")
          .Bind(1, *id)
          .Bind(2, plan->count)
          .Bind(3, plan->digest)
          .Bind(4, over ? "done" : "running")
          .Bind(5, When(over, ToMicros(now)))
          .Run();
  if (!counted) return std::unexpected(counted.error());

  const json::object details = {
      {"replay", *id},          {"filter", filter_json},          {"count", plan->count},
      {"digest", plan->digest}, {"batch_size", pace->batch_size}, {"stagger_us", pace->stagger.count()},
      {"max", options.max},     {"force", options.force}};
  auto audited = WriteAudit(db, actor, now, kind == "drain" ? "drain" : "bulk_replay", 0, json::serialize(details));
  if (!audited) return std::unexpected(audited.error());
  return plan;
}

struct Running {
  Filter filter;
  std::int64_t stagger_us = 0;
  EventId released_through = 0;
  bool running = false;
};

Result<Running> ReadRunning(Db& db, std::int64_t replay_id) {
  Statement rows = db.Prepare("SELECT state, filter, stagger_us, released_through FROM replays WHERE id = ?1");
  auto row = rows.Bind(1, replay_id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "replay_not_found", fmt::format("There is no replay {}.", replay_id));
  auto filter = FilterFromJson(rows.Text(1));
  if (!filter) {
    return Fail(ErrorKind::corrupt, "replay_corrupt",
                fmt::format("The filter of replay {} cannot be read.", replay_id));
  }
  return Running{.filter = std::move(*filter),
                 .stagger_us = rows.Int(2),
                 .released_through = rows.Int(3),
                 .running = rows.Text(0) == "running"};
}

Result<std::vector<EventId>> NextQueued(Db& db, std::int64_t replay_id, EventId after, int n) {
  Statement rows =
      db.Prepare("SELECT event_id FROM replay_items WHERE replay_id = ?1 AND event_id > ?2 ORDER BY event_id LIMIT ?3");
  rows.Bind(1, replay_id).Bind(2, after).Bind(3, n);
  std::vector<EventId> ids;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return ids;
    ids.push_back(rows.Int(0));
  }
}

/// Hands one letter over, or says why it is skipped.
Result<void> ReleaseOne(Db& db, Counts& counts, Lanes& lanes, const Running& replay, std::int64_t replay_id, EventId id,
                        Time now) {
  const auto row = ReadLetterRow(db, id);
  if (!row) return std::unexpected(row.error());
  bool released = false;
  if (*row && MayReplay(replay.filter, (*row)->state, (*row)->failure_class, (*row)->replays_failed)) {
    auto moved = MoveToReplay(db, counts, lanes, **row, replay_id, now);
    if (!moved) return std::unexpected(moved.error());
    released = *moved;
  }
  if (released) return {};
  const bool elsewhere = *row && (*row)->replaying;
  counts.EndItems(replay_id, 1, now);
  return db
      .Prepare("UPDATE replay_items SET state = ?3, result = ?4 WHERE replay_id = ?1 AND event_id = ?2 AND state = 0")
      .Bind(1, replay_id)
      .Bind(2, id)
      .Bind(3, static_cast<int>(ItemState::ended))
      .Bind(4, elsewhere ? kSkippedOtherReplay : kSkippedState)
      .Run();
}

// result: 0 none, 1 committed, 2 already applied, 3 gone, 4 dead again, 5 resolved, 100 and more skipped.
constexpr char kProgress[] =
    "SELECT r.id, r.state, r.kind, r.created_at, r.actor, r.reason, r.filter, r.count, r.digest, "
    "coalesce(sum(CASE i.state WHEN 0 THEN i.event_id <= r.released_through ELSE i.result < 100 END), 0), "
    "coalesce(sum(i.state = 1 AND i.result >= 100), 0), "
    "coalesce(sum(i.state = 1 AND i.result IN (1, 2, 3, 5)), 0), coalesce(sum(i.state = 1 AND i.result = 4), 0), "
    "coalesce(sum(i.state = 1 AND i.result = 4 AND i.class <> 1), 0), coalesce(sum(i.state = 0), 0) ";

ReplayProgress ReadProgress(const Statement& row) {
  ReplayProgress p;
  p.id = row.Int(0);
  p.state = row.String(1);
  p.kind = row.String(2);
  p.created_at = FromMicros(row.Int(3));
  p.actor = row.String(4);
  p.reason = row.String(5);
  p.filter = row.String(6);
  p.count = row.Int(7);
  p.digest = row.String(8);
  p.requeued = row.Int(9);
  p.skipped = row.Int(10);
  p.committed = row.Int(11);
  p.dead_again = row.Int(12);
  p.parked = row.Int(13);
  p.remaining = row.Int(14);
  return p;
}

}  // namespace

Result<ReplayPlan> PlanReplay(Db& db, const Filter& filter) {
  return PlanWith(db, filter, ReplayOptions());
}

Result<ReplayPlan> CreateReplay(Db& db, const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  if (kind != "replay" && kind != "drain")
    return Fail(ErrorKind::invalid, "bad_kind", "A replay's kind is replay or drain.");
  Filter selected = filter;
  if (kind == "drain") selected.classes = {FailureClass::exhausted};  // whatever else was asked for
  if (options.dry_run) return PlanWith(db, selected, options);
  if (auto begun = db.Exec("SAVEPOINT create_replay"); !begun) return std::unexpected(begun.error());
  auto plan = CreateInside(db, selected, options, kind, actor, now);
  // If undoing fails too, the caller's own rollback is what remains; its error is the first one.
  if (!plan) (void)db.Exec("ROLLBACK TO create_replay");
  auto ended = db.Exec("RELEASE create_replay");
  if (plan && !ended) return std::unexpected(ended.error());
  return plan;
}

Result<std::int64_t> CreateSingleReplay(Db& db, EventId id, const Actor& actor, Time now) {
  IdDigest digest;
  digest.Add(id);
  Filter filter;
  filter.ids = {id};
  const auto replay_id = InsertReplay(db,
                                      {.kind = "replay",
                                       .filter = FilterToJson(filter),
                                       .digest = digest.Hex(),
                                       .count = 1,
                                       .released_through = id,
                                       .pace = {}},
                                      actor, now);
  if (!replay_id) return replay_id;
  auto item = db.Prepare("INSERT INTO replay_items (replay_id, event_id, state) VALUES (?1, ?2, ?3)")
                  .Bind(1, *replay_id)
                  .Bind(2, id)
                  .Bind(3, static_cast<int>(ItemState::open))
                  .Run();
  if (!item) return std::unexpected(item.error());
  return replay_id;
}

Result<std::vector<RunningReplay>> RunningReplays(Db& db) {
  Statement rows = db.Prepare(
      "SELECT r.id, r.batch_size, r.stagger_us, r.next_batch_at FROM replays r "
      "WHERE r.state IN ('running', 'paused') AND r.state = 'running' AND r.queued > 0 ORDER BY r.id");
  std::vector<RunningReplay> running;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return running;
    running.push_back({.id = rows.Int(0),
                       .batch_size = static_cast<int>(rows.Int(1)),
                       .stagger = Duration(rows.Int(2)),
                       .next_batch_at = FromMicros(rows.Int(3))});
  }
}

Result<std::int64_t> ReleaseReplayBatch(Db& db, Counts& counts, Lanes& lanes, std::int64_t replay_id, int n, Time now) {
  const auto replay = ReadRunning(db, replay_id);
  if (!replay) return std::unexpected(replay.error());
  if (!replay->running) return 0;
  const auto ids = NextQueued(db, replay_id, replay->released_through, std::max(n, 0));
  if (!ids) return std::unexpected(ids.error());
  for (const EventId id : *ids) {
    if (auto done = ReleaseOne(db, counts, lanes, *replay, replay_id, id, now); !done)
      return std::unexpected(done.error());
  }
  auto set = db.Prepare(
                   "UPDATE replays SET next_batch_at = ?2, queued = queued - ?3, "
                   "released_through = max(released_through, ?4) WHERE id = ?1")
                 .Bind(1, replay_id)
                 .Bind(2, ToMicros(now) + replay->stagger_us)
                 .Bind(3, static_cast<std::int64_t>(ids->size()))
                 .Bind(4, ids->empty() ? 0 : ids->back())
                 .Run();
  if (!set) return std::unexpected(set.error());
  Statement left = db.Prepare("SELECT queued FROM replays WHERE id = ?1");
  if (auto row = left.Bind(1, replay_id).Step(); !row) return std::unexpected(row.error());
  return left.Int(0);
}

Result<void> EndReplayItem(Db& db, Counts& counts, std::int64_t replay_id, EventId id, ReplayResult result,
                           FailureClass failure_class, Time now) {
  if (result == ReplayResult::none) return {};
  auto ended =
      db.Prepare(
            "UPDATE replay_items SET state = 1, result = ?3, class = ?4 WHERE replay_id = ?1 AND event_id = ?2 "
            "AND state = 0 AND ?2 <= (SELECT released_through FROM replays WHERE id = ?1)")
          .Bind(1, replay_id)
          .Bind(2, id)
          .Bind(3, static_cast<int>(result))
          .Bind(4, static_cast<int>(failure_class))
          .Run();
  if (!ended) return ended;
  if (db.Changes() == 1) counts.EndItems(replay_id, 1, now);
  return {};
}

Result<ReplayProgress> GetReplay(Db& db, std::int64_t replay_id) {
  static const std::string kSql =
      std::string(kProgress) +
      "FROM replays r LEFT JOIN replay_items i ON i.replay_id = r.id WHERE r.id = ?1 GROUP BY r.id";
  Statement rows = db.Prepare(kSql);
  auto row = rows.Bind(1, replay_id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "replay_not_found", fmt::format("There is no replay {}.", replay_id));
  return ReadProgress(rows);
}

Result<std::vector<ReplayProgress>> RecentReplays(Db& db, int limit) {
  static const std::string kSql = std::string(kProgress) +
                                  "FROM (SELECT * FROM replays ORDER BY id DESC LIMIT ?1) r "
                                  "LEFT JOIN replay_items i ON i.replay_id = r.id GROUP BY r.id ORDER BY r.id DESC";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, std::clamp(limit, 1, kMaxRows));
  std::vector<ReplayProgress> list;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return list;
    list.push_back(ReadProgress(rows));
  }
}

}  // namespace dlo::store
