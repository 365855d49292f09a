#include "store/embedded/replay_acts.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/access.h"
#include "store/embedded/replay_counts.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr int kMaxRows = 500;
constexpr std::size_t kMaxWord = 4'096;

std::unexpected<Error> NoReplay(std::int64_t replay_id) {
  return Fail(ErrorKind::not_found, "replay_not_found", fmt::format("There is no replay {}.", replay_id));
}

// ---- Acts -----------------------------------------------------------------------------------------------------------

struct Standing {
  std::string state, stage;
  std::int64_t queued = 0, count = 0, ended = 0;
};

std::unexpected<Error> Conflict(const char* code, std::string message) {
  return Fail(ErrorKind::conflict, code, std::move(message));
}

/// Where an act leads; a refusal says what to do instead.
Result<std::string> Leads(ReplayAct act, std::int64_t id, const Standing& now) {
  const bool goes_on = now.state == "canary" || now.state == "running";
  const bool halted = now.state == "paused" || now.state == "stopped";
  if (!goes_on && !halted) {
    return Conflict("replay_ended", fmt::format("Replay {} is {}; nothing of it is left to steer.", id, now.state));
  }
  switch (act) {
    case ReplayAct::pause:
    case ReplayAct::stop:
      if (!goes_on) {
        return Conflict("replay_not_running",
                        fmt::format("Replay {} is {} already; resume or cancel it.", id, now.state));
      }
      return act == ReplayAct::pause ? "paused" : "stopped";
    case ReplayAct::resume:
      if (!halted)
        return Conflict("replay_not_paused", fmt::format("Replay {} is not halted, it is {}.", id, now.state));
      // Who resumes one whose canary failed has seen that and lets the others follow.
      return now.state == "stopped" ? "running" : now.stage;
    case ReplayAct::continue_:
      if (now.state != "canary") {
        return Conflict("replay_not_running",
                        fmt::format("Replay {} is {} and has no canary under way.", id, now.state));
      }
      return "running";
    case ReplayAct::cancel:
      return "cancelled";
  }
  return Conflict("replay_ended", "");
}

std::string_view Name(ReplayAct act) {
  switch (act) {
    case ReplayAct::pause:
      return "replay_pause";
    case ReplayAct::resume:
      return "replay_resume";
    case ReplayAct::cancel:
      return "replay_cancel";
    case ReplayAct::stop:
      return "replay_stop";
    case ReplayAct::continue_:
      return "replay_continue";
  }
  return "";
}

