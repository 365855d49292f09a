// Order per subject inside the index. A lane is a subject of a source; the events in it are those that are not finished
// (waiting, running, and parked ones whose source says `hold`). Two laws, kept here inside the caller's transaction and
// checked by tests: at most one event of a lane is running, and a waiting one has behind = 0 only if it is the first of
// its lane by receipt and none is running.
//
// Who is in which lane is kept in memory and read from the rows at the start (events_in_lane). Lane numbers are random:
// two indexes of them made each event dirty three pages of their own, half of what the index wrote (bench/store).
//
// Whoever writes a row that becomes `waiting` with a lane writes it with behind = 1, then calls Enter (if it is new to
// the lane) and Settle, which frees it if it is its turn. Without a lane behind is 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// The number of a subject's lane; nullopt for an empty subject (no order). Two subjects that collide share a lane,
/// which delays and never harms.
[[nodiscard]] std::optional<std::int64_t> LaneOf(std::string_view source, std::string_view subject);

/// Written by the index thread alone; Behind may be asked by any.
class Lanes {
 public:
  using Lane = std::optional<std::int64_t>;

  /// Error corrupt, "lanes_broken": the rows have two of one lane free or running.
  Result<void> Load(Db& db);
  /// For a row about to be inserted as waiting with the newest id: whether it must be behind.
  [[nodiscard]] bool Occupied(std::int64_t lane) const;
  /// No lane, or an event that is there already or not, changes nothing.
  void Enter(Lane lane, EventId id);
  void Leave(Lane lane, EventId id);
  /// Enters an event whose row is free to run.
  void EnterFront(std::int64_t lane, EventId id);
  /// After an event entered `lane`, left it, or changed state in it: makes `behind` of the lane's waiting events true
  /// again. Touches at most the lane's first event and the one that was first before.
  Result<void> Settle(Db& db, Lane lane);
  /// Whether the event may run: it is the one that is free in its lane. Asked at each claim, since no index of the
  /// database forbids a second one.
  [[nodiscard]] bool IsFront(std::int64_t lane, EventId id) const;
  /// An event whose row says that it is free and that is not the front: puts it behind.
  Result<void> PutBehind(Db& db, std::int64_t lane, EventId id);
  /// How many come after `id` in its lane, at most `at_most`; 0 if it is not in it.
  [[nodiscard]] std::int64_t Behind(std::int64_t lane, EventId id, std::int64_t at_most) const;

  /// What changes from here on can be taken back, as a savepoint of the database can.
  [[nodiscard]] std::size_t Mark() const { return undo_.size(); }
  void RollBackTo(std::size_t mark);
  void Commit() { undo_.clear(); }

 private:
  /// Ids in order. Most lanes have one event, which then costs no memory of its own.
  struct Members {
    EventId first = 0;
    EventId front = 0;     // free or running; 0: none
    std::size_t head = 0;  // of `more`: before it they have left
    std::vector<EventId> more;
  };
  enum class Change : unsigned char { entered, left, front };
  struct Undo {
    Change change;
    std::int64_t lane;
    EventId id;
  };
  bool Add(std::int64_t lane, EventId id);
  bool Remove(std::int64_t lane, EventId id);
  void SetFront(std::int64_t lane, Members& members, EventId id);

  mutable std::mutex mutex_;
  std::unordered_map<std::int64_t, Members> lanes_;
  std::vector<Undo> undo_;
};

}  // namespace dlo::store
