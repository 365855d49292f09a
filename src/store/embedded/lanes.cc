#include "store/embedded/lanes.h"

#include <string>

#include "base/encoding.h"
#include "dlo/event.h"
#include "dlo/states.h"

namespace dlo::store {
namespace {

struct LaneRow {
  EventId id = 0;
  State state = State::waiting;
};

Result<std::optional<LaneRow>> ReadRow(Statement statement, std::int64_t lane) {
  const Result<bool> row = statement.Bind(1, lane).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return std::nullopt;
  return LaneRow{statement.Int(0), static_cast<State>(statement.Int(1))};
}

Result<void> SetBehind(Db& db, EventId id, bool behind) {
  return db.Prepare("UPDATE events SET behind = ?2 WHERE id = ?1 AND state = 0").Bind(1, id).Bind(2, behind).Run();
}

}  // namespace

std::optional<std::int64_t> LaneOf(std::string_view source, std::string_view subject) {
  if (subject.empty()) return std::nullopt;
  thread_local std::string text;
  text.assign(source).append(1, '\0').append(subject);
  return Digest64(text);
}

Result<void> SettleLane(Db& db, std::optional<std::int64_t> lane) {
  if (!lane) return {};
  // The one that is free or running: events_lane_front allows one.
  const auto front = ReadRow(db.Prepare("SELECT id, state FROM events INDEXED BY events_lane_front "
                                        "WHERE lane = ?1 AND lane IS NOT NULL AND behind = 0 AND state IN (0, 1)"),
                             *lane);
  if (!front) return std::unexpected(front.error());
  if (*front && (*front)->state == State::running) return {};
  const auto first = ReadRow(db.Prepare("SELECT id, state FROM events INDEXED BY events_lane "
                                        "WHERE lane = ?1 AND lane IS NOT NULL ORDER BY id LIMIT 1"),
                             *lane);
  if (!first) return std::unexpected(first.error());
  if (!*first || (*front && (*front)->id == (*first)->id)) return {};
  if (*front) {
    if (Result<void> moved = SetBehind(db, (*front)->id, true); !moved) return moved;
  }
  if ((*first)->state != State::waiting) return {};  // a parked one that holds its subject
  return SetBehind(db, (*first)->id, false);
}

Result<bool> LaneOccupied(Db& db, std::int64_t lane) {
  Statement statement =
      db.Prepare("SELECT 1 FROM events INDEXED BY events_lane WHERE lane = ?1 AND lane IS NOT NULL LIMIT 1");
  return statement.Bind(1, lane).Step();
}

}  // namespace dlo::store