Result<Standing> ReadStanding(Db& db, std::int64_t replay_id) {
  Statement rows =
      db.Prepare("SELECT state, stage, queued, count, ended FROM replays WHERE id = ?1 AND state <> 'plan'");
  const auto row = rows.Bind(1, replay_id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return NoReplay(replay_id);
  return Standing{rows.String(0), rows.String(1), rows.Int(2), rows.Int(3), rows.Int(4)};
}

/// Those of a cancelled one that still stand as queued are its skipped ones: read so, not written, however many.
Result<void> WriteAct(Db& db, std::int64_t replay_id, const Standing& was, const std::string& to, ReplayAct act,
                      const Actor& actor, Time now) {
  const std::string word = CleanText(actor.reason, kMaxWord), who = CleanText(actor.name, 200);
  const std::int64_t cancelled = act == ReplayAct::cancel ? was.queued : 0;
  const bool anew = act == ReplayAct::resume || act == ReplayAct::continue_;
  auto written =
      db.Prepare(
            "UPDATE replays SET state = ?3, word = ?4, word_of = ?5, queued = queued - ?6, skipped = skipped + ?6, "
            "ended = ended + ?6, finished_at = CASE WHEN ?3 = 'cancelled' AND ended + ?6 = count THEN ?7 END, "
            "stage = CASE WHEN ?3 = 'running' THEN 'running' ELSE stage END, "
            "recent_n = CASE WHEN ?8 THEN 0 ELSE recent_n END, next_batch_at = CASE WHEN ?8 THEN ?7 "
            "ELSE next_batch_at END, mark_at = CASE WHEN ?8 THEN ?7 ELSE mark_at END, "
            "next_mark_at = CASE WHEN ?8 THEN ?7 ELSE next_mark_at END, "
            "mark_ended = CASE WHEN ?8 THEN ended ELSE mark_ended END, "
            "next_mark_ended = CASE WHEN ?8 THEN ended ELSE next_mark_ended END WHERE id = ?1 AND state = ?2")
          .Bind(1, replay_id)
          .Bind(2, was.state)
          .Bind(3, to)
          .Bind(4, word)
          .Bind(5, who)
          .Bind(6, cancelled)
          .Bind(7, ToMicros(now))
          .Bind(8, anew)
          .Run();
  if (!written) return written;
  if (db.Changes() != 1) {
    return Fail(ErrorKind::unavailable, "changed_meanwhile", fmt::format("Replay {} changed; try again.", replay_id));
  }
  return {};
}

// ---- Progress -------------------------------------------------------------------------------------------------------

constexpr const char* kProgress =
    "SELECT r.id, r.state, r.kind, r.created_at, r.finished_at, r.actor, r.reason, r.filter, r.word, r.word_of, "
    "r.count, r.in_other, r.queued, r.ended, r.skipped, r.committed, r.already_applied, r.gone, r.resolved, "
    "r.dead_again, r.parked, r.canary, r.stop_percent, r.suppressed, r.digest, r.mark_at, r.mark_ended, "
    "(SELECT count(*) FROM events e INDEXED BY events_lease WHERE e.lease_until NOT NULL AND e.replaying = 1 "
    "AND e.replay_id = r.id) FROM replays r ";

ReplayProgress ReadProgress(const Statement& row, Time now) {
  ReplayProgress p;
  p.id = row.Int(0);
  p.state = row.String(1);
  p.kind = row.String(2);
  p.created_at = FromMicros(row.Int(3));
  if (const auto at = row.OptInt(4)) p.finished_at = FromMicros(*at);
  p.actor = row.String(5);
  p.reason = row.String(6);
  p.filter = row.String(7);
  p.word = row.String(8);
  p.word_of = row.String(9);
  p.count = row.Int(10);
  p.in_other_replay = row.Int(11);
  const std::int64_t not_handed_over = row.Int(12), ended = row.Int(13);
  p.skipped = row.Int(14);
  p.already_applied = row.Int(16);
  p.committed = row.Int(15) + p.already_applied + row.Int(17) + row.Int(18);
  p.dead_again = row.Int(19);
  p.parked = row.Int(20);
  p.canary = row.Int(21);
  p.stop_percent = static_cast<int>(row.Int(22));
  p.notifications_suppressed = row.Int(23);
  p.digest = row.String(24);
  p.remaining = p.count - ended;
  p.requeued = p.count - not_handed_over - p.skipped;
  p.running = std::min(row.Int(27), p.remaining);
  p.queued = p.remaining - p.running;
  if (p.state != "canary" && p.state != "running") return p;
  const auto seconds = std::chrono::duration<double>(now - FromMicros(row.Int(25))).count();
  p.per_second = static_cast<double>(ended - row.Int(26)) / std::max(seconds, 1.0);
  if (p.per_second > 0) {
    const double left = static_cast<double>(p.remaining) / p.per_second;
    p.estimated_end = now + Duration(static_cast<std::int64_t>(std::min(left, 1e9) * 1e6));
  }
  return p;
}

// ---- Letters --------------------------------------------------------------------------------------------------------

struct ResultWord {
  int result;
  const char* word;
  const char* reason;
};
constexpr ResultWord kResults[] = {
    {static_cast<int>(ReplayResult::committed), "committed", ""},
    {static_cast<int>(ReplayResult::already_applied), "already_applied", ""},
    {static_cast<int>(ReplayResult::skipped_gone), "gone", ""},
    {static_cast<int>(ReplayResult::dead_again), "dead_again", ""},
    {static_cast<int>(ReplayResult::resolved), "resolved", ""},
    {kSkippedState, "skipped", "state"},
    {kSkippedOtherReplay, "skipped", "in another replay"},
    {kSkippedPoison, "skipped", "poison"},
    {kSkippedErased, "skipped", "erased"},
    {kSkippedCancelled, "skipped", "cancelled"},
};

/// The words of a filter as bounds of what `ended`, `result` and `runs` may be.
struct ItemBounds {
  int ended_from = 0, ended_to = 1, runs_from = 0, runs_to = 1, result_from = 0, result_to = 1'000;
};

Result<ItemBounds> BoundsOf(const ReplayItemFilter& filter) {
  ItemBounds bounds;
  if (!filter.state.empty()) {
    const bool ended = filter.state == "ended", runs = filter.state == "running";
    if (!ended && !runs && filter.state != "queued")
      return Fail(ErrorKind::invalid, "bad_filter", "state is queued, running or ended.");
    bounds.ended_from = bounds.ended_to = ended;
    bounds.runs_from = bounds.runs_to = runs;
  }
  if (filter.result == "skipped") {
    bounds.result_from = kSkippedState;
  } else if (!filter.result.empty()) {
    const auto* found = std::ranges::find(kResults, filter.result, &ResultWord::word);
    if (found == std::end(kResults)) {
      return Fail(ErrorKind::invalid, "bad_filter",
                  "result is committed, already_applied, gone, resolved, dead_again or skipped.");
    }
    bounds.result_from = bounds.result_to = found->result;
  }
  return bounds;
}

Result<EventId> ParseCursor(const std::string& cursor) {
  if (cursor.empty()) return 0;
  EventId after = 0;
  const auto [end, error] = std::from_chars(cursor.data(), cursor.data() + cursor.size(), after);
  if (error != std::errc() || end != cursor.data() + cursor.size() || after < 0)
    return Fail(ErrorKind::invalid, "bad_cursor", "The cursor is none that this list gave out.");
  return after;
}

ReplayItem ReadItem(const Statement& row) {
  ReplayItem item;
  item.id = row.Int(0);
  const bool ended = row.Int(1) != 0;
  const int result = static_cast<int>(row.Int(2));
  item.handed_over = row.Int(3) != 0;
  item.state = ended ? "ended" : row.Int(4) != 0 ? "running" : "queued";
  if (!ended) return item;
  const auto* word = std::ranges::find(kResults, result, &ResultWord::result);
  if (word != std::end(kResults)) {
    item.result = word->word;
    item.reason = word->reason;
  }
  if (result == static_cast<int>(ReplayResult::dead_again)) {
    item.reason = fmt::format("{}: {}", Name(static_cast<FailureClass>(row.Int(5))), row.Text(6));
  }
  return item;
}

/// One source's next letters.
Result<void> AddItems(Db& db, std::int64_t replay_id, std::int64_t source, EventId after, const ItemBounds& bounds,
                      int limit, std::vector<ReplayItem>& items) {
  // Letters that a cancelled replay never handed over stand in the table as queued.
  Statement rows = db.Prepare(
      "SELECT * FROM (SELECT i.event_id AS id, i.state = 3 OR r.state = 'cancelled' AND i.state = 0 AS ended, "
      "CASE WHEN r.state = 'cancelled' AND i.state = 0 THEN 104 ELSE i.result END AS result, "
      "i.state IN (1, 2) OR i.state = 3 AND i.result < 100 AS handed, "
      "coalesce(e.state = 1 AND e.replaying = 1 AND e.replay_id = r.id, 0) AS runs, i.class, "
      "coalesce(f.code || ': ' || f.message, '') FROM replay_items i JOIN replays r ON r.id = i.replay_id "
      "LEFT JOIN events e ON e.id = i.event_id "
      "LEFT JOIN failures f ON f.event_id = i.event_id AND i.result = 4 "
      "WHERE i.replay_id = ?1 AND i.source = ?2 AND i.event_id > ?3 ORDER BY i.event_id) "
      "WHERE ended BETWEEN ?4 AND ?5 AND runs BETWEEN ?6 AND ?7 AND result BETWEEN ?8 AND ?9 LIMIT ?10");
  rows.Bind(1, replay_id)
      .Bind(2, source)
      .Bind(3, after)
      .Bind(4, bounds.ended_from)
      .Bind(5, bounds.ended_to)
      .Bind(6, bounds.runs_from)
      .Bind(7, bounds.runs_to)
      .Bind(8, bounds.result_from)
      .Bind(9, bounds.result_to)
      .Bind(10, limit);
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    items.push_back(ReadItem(rows));
  }
}

}  // namespace

