#include "store/embedded/alarms.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>
#include <map>
#include <set>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/fingerprint.h"
#include "store/embedded/access.h"
#include "store/embedded/index_values.h"
#include "store/embedded/reads.h"

namespace dlo::store {
namespace {

constexpr int kMaxArrivals = 1'000;
constexpr int kMaxHolds = 1'000;
constexpr int kMaxReceipts = 10'000;
constexpr int kSentKept = 1'000;
constexpr std::size_t kAnswerBytes = 500;

constexpr char kAlertColumns[] =
    "SELECT id, alert, receiver, rule, name, source, route, status, since, created_at, n, total, what, sample, "
    "attempts, "
    "next_at, sent_at, answer FROM alerts WHERE ";

std::optional<Time> SomeTime(std::int64_t us) {
  if (us == 0) return std::nullopt;
  return FromMicros(us);
}

std::int64_t Micros(const std::optional<Time>& time) {
  return time ? ToMicros(*time) : 0;
}

Alert AlertFrom(const Statement& row) {
  Alert a;
  a.id = row.Int(0);
  a.alert = row.String(1);
  a.receiver = row.String(2);
  a.rule = row.String(3);
  a.name = row.String(4);
  a.source = row.String(5);
  a.route = row.String(6);
  a.status = row.String(7);
  a.since = FromMicros(row.Int(8));
  a.created_at = FromMicros(row.Int(9));
  a.n = row.Int(10);
  a.total = row.Int(11);
  a.what = row.String(12);
  a.sample = row.Int(13);
  a.attempts = static_cast<int>(row.Int(14));
  a.next_at = FromMicros(row.Int(15));
  if (const auto sent = row.OptInt(16)) a.sent_at = FromMicros(*sent);
  a.answer = row.String(17);
  return a;
}

/// Calls `take` for each row.
template <typename Take>
Result<void> EachRow(Statement& rows, Take take) {
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    take(rows);
  }
}

Result<void> ReadArrivals(Db& db, std::vector<Arrival>& out) {
  Statement rows = db.Prepare(
      "SELECT n.name, a.fingerprint, a.class, a.n, a.first_at, a.last_at, a.sample, r.kind, f.code, substr(f.message, "
      "1, "
      "300) FROM arrivals a LEFT JOIN names n ON n.id = a.source LEFT JOIN receipts r ON r.id = a.sample "
      "LEFT JOIN failures f ON f.event_id = a.sample LIMIT ?1");
  rows.Bind(1, kMaxArrivals);
  return EachRow(rows, [&](const Statement& row) {
    out.push_back({.source = row.String(0),
                   .fingerprint = fmt::format("{:016x}", static_cast<std::uint64_t>(row.Int(1))),
                   .failure_class = static_cast<FailureClass>(row.Int(2)),
                   .n = row.Int(3),
                   .first_at = FromMicros(row.Int(4)),
                   .last_at = FromMicros(row.Int(5)),
                   .sample = row.Int(6),
                   .kind = row.String(7),
                   .code = row.String(8),
                   .message = row.String(9)});
  });
}

Result<void> ReadConditions(Db& db, std::vector<AlarmCondition>& out) {
  Statement rows = db.Prepare(
      "SELECT receiver, rule, name, source, route, since, clear_since, told_at, pending, total, what, sample "
      "FROM alarm_conditions");
  return EachRow(rows, [&](const Statement& row) {
    out.push_back({.receiver = row.String(0),
                   .rule = row.String(1),
                   .name = row.String(2),
                   .source = row.String(3),
                   .route = row.String(4),
                   .since = FromMicros(row.Int(5)),
                   .clear_since = SomeTime(row.Int(6)),
                   .told_at = SomeTime(row.Int(7)),
                   .pending = row.Int(8),
                   .total = row.Int(9),
                   .what = row.String(10),
                   .sample = row.Int(11)});
  });
}

Result<void> ReadMarks(Db& db, AlarmsNow& now) {
  Statement rows = db.Prepare("SELECT name, value FROM alarm_marks");
  return EachRow(rows, [&](const Statement& row) {
    const std::string_view name = row.Text(0);
    if (name == "pass") now.pass = row.Int(1);
    if (name == "last_arrival_at") now.last_arrival_at = SomeTime(row.Int(1));
    if (name == "last_probe_at") now.last_probe_at = SomeTime(row.Int(1));
    if (name == "probe_failed") now.probe_failed = row.String(1);
  });
}

Result<void> TakeArrivals(Db& db, const std::vector<Arrival>& taken) {
  for (const Arrival& arrival : taken) {
    const auto fingerprint = FingerprintNumber(arrival.fingerprint);
    Result<void> done = db.Prepare(
                              "UPDATE arrivals SET n = n - ?3 WHERE fingerprint = ?2 AND source = (SELECT id FROM "
                              "names WHERE name = ?1)")
                            .Bind(1, arrival.source)
                            .Bind(2, fingerprint)
                            .Bind(3, arrival.n)
                            .Run();
    if (done) {
      done =
          db.Prepare(
                "DELETE FROM arrivals WHERE n <= 0 AND fingerprint = ?2 AND source = (SELECT id FROM names WHERE name "
                "= ?1)")
              .Bind(1, arrival.source)
              .Bind(2, fingerprint)
              .Run();
    }
    if (!done) return done;
  }
  return {};
}

Result<void> WriteCondition(Db& db, const AlarmCondition& c) {
  return db
      .Prepare(
          "INSERT OR REPLACE INTO alarm_conditions (receiver, rule, name, source, route, since, clear_since, told_at, "
          "pending, total, what, sample) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")
      .Bind(1, c.receiver)
      .Bind(2, c.rule)
      .Bind(3, c.name)
      .Bind(4, c.source)
      .Bind(5, c.route)
      .Bind(6, ToMicros(c.since))
      .Bind(7, Micros(c.clear_since))
      .Bind(8, Micros(c.told_at))
      .Bind(9, c.pending)
      .Bind(10, c.total)
      .Bind(11, c.what)
      .Bind(12, c.sample)
      .Run();
}

/// The counts of unsent alerts that `alert` takes the place of.
Result<std::int64_t> TakePlace(Db& db, const Alert& alert) {
  std::int64_t n = 0;
  {
    Statement rows = db.Prepare(
        "SELECT coalesce(sum(n), 0) FROM alerts WHERE receiver = ?1 AND rule = ?2 AND name = ?3 AND route = ?4 AND "
        "sent_at "
        "IS NULL AND status <> 'test'");
    const Result<bool> row =
        rows.Bind(1, alert.receiver).Bind(2, alert.rule).Bind(3, alert.name).Bind(4, alert.route).Step();
    if (!row) return std::unexpected(row.error());
    n = rows.Int(0);
  }
  Result<void> gone = db.Prepare(
                            "DELETE FROM alerts WHERE receiver = ?1 AND rule = ?2 AND name = ?3 AND route = ?4 AND "
                            "sent_at IS NULL AND status <> 'test'")
                          .Bind(1, alert.receiver)
                          .Bind(2, alert.rule)
                          .Bind(3, alert.name)
                          .Bind(4, alert.route)
                          .Run();
  if (!gone) return std::unexpected(gone.error());
  return n;
}

Result<void> InsertAlert(Db& db, const Alert& a, std::int64_t taken_over) {
  return db
      .Prepare(
          "INSERT INTO alerts (alert, receiver, rule, name, source, route, status, since, created_at, n, total, what, "
          "sample, next_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)")
      .Bind(1, a.alert)
      .Bind(2, a.receiver)
      .Bind(3, a.rule)
      .Bind(4, a.name)
      .Bind(5, a.source)
      .Bind(6, a.route)
      .Bind(7, a.status)
      .Bind(8, ToMicros(a.since))
      .Bind(9, ToMicros(a.created_at))
      .Bind(10, a.n + taken_over)
      .Bind(11, a.total)
      .Bind(12, a.what)
      .Bind(13, a.sample)
      .Bind(14, ToMicros(a.next_at))
      .Run();
}

Result<std::int64_t> OneInt(Statement rows) {
  const Result<bool> row = rows.Step();
  if (!row) return std::unexpected(row.error());
  return *row ? rows.Int(0) : 0;
}

}  // namespace

