#include "store/embedded/replay_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <deque>
#include <memory>
#include <unordered_map>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "model/fingerprint.h"
#include "store/embedded/access.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/id_digest.h"
#include "store/embedded/index_values.h"
#include "store/embedded/key_filter.h"
#include "store/embedded/lanes.h"
#include "store/pace.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr int kRowsAtOnce = 4'096;
constexpr std::size_t kMaxKinds = 1'000, kMaxGroups = 10'000;
constexpr const char* kOtherKinds = "(others)";

/// Counts and oldest.
class Sum {
 public:
  void Add(std::int64_t failure_class, std::string_view kind, std::int64_t received_at) {
    ++count_;
    ++classes_[static_cast<std::size_t>(failure_class)];
    if (oldest_ == 0 || received_at < oldest_) oldest_ = received_at;
    auto found = kinds_.find(kind);
    if (found == kinds_.end()) {
      found = kinds_.emplace(kinds_.size() < kMaxKinds ? std::string(kind) : std::string(kOtherKinds), 0).first;
    }
    ++found->second;
  }
  [[nodiscard]] ReplayPlan Plan(std::string digest) const {
    ReplayPlan plan;
    plan.count = count_;
    plan.digest = std::move(digest);
    for (int c = 0; c < kClassCount; ++c) {
      if (const std::int64_t n = classes_[static_cast<std::size_t>(c)]; n > 0) {
        plan.by_class[std::string(Name(static_cast<FailureClass>(c)))] = n;
      }
    }
    plan.by_type.insert(kinds_.begin(), kinds_.end());
    if (count_ > 0) plan.oldest = FromMicros(oldest_);
    return plan;
  }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::int64_t count_ = 0, oldest_ = 0;
  std::array<std::int64_t, kClassCount> classes_{};
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> kinds_;
};

/// The first N letters of each failure group. Only such as have no older letter of their subject in the replay: the
/// canary goes before all others, and order within a subject is kept. Which subjects were seen is remembered by a
/// filter of fixed size; one that it takes for seen by mistake is not chosen, and the next one is.
class Canary {
 public:
  explicit Canary(int of_each) : of_each_(of_each), subjects_(of_each > 0 ? 1 << 18 : 1) {}
  bool Chooses(const Statement& row, std::string_view source) {
    if (of_each_ == 0) return false;
    const auto fingerprint = row.OptInt(3);
    const auto lane = LaneOf(source, row.Text(5));
    const bool first = !lane || !subjects_.AddAndTest(*lane);
    const std::int64_t group = fingerprint.value_or(0);
    if (!first || (groups_.size() >= kMaxGroups && !groups_.contains(group))) return false;
    int& chosen = groups_[group];
    if (chosen >= of_each_) return false;
    ++chosen;
    return true;
  }

 private:
  int of_each_;
  KeyFilter subjects_;
  std::unordered_map<std::int64_t, int> groups_;
};

struct SourceOfPlan {
  std::int64_t source = 0;
  std::string name;
  std::deque<EventId> ids;  // some of them, for the digest
  EventId last = 0;
  bool more = true;
};

Result<std::vector<SourceOfPlan>> SourcesOf(Db& db, std::int64_t replay_id) {
  std::vector<SourceOfPlan> sources;
  Statement names = db.Prepare(
      "SELECT n.id, n.name FROM names n WHERE EXISTS "
      "(SELECT 1 FROM replay_items i WHERE i.replay_id = ?1 AND i.source = n.id)");
  names.Bind(1, replay_id);
  for (;;) {
    const auto row = names.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return sources;
    SourceOfPlan& made = sources.emplace_back();
    made.source = names.Int(0);
    made.name = names.String(1);
  }
}

