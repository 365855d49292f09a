#include "store/embedded/lanes.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/encoding.h"
#include "dlo/states.h"

namespace dlo::store {
namespace {

struct LaneRow {
  State state = State::waiting;
  bool behind = false;
};

Result<LaneRow> ReadRow(Db& db, EventId id) {
  Statement statement = db.Prepare("SELECT state, behind FROM events WHERE id = ?1");
  const Result<bool> row = statement.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) {
    return Fail(
        ErrorKind::corrupt, "database_corrupt",
        fmt::format("the database is damaged: event {} waits for its turn and has no row. Stop, keep a copy, and "
                    "move it away to have it rebuilt from the journal",
                    id));
  }
  return LaneRow{static_cast<State>(statement.Int(0)), statement.Int(1) != 0};
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

Result<void> Lanes::Load(Db& db) {
  const std::lock_guard lock(mutex_);
  lanes_.clear();
  undo_.clear();
  Statement rows = db.Prepare(
      "SELECT id, lane, state, behind FROM events INDEXED BY events_in_lane WHERE lane NOT NULL ORDER BY id");
  for (;;) {
    const Result<bool> more = rows.Step();
    if (!more) return std::unexpected(more.error());
    if (!*more) return {};
    const EventId id = rows.Int(0);
    const auto state = static_cast<State>(rows.Int(2));
    Add(rows.Int(1), id);
    const bool free = (state == State::waiting || state == State::running) && rows.Int(3) == 0;
    if (!free) continue;
    EventId& front = lanes_[rows.Int(1)].front;
    if (front != 0) {
      return Fail(
          ErrorKind::corrupt, "lanes_broken",
          fmt::format("the database is damaged: events {} and {} of one subject are both free to run. Stop, keep a "
                      "copy, and move it away to have it rebuilt from the journal",
                      front, id));
    }
    front = id;
  }
}

bool Lanes::Occupied(std::int64_t lane) const {
  return lanes_.contains(lane);
}

bool Lanes::Add(std::int64_t lane, EventId id) {
  Members& m = lanes_[lane];
  if (m.first == 0) {
    m.first = id;
    return true;
  }
  if (id == m.first) return false;
  EventId late = id;
  if (id < m.first) std::swap(late, m.first);
  const auto begin = m.more.begin() + static_cast<std::ptrdiff_t>(m.head);
  const auto place =
      m.more.empty() || m.more.back() < late ? m.more.end() : std::lower_bound(begin, m.more.end(), late);
  if (place != m.more.end() && *place == late) return false;
  m.more.insert(place, late);
  return true;
}

bool Lanes::Remove(std::int64_t lane, EventId id) {
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return false;
  Members& m = found->second;
  const auto begin = m.more.begin() + static_cast<std::ptrdiff_t>(m.head);
  if (id == m.first) {
    if (begin == m.more.end()) {
      lanes_.erase(found);
      return true;
    }
    m.first = *begin;
    ++m.head;
    // Those that have left go when they are half of it, so that each leaves in constant time.
    if (m.head * 2 > m.more.size()) {
      m.more.erase(m.more.begin(), m.more.begin() + static_cast<std::ptrdiff_t>(m.head));
      m.head = 0;
      if (m.more.empty()) m.more.shrink_to_fit();
    }
    return true;
  }
  const auto place = std::lower_bound(begin, m.more.end(), id);
  if (place == m.more.end() || *place != id) return false;
  m.more.erase(place);
  return true;
}

void Lanes::SetFront(std::int64_t lane, Members& members, EventId id) {
  if (members.front == id) return;
  undo_.push_back({Change::front, lane, members.front});
  members.front = id;
}

void Lanes::Enter(Lane lane, EventId id) {
  if (!lane) return;
  const std::lock_guard lock(mutex_);
  if (Add(*lane, id)) undo_.push_back({Change::entered, *lane, id});
}

void Lanes::EnterFront(std::int64_t lane, EventId id) {
  const std::lock_guard lock(mutex_);
  if (Add(lane, id)) undo_.push_back({Change::entered, lane, id});
  SetFront(lane, lanes_[lane], id);
}

void Lanes::Leave(Lane lane, EventId id) {
  if (!lane) return;
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(*lane);
  if (found == lanes_.end()) return;
  if (found->second.front == id) SetFront(*lane, found->second, 0);
  if (Remove(*lane, id)) undo_.push_back({Change::left, *lane, id});
}

Result<void> Lanes::Settle(Db& db, Lane lane) {
  if (!lane) return {};
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(*lane);
  if (found == lanes_.end()) return {};
  Members& m = found->second;
  if (m.front != 0 && m.front != m.first) {
    const Result<LaneRow> front = ReadRow(db, m.front);
    if (!front) return std::unexpected(front.error());
    if (front->state == State::running) return {};
    if (Result<void> moved = SetBehind(db, m.front, true); !moved) return moved;
    SetFront(*lane, m, 0);
  }
  const Result<LaneRow> first = ReadRow(db, m.first);
  if (!first) return std::unexpected(first.error());
  if (first->state != State::waiting) {  // it runs, or is a parked one that holds its subject
    SetFront(*lane, m, first->state == State::running ? m.first : 0);
    return {};
  }
  SetFront(*lane, m, m.first);
  return first->behind ? SetBehind(db, m.first, false) : Result<void>();
}

bool Lanes::IsFront(std::int64_t lane, EventId id) const {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  return found != lanes_.end() && found->second.front == id;
}

Result<void> Lanes::PutBehind(Db& db, std::int64_t lane, EventId id) {
  if (Result<void> moved = SetBehind(db, id, true); !moved) return moved;
  Enter(lane, id);
  return Settle(db, lane);
}

std::int64_t Lanes::Behind(std::int64_t lane, EventId id, std::int64_t at_most) const {
  const std::lock_guard lock(mutex_);
  const auto found = lanes_.find(lane);
  if (found == lanes_.end()) return 0;
  const Members& m = found->second;
  const auto begin = m.more.begin() + static_cast<std::ptrdiff_t>(m.head);
  auto after = begin;
  if (id != m.first) {
    after = std::lower_bound(begin, m.more.end(), id);
    if (after == m.more.end() || *after != id) return 0;
    ++after;
  }
  return std::min<std::int64_t>(m.more.end() - after, at_most);
}

void Lanes::RollBackTo(std::size_t mark) {
  const std::lock_guard lock(mutex_);
  while (undo_.size() > mark) {
    const Undo undo = undo_.back();
    undo_.pop_back();
    switch (undo.change) {
      case Change::entered:
        Remove(undo.lane, undo.id);
        break;
      case Change::left:
        Add(undo.lane, undo.id);
        break;
      case Change::front:
        if (const auto found = lanes_.find(undo.lane); found != lanes_.end()) found->second.front = undo.id;
        break;
    }
  }
}

}  // namespace dlo::store
