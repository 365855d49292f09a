#include "store/embedded/figures.h"

#include <cstdlib>
#include <map>
#include <tuple>

#include "base/time_text.h"
#include "store/embedded/handler_versions.h"
#include "store/embedded/reads.h"

namespace dlo::store {
namespace {

Result<std::int64_t> OneNumber(Statement rows) {
  auto row = rows.Step();
  if (!row) return std::unexpected(row.error());
  return *row ? rows.Int(0) : 0;
}

Result<std::int64_t> Meta(Db& db, std::string_view name) {
  Statement rows = db.Prepare("SELECT value FROM meta WHERE name = ?1");
  rows.Bind(1, name);
  return OneNumber(std::move(rows));
}

/// From rows of source name, state, class, number.
Result<std::vector<StateCount>> ReadCounts(Statement rows) {
  std::vector<StateCount> counts;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return counts;
    counts.push_back({.source = rows.String(0),
                      .state = static_cast<State>(rows.Int(1)),
                      .failure_class = static_cast<FailureClass>(rows.Int(2)),
                      .count = rows.Int(3)});
  }
}

Result<std::vector<StateCount>> KeptCounts(Db& db) {
  return ReadCounts(db.Prepare(
      "SELECT n.name, c.state, c.class, c.n FROM counts c LEFT JOIN names n ON n.id = c.source ORDER BY 1, 2, 3"));
}

Result<std::vector<StateCount>> CountedRows(Db& db) {
  return ReadCounts(
      db.Prepare("SELECT n.name, c.state, c.class, c.n FROM (SELECT source, state, class, count(*) AS n FROM events "
                 "GROUP BY 1, 2, 3) c "
                 "LEFT JOIN names n ON n.id = c.source ORDER BY 1, 2, 3"));
}

Result<std::vector<SourceAge>> Oldest(Db& db) {
  Statement rows = db.Prepare(
      "SELECT n.name, e.parked_at, e.id FROM (SELECT DISTINCT source FROM counts) c "
      "CROSS JOIN events e ON e.id = (SELECT o.id FROM events o INDEXED BY events_oldest "
      "WHERE o.source = c.source AND o.letter = 3 AND o.parked_at IS NOT NULL ORDER BY o.parked_at LIMIT 1) "
      "LEFT JOIN names n ON n.id = c.source ORDER BY 1");
  std::vector<SourceAge> ages;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return ages;
    ages.push_back({.source = rows.String(0), .oldest_unresolved = FromMicros(rows.Int(1)), .id = rows.Int(2)});
  }
}

/// Costs as much as there are holds that are overdue or wait for a handler version.
Result<void> ReadOverdue(Db& db, Time now, Figures& figures) {
  static const std::string kSql =
      std::string(
          "SELECT n.name, count(*) FROM (SELECT event_id FROM failures WHERE hold_until IS NOT NULL AND hold_until < "
          "?1 "
          "UNION SELECT event_id FROM failures WHERE wake_on_handler <> '') o CROSS JOIN events e ON e.id = o.event_id "
          "CROSS JOIN failures f ON f.event_id = o.event_id LEFT JOIN names n ON n.id = e.source "
          "WHERE e.state = 4 AND (f.hold_until < ?1 OR ") +
      kWakeSeen + ") GROUP BY 1";
  Statement rows = db.Prepare(kSql);
  rows.Bind(1, ToMicros(now));
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    figures.holds_overdue[rows.String(0)] = rows.Int(1);
    figures.held_overdue += rows.Int(1);
  }
}

Result<Figures> ReadAll(Db& db, const FigureFacts& facts, std::vector<StateCount> counts) {
  Figures figures;
  figures.counts = std::move(counts);
  auto oldest = Oldest(db);
  if (!oldest) return std::unexpected(oldest.error());
  figures.oldest = std::move(*oldest);
  figures.receipts = facts.journal_seq;
  figures.free_bytes = facts.free_bytes;
  const auto take = [](Result<std::int64_t> number, std::int64_t& into) -> Result<void> {
    if (!number) return std::unexpected(number.error());
    into = *number;
    return {};
  };
  if (auto ok = take(Meta(db, "journal_seq"), figures.indexed); !ok) return std::unexpected(ok.error());
  if (auto ok = take(Meta(db, "duplicates"), figures.duplicates); !ok) return std::unexpected(ok.error());
  if (auto ok = take(Meta(db, "pruned"), figures.pruned); !ok) return std::unexpected(ok.error());
  auto head = OneNumber(db.Prepare("SELECT coalesce(max(seq), 0) FROM audit"));
  if (auto ok = take(std::move(head), figures.audit_head); !ok) return std::unexpected(ok.error());
  if (auto ok = ReadOverdue(db, facts.now, figures); !ok) return std::unexpected(ok.error());
  std::int64_t present = 0;
  for (const StateCount& c : figures.counts) present += c.count;
  figures.accounting_difference = figures.indexed - figures.duplicates - figures.pruned - present;
  return figures;
}

std::int64_t Drift(const std::vector<StateCount>& kept, const std::vector<StateCount>& rows) {
  std::map<std::tuple<std::string, State, FailureClass>, std::int64_t> differences;
  for (const StateCount& c : kept) differences[{c.source, c.state, c.failure_class}] += c.count;
  for (const StateCount& c : rows) differences[{c.source, c.state, c.failure_class}] -= c.count;
  std::int64_t drift = 0;
  for (const auto& [where, difference] : differences) drift += std::abs(difference);
  return drift;
}

}  // namespace

Result<Figures> ReadFigures(Db& db, const FigureFacts& facts) {
  const Snapshot snapshot(db);
  auto counts = KeptCounts(db);
  if (!counts) return std::unexpected(counts.error());
  return ReadAll(db, facts, std::move(*counts));
}

Result<Figures> RecountFigures(Db& db, const FigureFacts& facts) {
  const Snapshot snapshot(db);
  const auto kept = KeptCounts(db);
  if (!kept) return std::unexpected(kept.error());
  auto rows = CountedRows(db);
  if (!rows) return std::unexpected(rows.error());
  // An event without its receipt would be counted and never listed.
  const auto pairs = OneNumber(db.Prepare(
      "SELECT (SELECT count(*) FROM receipts r WHERE NOT EXISTS (SELECT 1 FROM events e WHERE e.id = r.id)) + "
      "(SELECT count(*) FROM events e WHERE NOT EXISTS (SELECT 1 FROM receipts r WHERE r.id = e.id))"));
  if (!pairs) return std::unexpected(pairs.error());
  const std::int64_t drift = Drift(*kept, *rows) + *pairs;
  auto figures = ReadAll(db, facts, std::move(*rows));
  if (figures && figures->accounting_difference == 0) figures->accounting_difference = drift;
  return figures;
}

}  // namespace dlo::store