Result<void> ReadIds(Db& db, std::int64_t replay_id, SourceOfPlan& of) {
  if (!of.ids.empty() || !of.more) return {};
  Statement rows = db.Prepare(
      "SELECT event_id FROM replay_items WHERE replay_id = ?1 AND source = ?2 AND event_id > ?3 "
      "ORDER BY event_id LIMIT ?4");
  rows.Bind(1, replay_id).Bind(2, of.source).Bind(3, of.last).Bind(4, kRowsAtOnce);
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    of.ids.push_back(rows.Int(0));
  }
  of.more = std::ssize(of.ids) == kRowsAtOnce;
  if (!of.ids.empty()) of.last = of.ids.back();
  return {};
}

/// By receipt over all sources.
Result<std::string> DigestOf(Db& db, std::int64_t replay_id, std::vector<SourceOfPlan>& sources) {
  IdDigest digest;
  for (;;) {
    SourceOfPlan* next = nullptr;
    for (SourceOfPlan& of : sources) {
      if (auto read = ReadIds(db, replay_id, of); !read) return std::unexpected(read.error());
      if (!of.ids.empty() && (next == nullptr || of.ids.front() < next->ids.front())) next = &of;
    }
    if (next == nullptr) return digest.Hex();
    digest.Add(next->ids.front());
    next->ids.pop_front();
  }
}

Result<EventId> EndOfStep(Db& db, const Filter& filter, const PlanInMaking& plan, int step) {
  const auto group = filter.fingerprint ? FingerprintNumber(*filter.fingerprint) : std::nullopt;
  Statement end = group ? db.Prepare(
                              "SELECT id FROM events INDEXED BY events_groups WHERE letter NOT NULL "
                              "AND fingerprint = ?4 AND id > ?1 AND id <= ?2 ORDER BY id LIMIT 1 OFFSET ?3")
                        : db.Prepare(
                              "SELECT id FROM events INDEXED BY events_letters WHERE letter NOT NULL "
                              "AND id > ?1 AND id <= ?2 ORDER BY id LIMIT 1 OFFSET ?3");
  end.Bind(1, plan.looked_at).Bind(2, plan.through).Bind(3, step - 1);
  if (group) end.Bind(4, *group);
  const auto row = end.Step();
  if (!row) return std::unexpected(row.error());
  return *row ? end.Int(0) : plan.through;
}

/// Does another replay have letters of its own?
Result<bool> OthersHold(Db& db, std::int64_t replay_id) {
  Statement others = db.Prepare(
      "SELECT 1 FROM replays INDEXED BY replays_holding "
      "WHERE state IN ('plan', 'canary', 'running', 'paused', 'stopped') AND queued > 0 AND id <> ?1 LIMIT 1");
  return others.Bind(1, replay_id).Step();
}

/// Takes the letters of `filter` with ids in (after, through].
Result<std::int64_t> Take(Db& db, const Filter& filter, std::int64_t replay_id, EventId after, EventId through,
                          std::int64_t at_most) {
  const auto others = OthersHold(db, replay_id);
  if (!others) return std::unexpected(others.error());
  const auto sql = FilterSql::ForReplay(filter, {.but = replay_id, .none = !*others});
  if (!sql) return std::unexpected(sql.error());
  const int next = sql->next_parameter();
  // Named, or SQLite may walk through every event between two letters.
  const char* index = !filter.ids.empty()  ? ""
                      : filter.fingerprint ? " INDEXED BY events_groups"
                                           : " INDEXED BY events_letters";
  auto insert = db.PrepareOnce(
      fmt::format("INSERT INTO replay_items (replay_id, source, event_id, state) SELECT ?{0}, e.source, e.id, 0 "
                  "FROM events e{4}{5} WHERE {6} AND e.id > ?{1} AND e.id <= ?{2} ORDER BY e.id LIMIT ?{3}",
                  next, next + 1, next + 2, next + 3, index, sql->Joins(), sql->where()));
  if (!insert) return std::unexpected(insert.error());
  sql->BindTo(*insert);
  auto done = insert->Bind(next, replay_id).Bind(next + 1, after).Bind(next + 2, through).Bind(next + 3, at_most).Run();
  if (!done) return std::unexpected(done.error());
  return db.Changes();
}