Result<AlarmsNow> ReadAlarms(Db& db) {
  const Snapshot snapshot(db);
  AlarmsNow now;
  if (Result<void> read = ReadMarks(db, now); !read) return std::unexpected(read.error());
  if (Result<void> read = ReadArrivals(db, now.arrivals); !read) return std::unexpected(read.error());
  if (Result<void> read = ReadConditions(db, now.conditions); !read) return std::unexpected(read.error());
  return now;
}

Result<bool> CommitAlarms(Db& db, const AlarmPass& pass) {
  Result<void> done = db.Prepare("UPDATE alarm_marks SET value = value + 1 WHERE name = 'pass' AND value = ?1")
                          .Bind(1, pass.pass)
                          .Run();
  if (!done) return std::unexpected(done.error());
  if (db.Changes() == 0) return false;
  done = TakeArrivals(db, pass.taken);
  if (done && pass.last_arrival_at) {
    done = db.Prepare("UPDATE alarm_marks SET value = max(value, ?1) WHERE name = 'last_arrival_at'")
               .Bind(1, ToMicros(*pass.last_arrival_at))
               .Run();
  }
  for (const AlarmCondition& condition : pass.changed) {
    if (done) done = WriteCondition(db, condition);
  }
  for (const AlarmCondition& condition : pass.ended) {
    if (!done) break;
    done = db.Prepare("DELETE FROM alarm_conditions WHERE receiver = ?1 AND rule = ?2 AND name = ?3")
               .Bind(1, condition.receiver)
               .Bind(2, condition.rule)
               .Bind(3, condition.name)
               .Run();
  }
  for (const Alert& alert : pass.alerts) {
    if (!done) break;
    const Result<std::int64_t> taken_over = TakePlace(db, alert);
    if (!taken_over) return std::unexpected(taken_over.error());
    done = InsertAlert(db, alert, *taken_over);
  }
  if (!done) return std::unexpected(done.error());
  return true;
}

