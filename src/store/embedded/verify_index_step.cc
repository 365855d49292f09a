// The rows of the index among themselves: the file, the pairs of rows, the kept counts, and states that their own
// history does not bear out.
#include <fmt/format.h>

#include "dlo/states.h"
#include "store/embedded/verify.h"

namespace dlo::store {
namespace {

constexpr char kCompare[] =
    "keep a copy of the database and compare the event (`dlo show ID`) with its handler's own records; a person may "
    "then reopen, replay or resolve it";
constexpr char kRebuild[] =
    "stop dlo, keep a copy of the database, restore a backup, or move it away to have it rebuilt from the journal "
    "(every event then goes to its handler again)";

/// Runs `sql`, whose rows are an id and perhaps words; each is a damage that `what` describes.
Result<void> EachRow(VerifyScope& scope, StepReport& report, const std::string& sql, const char* what,
                     const char* advice) {
  auto rows = scope.db->PrepareOnce(sql);
  if (!rows) return std::unexpected(rows.error());
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    report.Add({fmt::format("event {}: {}", rows->Int(0), what), rows->Int(0), advice});
  }
}

Result<void> CheckFile(VerifyScope& scope, StepReport& report) {
  auto rows = scope.db->PrepareOnce("PRAGMA integrity_check(20)");
  if (!rows) return std::unexpected(rows.error());
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    if (rows->Text(0) != "ok") report.Add({"the index's file: " + rows->String(0), 0, kRebuild});
  }
}

Result<void> CheckCounts(VerifyScope& scope, StepReport& report) {
  auto rows = scope.db->PrepareOnce(
      "SELECT n.name, x.state, x.class, sum(x.kept), sum(x.present) FROM ("
      "SELECT source, state, class, n AS kept, 0 AS present FROM counts UNION ALL "
      "SELECT source, state, class, 0, count(*) FROM events GROUP BY 1, 2, 3) x "
      "LEFT JOIN names n ON n.id = x.source GROUP BY x.source, x.state, x.class HAVING sum(x.kept) <> sum(x.present)");
  if (!rows) return std::unexpected(rows.error());
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    const int state = static_cast<int>(rows->Int(1));
    report.Add({fmt::format("counts of source {}, state {}, class {}: {} were counted as they came and went, and there "
                            "are {} rows",
                            rows->Text(0), state < kStateCount ? Name(static_cast<State>(state)) : "unknown",
                            rows->Int(2) <= 7 ? Name(static_cast<FailureClass>(rows->Int(2))) : "unknown", rows->Int(3),
                            rows->Int(4)),
                0, kCompare});
  }
}

Result<void> CheckAccounting(VerifyScope& scope, StepReport& report) {
  auto rows = scope.db->PrepareOnce(
      "SELECT (SELECT value FROM meta WHERE name = 'journal_seq') - (SELECT value FROM meta WHERE name = 'duplicates') "
      "- (SELECT value FROM meta WHERE name = 'pruned'), (SELECT count(*) FROM events)");
  if (!rows) return std::unexpected(rows.error());
  if (const auto row = rows->Step(); !row) return std::unexpected(row.error());
  report.checked = rows->Int(1);
  if (rows->Int(0) == rows->Int(1)) return {};
  report.Add(
      {fmt::format("accounting: {} events were taken in and not pruned, and there are {}", rows->Int(0), rows->Int(1)),
       0, kRebuild});
  return {};
}

/// What cannot be, whatever happened: the states of lifecycle.md against the newest attempt and the failure's row.
Result<void> CheckStates(VerifyScope& scope, StepReport& report) {
  const struct {
    const char* sql;
    const char* what;
  } facts[] = {
      {"SELECT e.id FROM events e JOIN attempts a ON a.event_id = e.id AND a.number = e.attempt_no "
       "WHERE e.state = 2 AND (a.outcome IS NULL OR a.outcome NOT IN (0, 1)) ORDER BY e.id",
       "it is marked succeeded, and its newest attempt did not succeed"},
      {"SELECT e.id FROM events e JOIN attempts a ON a.event_id = e.id AND a.number = e.attempt_no "
       "WHERE e.state = 5 AND (a.outcome IS NULL OR a.outcome NOT IN (0, 1, 5)) ORDER BY e.id",
       "it is marked replayed, and its newest attempt neither succeeded nor found its subject gone"},
      {"SELECT e.id FROM events e WHERE e.state IN (3, 4) "
       "AND NOT EXISTS (SELECT 1 FROM failures f WHERE f.event_id = e.id) ORDER BY e.id",
       "it is marked as a dead letter, and there is no failure of it"},
  };
  for (const auto& fact : facts) {
    if (auto done = EachRow(scope, report, fact.sql, fact.what, kCompare); !done) return done;
  }
  return {};
}

}  // namespace

Result<void> CheckIndex(VerifyScope& scope, std::vector<StepReport>& reports) {
  StepReport report{.name = "index", .unit = "events"};
  if (scope.db == nullptr) {
    if (scope.journal_report.records > 0) {
      report.Add({"the index is missing, and the journal has receipts", 0,
                  "restore the database from a backup; without one the next start rebuilds it, and every event goes to "
                  "its handler again"});
    }
    reports.push_back(std::move(report));
    return {};
  }
  if (scope.progress) scope.progress("index", 0);
  for (const auto check : {CheckFile, CheckAccounting, CheckStates, CheckCounts}) {
    if (auto done = check(scope, report); !done) return done;
  }
  for (const char* sql : {"SELECT id FROM receipts r WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = r.id)",
                          "SELECT id FROM events e WHERE NOT EXISTS (SELECT 1 FROM receipts r WHERE r.id = e.id)"}) {
    if (auto done = EachRow(scope, report, sql, "it has only one of its two rows", kRebuild); !done) return done;
  }
  reports.push_back(std::move(report));
  return {};
}

}  // namespace dlo::store