Result<ReplayProgress> ApplyReplayAct(Db& db, std::int64_t replay_id, ReplayAct act, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  const auto was = ReadStanding(db, replay_id);
  if (!was) return std::unexpected(was.error());
  const auto to = Leads(act, replay_id, *was);
  if (!to) return std::unexpected(to.error());
  if (auto done = WriteAct(db, replay_id, *was, *to, act, actor, now); !done) return std::unexpected(done.error());
  json::object details = {{"replay", replay_id}, {"before", was->state}, {"after", *to}};
  if (act == ReplayAct::cancel) details["left"] = was->queued;
  auto audited = WriteAudit(db, actor, now, Name(act), 0, json::serialize(details));
  if (!audited) return std::unexpected(audited.error());
  return GetReplay(db, replay_id, now);
}

Result<ReplayProgress> GetReplay(Db& db, std::int64_t replay_id, Time now) {
  static const std::string kSql = std::string(kProgress) + "WHERE r.id = ?1";
  Statement rows = db.Prepare(kSql);
  auto row = rows.Bind(1, replay_id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return NoReplay(replay_id);
  return ReadProgress(rows, now);
}

Result<std::vector<ReplayProgress>> RecentReplays(Db& db, int limit, Time now) {
  static const std::string kSql = std::string(kProgress) + "ORDER BY r.id DESC LIMIT ?1";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, std::clamp(limit, 1, kMaxRows));
  std::vector<ReplayProgress> list;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return list;
    list.push_back(ReadProgress(rows, now));
  }
}