Result<std::int64_t> CountOf(Db& db, const FilterSql& sql) {
  auto rows = db.PrepareOnce(fmt::format("SELECT count(*) FROM events e{} WHERE {}", sql.Joins(), sql.where()));
  if (!rows) return std::unexpected(rows.error());
  sql.BindTo(*rows);
  if (auto row = rows->Step(); !row) return std::unexpected(row.error());
  return rows->Int(0);
}

Result<void> MarkCanary(Db& db, std::int64_t replay_id, const Frozen& frozen) {
  for (const auto& [source, id] : frozen.canary) {
    auto marked =
        db.Prepare("UPDATE replay_items SET canary = 1 WHERE replay_id = ?1 AND source = ?2 AND event_id = ?3")
            .Bind(1, replay_id)
            .Bind(2, source)
            .Bind(3, id)
            .Run();
    if (!marked) return marked;
  }
  return {};
}

Result<void> WriteSources(Db& db, std::int64_t replay_id, const Frozen& frozen) {
  for (const auto& [source, n] : frozen.by_source) {
    auto written = db.Prepare("INSERT INTO replay_sources (replay_id, source, queued) VALUES (?1, ?2, ?3)")
                       .Bind(1, replay_id)
                       .Bind(2, source)
                       .Bind(3, n)
                       .Run();
    if (!written) return written;
  }
  return {};
}

}  // namespace

Error TooLarge(std::int64_t count, std::int64_t max) {
  return {ErrorKind::too_large, "replay_too_large",
          fmt::format("The filter selects {} letters and the cap is {}. Narrow the filter, raise max, or set force.",
                      count, max)};
}

