#include "store/embedded/diagnosis.h"

#include <fmt/format.h>

#include "base/time_text.h"

namespace dlo::store {

Result<std::vector<LetterBrief>> NewestLetters(Db& db, Time since, int limit) {
  // The limit stands inside, so that old letters do not make a longer search.
  Statement rows = db.Prepare(
      "SELECT e.id, n.name, r.kind, r.account, e.class, e.fingerprint, f.code, substr(f.message, 1, 200), "
      "f.handler_version, e.parked_at FROM (SELECT id FROM events INDEXED BY events_letters WHERE letter NOT NULL "
      "ORDER BY id DESC LIMIT ?2) l CROSS JOIN events e ON e.id = l.id CROSS JOIN receipts r ON r.id = l.id "
      "LEFT JOIN failures f ON f.event_id = l.id LEFT JOIN names n ON n.id = e.source WHERE e.parked_at >= ?1");
  rows.Bind(1, ToMicros(since)).Bind(2, limit);
  std::vector<LetterBrief> letters;
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return letters;
    letters.push_back({.id = rows.Int(0),
                       .source = rows.String(1),
                       .kind = rows.String(2),
                       .account = rows.String(3),
                       .failure_class = static_cast<FailureClass>(rows.Int(4)),
                       .fingerprint = fmt::format("{:016x}", static_cast<std::uint64_t>(rows.Int(5))),
                       .code = rows.String(6),
                       .message = rows.String(7),
                       .handler_version = rows.String(8),
                       .parked_at = FromMicros(rows.Int(9))});
  }
}

Result<std::vector<TrafficBrief>> NewestTraffic(Db& db, int limit) {
  Statement rows = db.Prepare(
      "SELECT n.name, r.account FROM receipts r LEFT JOIN names n ON n.id = r.source ORDER BY r.id DESC LIMIT ?1");
  rows.Bind(1, limit);
  std::vector<TrafficBrief> traffic;
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return traffic;
    traffic.push_back({.source = rows.String(0), .account = rows.String(1)});
  }
}

Result<std::vector<std::string>> VersionsBefore(Db& db, EventId id, int events) {
  Statement rows = db.Prepare(
      "SELECT DISTINCT handler_version FROM (SELECT handler_version FROM attempts WHERE event_id < ?1 AND "
      "event_id >= ?1 - ?2 AND number <= 10 ORDER BY event_id DESC LIMIT ?2) WHERE handler_version <> '' ORDER BY 1");
  rows.Bind(1, id).Bind(2, events);
  std::vector<std::string> versions;
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return versions;
    versions.push_back(rows.String(0));
  }
}

}  // namespace dlo::store