Result<ReplayItems> ReadReplayItems(Db& db, std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                                    const std::string& cursor) {
  const auto bounds = BoundsOf(filter);
  if (!bounds) return std::unexpected(bounds.error());
  const auto after = ParseCursor(cursor);
  if (!after) return std::unexpected(after.error());
  if (const auto standing = ReadStanding(db, replay_id); !standing) return std::unexpected(standing.error());
  std::vector<std::int64_t> sources;
  {
    Statement rows = db.Prepare("SELECT source FROM replay_sources WHERE replay_id = ?1");
    rows.Bind(1, replay_id);
    for (;;) {
      const auto row = rows.Step();
      if (!row) return std::unexpected(row.error());
      if (!*row) break;
      sources.push_back(rows.Int(0));
    }
  }
  limit = std::clamp(limit, 1, kMaxRows);
  ReplayItems page;
  for (const std::int64_t source : sources) {
    auto added = AddItems(db, replay_id, source, *after, *bounds, limit + 1, page.items);
    if (!added) return std::unexpected(added.error());
  }
  std::ranges::sort(page.items, {}, &ReplayItem::id);
  if (std::ssize(page.items) > limit) {
    page.items.resize(static_cast<std::size_t>(limit));
    page.next = std::to_string(page.items.back().id);
  }
  return page;
}

}  // namespace dlo::store
