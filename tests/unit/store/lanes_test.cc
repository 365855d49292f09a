#include "store/embedded/lanes.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "store/embedded/schema.h"

namespace dlo::store {
namespace {

/// Rows as the index has them, and a model that says who may be free.
class LanesTest : public ::testing::Test {
 protected:
  LanesTest() : db(OrThrow(Db::Open(":memory:", Db::Mode::writer))) { OrThrow(Migrate(*db, Time{})); }

  void Insert(EventId id, std::int64_t lane, bool behind) {
    OrThrow(db->Prepare("INSERT INTO events (id, source, received_at, state, due_at, lane, behind) "
                        "VALUES (?1, 1, 0, 0, 0, ?2, ?3)")
                .Bind(1, id)
                .Bind(2, lane)
                .Bind(3, behind)
                .Run());
  }
  /// As intake does.
  void Arrive(EventId id, std::int64_t lane) {
    const bool behind = lanes.Occupied(lane);
    Insert(id, lane, behind);
    behind ? lanes.Enter(lane, id) : lanes.EnterFront(lane, id);
  }
  void Set(EventId id, const char* what) {
    OrThrow(db->Exec("UPDATE events SET " + std::string(what) + " WHERE id = " + std::to_string(id)));
  }
  void Run(EventId id) { Set(id, "state = 1, due_at = NULL, lease_until = 9"); }
  void Finish(EventId id, std::int64_t lane) {
    Set(id, "state = 6, due_at = NULL, lease_until = NULL, behind = 0, lane = NULL, finished_at = 9");
    lanes.Leave(lane, id);
    OrThrow(lanes.Settle(*db, lane));
  }
  void WaitAgain(EventId id, std::int64_t lane) {
    Set(id, "state = 0, due_at = 5, lease_until = NULL, behind = 1");
    OrThrow(lanes.Settle(*db, lane));
  }
  std::vector<EventId> Ids(const std::string& where) {
    auto rows = OrThrow(db->PrepareOnce("SELECT id FROM events WHERE " + where + " ORDER BY id"));
    std::vector<EventId> ids;
    while (OrThrow(rows.Step())) ids.push_back(rows.Int(0));
    return ids;
  }
  using Free = std::vector<EventId>;
  Free FreeToRun() { return Ids("state = 0 AND behind = 0"); }