Result<ReplayPlan> PlanReplay(Db& db, const Filter& filter) {
  const auto sql = FilterSql::ForReplay(filter);
  if (!sql) return std::unexpected(sql.error());
  auto rows =
      db.PrepareOnce(fmt::format("SELECT e.id, e.class, r.kind, e.received_at FROM events e{} WHERE {} "
                                 "ORDER BY e.id",
                                 sql->Joins(true), sql->where()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  Sum sum;
  IdDigest digest;
  for (;;) {
    auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    digest.Add(rows->Int(0));
    sum.Add(rows->Int(1), rows->Text(2), rows->Int(3));
  }
  ReplayPlan plan = sum.Plan(digest.Hex());
  const auto others = CountInOthers(db, filter, 0);
  if (!others) return std::unexpected(others.error());
  plan.in_other_replay = *others;
  plan.over_cap = plan.count > ReplayOptions().max;
  plan.estimated_seconds = EstimateSeconds(plan.count, *PaceOf({}));
  return plan;
}

Result<PlanInMaking> BeginPlan(Db& db, const Filter& filter, const ReplayOptions& options, const std::string& kind,
                               const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  if (kind != "replay" && kind != "drain")
    return Fail(ErrorKind::invalid, "bad_kind", "A replay's kind is replay or drain.");
  const auto pace = PaceOf(options);
  if (!pace) return std::unexpected(pace.error());
  if (const auto sql = FilterSql::ForReplay(filter); !sql) return std::unexpected(sql.error());
  const std::string name = CleanText(actor.name, 200), reason = CleanText(actor.reason, 4'096);
  const std::string filter_json = FilterToJson(filter);
  // Queued at first one, so that its letters are its own from the first step on.
  Statement insert = db.Prepare(
      "INSERT INTO replays (kind, state, created_at, actor, reason, filter, digest, count, batch_size, stagger_us, "
      "next_batch_at, stop_percent, canary, queued) VALUES (?1, 'plan', ?2, ?3, ?4, ?5, '', 0, ?6, ?7, ?2, ?8, ?9, 1)");
  auto done = insert.Bind(1, kind)
                  .Bind(2, ToMicros(now))
                  .Bind(3, name)
                  .Bind(4, reason)
                  .Bind(5, filter_json)
                  .Bind(6, pace->batch_size)
                  .Bind(7, pace->stagger.count())
                  .Bind(8, options.stop_percent)
                  .Bind(9, options.canary)
                  .Run();
  if (!done) return std::unexpected(done.error());
  PlanInMaking plan;
  plan.id = sqlite3_last_insert_rowid(db.handle());
  Statement newest = db.Prepare("SELECT coalesce(max(id), 0) FROM events");
  if (auto row = newest.Step(); !row) return std::unexpected(row.error());
  plan.through = newest.Int(0);
  return plan;
}

Result<void> FreezeStep(Db& db, const Filter& filter, PlanInMaking& plan, int step, std::int64_t at_most) {
  Result<std::int64_t> taken;
  if (!filter.ids.empty()) {
    // Looked up by id, some at a time.
    Filter some = filter;
    const auto first = filter.ids.begin() + static_cast<std::ptrdiff_t>(plan.ids);
    const std::size_t n = std::min(filter.ids.size() - plan.ids, static_cast<std::size_t>(step));
    some.ids.assign(first, first + static_cast<std::ptrdiff_t>(n));
    plan.ids += n;
    taken = Take(db, some, plan.id, 0, plan.through, at_most);
    plan.looked_at = some.ids.back();
    plan.complete = plan.ids == filter.ids.size();
  } else {
    const auto end = EndOfStep(db, filter, plan, step);
    if (!end) return std::unexpected(end.error());
    taken = Take(db, filter, plan.id, plan.looked_at, *end, at_most);
    plan.looked_at = *end;
    plan.complete = *end >= plan.through;
  }
  if (!taken) return std::unexpected(taken.error());
  plan.frozen += *taken;
  return {};
}

Result<std::int64_t> CountInOthers(Db& db, const Filter& filter, std::int64_t replay_id) {
  const auto any = OthersHold(db, replay_id);
  if (!any) return std::unexpected(any.error());
  if (!*any) return 0;
  const auto sql = FilterSql::ForReplay(filter, {.but = replay_id, .only = true});
  if (!sql) return std::unexpected(sql.error());
  return CountOf(db, *sql);
}

struct PlanSum::State {
  State(std::int64_t id, int canary) : chosen(canary) { frozen.plan.id = id; }
  Frozen frozen;
  Sum sum;
  Canary chosen;
  std::map<std::int64_t, EventId> taken;  // of each source up to this one

  /// Some thousand at a time: a longer read would keep the WAL from being written back.
  Result<void> TakeIn(Db& db, const SourceOfPlan& of, EventId through) {
    EventId& last = taken[of.source];
    std::int64_t n = 0;
    do {
      n = 0;
      Statement rows = db.Prepare(
          "SELECT i.event_id, e.class, e.received_at, e.fingerprint, r.kind, r.subject FROM replay_items i "
          "CROSS JOIN events e ON e.id = i.event_id CROSS JOIN receipts r ON r.id = i.event_id "
          "WHERE i.replay_id = ?1 AND i.source = ?2 AND i.event_id > ?3 AND i.event_id <= ?4 "
          "ORDER BY i.event_id LIMIT ?5");
      rows.Bind(1, frozen.plan.id).Bind(2, of.source).Bind(3, last).Bind(4, through).Bind(5, kRowsAtOnce);
      for (;;) {
        const auto row = rows.Step();
        if (!row) return std::unexpected(row.error());
        if (!*row) break;
        ++n;
        last = rows.Int(0);
        sum.Add(rows.Int(1), rows.Text(4), rows.Int(2));
        if (chosen.Chooses(rows, of.name)) frozen.canary.emplace_back(of.source, last);
      }
      frozen.by_source[of.source] += n;
    } while (n == kRowsAtOnce);
    return {};
  }
};

PlanSum::PlanSum(std::int64_t replay_id, int canary) : state_(std::make_unique<State>(replay_id, canary)) {}
PlanSum::~PlanSum() = default;
PlanSum::PlanSum(PlanSum&&) noexcept = default;

Result<void> PlanSum::Advance(Db& db, EventId through) {
  const auto sources = SourcesOf(db, state_->frozen.plan.id);
  if (!sources) return std::unexpected(sources.error());
  for (const SourceOfPlan& of : *sources) {
    if (auto done = state_->TakeIn(db, of, through); !done) return done;
  }
  return {};
}

Result<Frozen> PlanSum::Finish(Db& db) {
  Frozen& frozen = state_->frozen;
  const std::int64_t id = frozen.plan.id;
  auto sources = SourcesOf(db, id);
  if (!sources) return std::unexpected(sources.error());
  auto digest = DigestOf(db, id, *sources);
  if (!digest) return std::unexpected(digest.error());
  frozen.plan = state_->sum.Plan(std::move(*digest));
  frozen.plan.id = id;
  frozen.plan.canary = std::ssize(frozen.canary);
  return std::move(frozen);
}

Result<void> StartPlan(Db& db, const Frozen& frozen, const Filter& filter, const ReplayOptions& options,
                       const std::string& kind, const Actor& actor, Time now) {
  const ReplayPlan& plan = frozen.plan;
  if (auto done = WriteSources(db, plan.id, frozen); !done) return done;
  if (auto done = MarkCanary(db, plan.id, frozen); !done) return done;
  // One of nothing is done at once; any other with its last item.
  const bool over = plan.count == 0, canary = plan.canary > 0;
  auto started =
      db.Prepare(
            "UPDATE replays SET state = ?4, stage = ?5, count = ?2, queued = ?2, digest = ?3, canary_left = ?6, "
            "in_other = ?7, finished_at = ?8, mark_at = ?9, next_mark_at = ?9 WHERE id = ?1 AND state = 'plan'")
          .Bind(1, plan.id)
          .Bind(2, plan.count)
          .Bind(3, plan.digest)
          .Bind(4, over     ? "done"
                   : canary ? "canary"
                            : "running")
          .Bind(5, canary ? "canary" : "running")
          .Bind(6, plan.canary)
          .Bind(7, plan.in_other_replay)
          .Bind(8, When(over, ToMicros(now)))
          .Bind(9, ToMicros(now))
          .Run();
  if (!started) return started;
  if (db.Changes() != 1) {
    return Fail(ErrorKind::unavailable, "changed_meanwhile", "The plan of the replay is gone; make it again.");
  }
  const auto pace = PaceOf(options);
  if (!pace) return std::unexpected(pace.error());
  const json::object details = {{"replay", plan.id},
                                {"filter", FilterToJson(filter)},
                                {"count", plan.count},
                                {"digest", plan.digest},
                                {"batch_size", pace->batch_size},
                                {"stagger_us", pace->stagger.count()},
                                {"max", options.max},
                                {"force", options.force},
                                {"canary", options.canary},
                                {"stop_percent", options.stop_percent}};
  return WriteAudit(db, actor, now, kind == "drain" ? "drain" : "bulk_replay", 0, json::serialize(details));
}

Result<bool> DropPlanStep(Db& db, std::int64_t replay_id, int step) {
  auto items = db.Prepare(
                     "DELETE FROM replay_items WHERE replay_id = ?1 AND (source, event_id) IN "
                     "(SELECT i.source, i.event_id FROM replay_items i WHERE i.replay_id = ?1 LIMIT ?2) "
                     "AND EXISTS (SELECT 1 FROM replays WHERE id = ?1 AND state = 'plan')")
                   .Bind(1, replay_id)
                   .Bind(2, step)
                   .Run();
  if (!items) return std::unexpected(items.error());
  if (db.Changes() == step) return false;
  auto plan = db.Prepare("DELETE FROM replays WHERE id = ?1 AND state = 'plan'").Bind(1, replay_id).Run();
  if (!plan) return std::unexpected(plan.error());
  return true;
}

Result<std::vector<std::int64_t>> UnfinishedPlans(Db& db) {
  std::vector<std::int64_t> ids;
  Statement rows = db.Prepare(
      "SELECT id FROM replays INDEXED BY replays_active "
      "WHERE state IN ('plan', 'canary', 'running') AND state = 'plan'");
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return ids;
    ids.push_back(rows.Int(0));
  }
}

}  // namespace dlo::store