Result<std::optional<Alert>> DueAlert(Db& db, const std::string& receiver, Time now) {
  static const std::string kSql =
      std::string(kAlertColumns) + "receiver = ?1 AND sent_at IS NULL AND next_at <= ?2 ORDER BY id LIMIT 1";
  Statement rows = db.Prepare(kSql);
  const Result<bool> row = rows.Bind(1, receiver).Bind(2, ToMicros(now)).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::nullopt;
  return AlertFrom(rows);
}

Result<void> AlertAttempted(Db& db, std::int64_t id, const std::string& answer, Time now,
                            std::optional<Time> retry_at) {
  const std::string clean = CleanText(answer, kAnswerBytes);
  Result<void> done =
      db.Prepare(
            "UPDATE alerts SET attempts = attempts + 1, answer = ?2, sent_at = ?3, next_at = coalesce(?4, next_at) "
            "WHERE id = ?1 AND sent_at IS NULL")
          .Bind(1, id)
          .Bind(2, clean)
          .Bind(3, When(!retry_at, ToMicros(now)))
          .Bind(4, When(retry_at.has_value(), Micros(retry_at)))
          .Run();
  if (!done || retry_at) return done;
  return db.Prepare("DELETE FROM alerts WHERE sent_at NOT NULL AND id <= ?1 - ?2").Bind(1, id).Bind(2, kSentKept).Run();
}

Result<std::int64_t> QueueTestAlert(Db& db, const Alert& alert, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  if (Result<void> done = InsertAlert(db, alert, 0); !done) return std::unexpected(done.error());
  const std::int64_t id = sqlite3_last_insert_rowid(db.handle());
  const std::string details = boost::json::serialize(boost::json::object{{"receiver", alert.receiver}, {"alert", id}});
  if (Result<void> done = WriteAudit(db, actor, now, "alert_test", 0, details); !done) {
    return std::unexpected(done.error());
  }
  return id;
}

Result<Alert> GetAlert(Db& db, std::int64_t id) {
  static const std::string kSql = std::string(kAlertColumns) + "id = ?1";
  Statement rows = db.Prepare(kSql);
  const Result<bool> row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no alert {}.", id));
  return AlertFrom(rows);
}

