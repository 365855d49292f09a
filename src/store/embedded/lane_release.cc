#include "store/embedded/lane_release.h"

#include <fmt/format.h>

#include "base/time_text.h"
#include "store/embedded/access.h"
#include "store/embedded/lanes.h"

namespace dlo::store {
namespace {

struct Holder {
  EventId id = 0;
  std::int64_t lane = 0;
  bool too_old = false;
};

Result<std::vector<Holder>> Holders(Db& db, const std::string& source, Time older_than) {
  Statement rows = db.Prepare(
      "SELECT id, lane, parked_at <= ?2 FROM events INDEXED BY events_parked_lane "
      "WHERE source = (SELECT id FROM names WHERE name = ?1) AND letter NOT NULL AND lane NOT NULL");
  rows.Bind(1, source).Bind(2, ToMicros(older_than));
  std::vector<Holder> holders;
  for (;;) {
    const Result<bool> row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return holders;
    holders.push_back({rows.Int(0), rows.Int(1), rows.Int(2) != 0});
  }
}

}  // namespace

Result<std::vector<EventId>> ReleaseLanes(Db& db, Lanes& lanes, const std::string& source, std::int64_t max_behind,
                                          Time older_than, const Actor& actor, Time now) {
  const auto holders = Holders(db, source, older_than);
  if (!holders) return std::unexpected(holders.error());
  std::vector<EventId> released;
  for (const Holder& holder : *holders) {
    const bool too_many = lanes.Behind(holder.lane, holder.id, max_behind + 1) > max_behind;
    if (!holder.too_old && !too_many) continue;
    if (auto done =
            db.Prepare("UPDATE events SET lane = NULL WHERE id = ?1 AND letter NOT NULL").Bind(1, holder.id).Run();
        !done) {
      return std::unexpected(done.error());
    }
    lanes.Leave(holder.lane, holder.id);
    if (auto done = lanes.Settle(db, holder.lane); !done) return std::unexpected(done.error());
    const std::string details = fmt::format(R"({{"limit":"{}"}})", too_many ? "hold_max_events" : "hold_max_age");
    if (auto done = WriteAudit(db, actor, now, "lane_released", holder.id, details); !done)
      return std::unexpected(done.error());
    released.push_back(holder.id);
  }
  return released;
}

}  // namespace dlo::store