  std::unique_ptr<Db> db;
  Lanes lanes;
};

TEST_F(LanesTest, OneOfALaneIsFreeAndTheNextWhenItLeaves) {
  for (EventId id = 1; id <= 3; ++id) Arrive(id, 7);
  EXPECT_EQ(FreeToRun(), Free{1});
  Run(1);
  EXPECT_EQ(FreeToRun(), Free{});
  Finish(1, 7);
  EXPECT_EQ(FreeToRun(), Free{2});
  Run(2);
  WaitAgain(2, 7);
  EXPECT_EQ(FreeToRun(), Free{2});
  EXPECT_EQ(lanes.Behind(7, 2, 10), 1);
  EXPECT_EQ(lanes.Behind(7, 1, 10), 0) << "it has left";
}

TEST_F(LanesTest, AnEarlierOneThatComesBackGoesFirstButStopsNoRunningOne) {
  for (EventId id = 1; id <= 3; ++id) Arrive(id, 7);
  Run(1);
  Finish(1, 7);
  Run(2);
  Set(1, "state = 0, due_at = 5, lane = 7, behind = 1, finished_at = NULL");  // replayed
  lanes.Enter(7, 1);
  OrThrow(lanes.Settle(*db, 7));
  EXPECT_EQ(FreeToRun(), Free{}) << "2 runs";
  WaitAgain(2, 7);
  EXPECT_EQ(FreeToRun(), Free{1});
  Run(1);
  Finish(1, 7);
  EXPECT_EQ(FreeToRun(), Free{2});
}

TEST_F(LanesTest, AParkedOneThatStaysHoldsItsLane) {
  for (EventId id = 1; id <= 2; ++id) Arrive(id, 7);
  Run(1);
  Set(1, "state = 3, letter = 3, class = 2, lease_until = NULL");
  OrThrow(lanes.Settle(*db, 7));
  EXPECT_EQ(FreeToRun(), Free{});
  lanes.Leave(7, 1);
  OrThrow(lanes.Settle(*db, 7));
  EXPECT_EQ(FreeToRun(), Free{2});
}

TEST_F(LanesTest, RowsWithTwoFreeOfOneLaneAreRefusedAtTheStart) {
  Insert(1, 7, false);
  Insert(2, 7, false);
  const Result<void> loaded = lanes.Load(*db);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, "lanes_broken");
  EXPECT_NE(loaded.error().message.find("move it away"), std::string::npos);
}

TEST_F(LanesTest, ManyLeaveALongLaneInAnyOrder) {
  constexpr EventId kMany = 3'000;
  for (EventId id = 1; id <= kMany; ++id) Arrive(id, 7);
  EXPECT_EQ(lanes.Behind(7, 1, 10'000), kMany - 1);
  EXPECT_EQ(lanes.Behind(7, 1, 10), 10);
  for (EventId id = kMany; id > kMany / 2; --id) Finish(id, 7);
  for (EventId id = 1; id <= kMany / 2; ++id) {
    ASSERT_EQ(FreeToRun(), Free{id});
    Finish(id, 7);
  }
  EXPECT_FALSE(lanes.Occupied(7));
}

/// Random acts, some of them taken back, keep memory and rows as a fresh start reads them.
TEST_F(LanesTest, RandomActsAndRollbacksEndAsAFreshStartReadsThem) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  std::map<EventId, std::int64_t> open;  // by id: its lane
  EventId next = 1;
  for (int round = 0; round < 400; ++round) {
    const auto before = open;
    const EventId next_before = next;
    OrThrow(db->Exec("BEGIN"));
    for (int i = 0; i < 5; ++i) {
      if (open.empty() || random() % 2 == 0) {
        open[next] = static_cast<std::int64_t>(random() % 6);
        Arrive(next, open[next]);
        ++next;
        continue;
      }
      auto one = open.begin();
      std::advance(one, static_cast<std::ptrdiff_t>(random() % open.size()));
      const auto [id, lane] = *one;
      const bool free = !Ids("id = " + std::to_string(id) + " AND state = 0 AND behind = 0").empty();
      const bool running = !Ids("id = " + std::to_string(id) + " AND state = 1").empty();
      if (free) Run(id);
      if (running && random() % 2 == 0) WaitAgain(id, lane);
      if (!free && (!running || random() % 2 == 0) && open.contains(id)) {
        Finish(id, lane);
        open.erase(id);
      }
    }
    if (random() % 3 == 0) {
      OrThrow(db->Exec("ROLLBACK"));
      lanes.RollBackTo(0);
      open = before;
      next = next_before;
    } else {
      OrThrow(db->Exec("COMMIT"));
      lanes.Commit();
    }
    // The first of each lane is free unless one of the lane runs.
    std::map<std::int64_t, EventId> first;
    for (const auto& [id, lane] : open) first.emplace(lane, id);
    std::set<EventId> expected;
    for (const auto& [lane, id] : first) {
      if (Ids("state = 1 AND lane = " + std::to_string(lane)).empty()) expected.insert(id);
    }
    const Free free = FreeToRun();
    ASSERT_EQ(std::set<EventId>(free.begin(), free.end()), expected) << "round " << round;
    Lanes fresh;
    OrThrow(fresh.Load(*db));
    for (const auto& [id, lane] : open) {
      ASSERT_EQ(lanes.Behind(lane, id, 1'000), fresh.Behind(lane, id, 1'000)) << "event " << id;
    }
    for (std::int64_t lane = 0; lane < 6; ++lane) ASSERT_EQ(lanes.Occupied(lane), fresh.Occupied(lane));
  }
}

}  // namespace
}  // namespace dlo::store