Result<std::vector<Alert>> ListAlerts(Db& db, bool pending_only, std::int64_t before, int limit) {
  static const std::string kAll = std::string(kAlertColumns) + "id < ?1 ORDER BY id DESC LIMIT ?2";
  static const std::string kPending =
      std::string(kAlertColumns) + "id < ?1 AND sent_at IS NULL ORDER BY id DESC LIMIT ?2";
  Statement rows = db.Prepare(pending_only ? kPending : kAll);
  rows.Bind(1, before == 0 ? INT64_MAX : before).Bind(2, limit);
  std::vector<Alert> alerts;
  if (Result<void> read = EachRow(rows, [&](const Statement& row) { alerts.push_back(AlertFrom(row)); }); !read) {
    return std::unexpected(read.error());
  }
  return alerts;
}

Result<std::int64_t> PendingAlerts(Db& db) {
  return OneInt(db.Prepare("SELECT count(*) FROM alerts INDEXED BY alerts_unsent WHERE sent_at IS NULL"));
}

Result<std::int64_t> KeepReceivers(Db& db, const std::vector<std::string>& names) {
  std::set<std::string> gone;
  {
    Statement rows =
        db.Prepare("SELECT receiver FROM alarm_conditions UNION SELECT receiver FROM alerts WHERE sent_at IS NULL");
    Result<void> read = EachRow(rows, [&](const Statement& row) {
      if (std::ranges::find(names, row.Text(0)) == names.end()) gone.insert(row.String(0));
    });
    if (!read) return std::unexpected(read.error());
  }
  std::int64_t dropped = 0;
  for (const std::string& name : gone) {
    Result<void> done = db.Prepare("DELETE FROM alarm_conditions WHERE receiver = ?1").Bind(1, name).Run();
    if (done) done = db.Prepare("DELETE FROM alerts WHERE receiver = ?1 AND sent_at IS NULL").Bind(1, name).Run();
    if (!done) return std::unexpected(done.error());
    dropped += db.Changes();
  }
  return dropped;
}

Result<std::vector<OverdueHold>> OverdueHolds(Db& db, Time now) {
  Statement rows = db.Prepare(
      "SELECT n.name, count(*), max(h.id) FROM (SELECT e.id, e.source FROM failures f INDEXED BY failures_hold "
      "CROSS JOIN events e ON e.id = f.event_id WHERE f.hold_until IS NOT NULL AND f.hold_until < ?1 AND e.state = 4 "
      "LIMIT ?2) h LEFT JOIN names n ON n.id = h.source GROUP BY h.source ORDER BY 1");
  rows.Bind(1, ToMicros(now)).Bind(2, kMaxHolds);
  std::vector<OverdueHold> holds;
  Result<void> read = EachRow(rows, [&](const Statement& row) {
    holds.push_back({.source = row.String(0), .n = row.Int(1), .sample = row.Int(2)});
  });
  if (!read) return std::unexpected(read.error());
  return holds;
}

Result<std::vector<LastReceipt>> LastReceipts(Db& db) {
  Statement rows = db.Prepare(
      "SELECT n.name, e.received_at FROM events e LEFT JOIN names n ON n.id = e.source "
      "ORDER BY e.id DESC LIMIT ?1");
  rows.Bind(1, kMaxReceipts);
  std::map<std::string, Time> newest;
  std::vector<LastReceipt> last;
  int looked_at = 0;
  Time oldest{};
  Result<void> read = EachRow(rows, [&](const Statement& row) {
    oldest = FromMicros(row.Int(1));
    newest.emplace(row.String(0), oldest);
    ++looked_at;
  });
  if (!read) return std::unexpected(read.error());
  for (const auto& [source, at] : newest) last.push_back({source, at});
  // All there is was looked at: who is not in it has never sent.
  if (looked_at == kMaxReceipts) last.push_back({.source = {}, .at = oldest});
  return last;
}

Result<void> NoteProbe(Db& db, Time at, const std::string& failed) {
  const std::string clean = CleanText(failed, kAnswerBytes);
  Result<void> done =
      db.Prepare("UPDATE alarm_marks SET value = ?1 WHERE name = 'last_probe_at'").Bind(1, ToMicros(at)).Run();
  if (done) done = db.Prepare("UPDATE alarm_marks SET value = ?1 WHERE name = 'probe_failed'").Bind(1, clean).Run();
  return done;
}

}  // namespace dlo::store
