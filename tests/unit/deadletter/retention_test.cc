#include "deadletter/retention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "deadletter/desk.h"
#include "env/clock.h"
#include "unit/deadletter/fake_store.h"

namespace dlo::deadletter {
namespace {

using std::chrono::days;
using std::chrono::seconds;

const Time kNow{seconds(1'800'000'000)};

TEST(Cutoffs, APeriodThatIsUnsetKeepsForEver) {
  const auto all = CutoffsAt({}, kNow);
  EXPECT_EQ(all.succeeded, kNow - days(14));
  EXPECT_EQ(all.closed, kNow - days(90));
  EXPECT_EQ(all.cold, kNow - days(90));
  EXPECT_FALSE(all.now);
  const auto none = CutoffsAt({.succeeded = {}, .closed = {}, .cold_after = {}}, kNow);
  EXPECT_EQ(none.Latest(), std::nullopt);
}

TEST(Archivist, GoesOnWhileThereIsWorkAndThenWaits) {
  testing::FakeStore store;
  store.archive_work = {{.worked = true, .report = {.succeeded = 3, .segments = 1}}, {.worked = true}};
  Archivist archivist(store, {}, {});
  EXPECT_EQ(archivist.RunOnce(kNow), kNow);
  EXPECT_EQ(archivist.RunOnce(kNow), kNow);
  EXPECT_EQ(archivist.RunOnce(kNow), kNow + std::chrono::minutes(1));
  Archivist hasty(store, {.succeeded = seconds(2)}, {});
  EXPECT_EQ(hasty.RunOnce(kNow), kNow + std::chrono::milliseconds(500));
}

class PruneTest : public ::testing::Test {
 protected:
  testing::FakeStore store;
  ManualClock clock{kNow};
  ReplayPacer pacer{store};
  Desk desk{{.store = store, .clock = clock, .pacer = pacer, .keep_closed = days(90)}};
  const Actor actor{.name = "ada", .role = "admin", .reason = "disk"};
};

TEST_F(PruneTest, BothFormsAsAccrueHasThem) {
  store.archive_work = {{.worked = true, .report = {.succeeded = 5, .closed = 1, .segments = 1, .on_hold = 2}},
                        {.worked = true, .report = {.succeeded = 4, .letters = 3, .segments = 1, .on_hold = 2}}};
  const auto done = desk.PruneSucceeded(14, actor);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->succeeded, 9);
  EXPECT_EQ(done->pruned(), 10);
  EXPECT_EQ(done->letters, 3);
  EXPECT_EQ(done->segments, 2);
  EXPECT_EQ(done->on_hold, 2);
  EXPECT_TRUE(done->finished);
  EXPECT_EQ(store.archive_cutoffs.front().succeeded, kNow - days(14));
  EXPECT_EQ(store.archive_cutoffs.front().cold, std::nullopt);
  EXPECT_EQ(store.archive_cutoffs.front().closed, kNow - days(90));
  EXPECT_TRUE(store.archive_cutoffs.front().now);
  ASSERT_EQ(store.audit.size(), 2U);
  EXPECT_EQ(store.audit[0].action, "prune");
  EXPECT_EQ(store.audit[1].action, "prune_end");
  EXPECT_NE(store.audit[1].details.find("\"pruned\":10"), std::string::npos) << store.audit[1].details;

  EXPECT_EQ(desk.PruneOrThrow(30, actor).pruned(), 0);
  EXPECT_EQ(store.archive_cutoffs.back().cold, kNow - days(30));
  EXPECT_EQ(store.archive_cutoffs.back().succeeded, std::nullopt);
}

TEST_F(PruneTest, InfinityDoesNothingAndRecordsNothing) {
  for (const auto never : {std::optional<double>(), std::optional<double>(INFINITY)}) {
    EXPECT_EQ(desk.PruneOrThrow(never, actor).pruned(), 0);
    EXPECT_EQ(desk.PruneSucceededOrThrow(never, actor).pruned(), 0);
  }
  EXPECT_TRUE(store.archive_cutoffs.empty());
  EXPECT_TRUE(store.audit.empty());
}

TEST_F(PruneTest, DaysThatAreNoneAreRefused) {
  for (const double wrong : {0.0, -1.0, 1e9, static_cast<double>(NAN)}) {
    EXPECT_EQ(desk.Prune(wrong, actor).error().code, "bad_days") << wrong;
    EXPECT_EQ(desk.PruneSucceeded(wrong, actor).error().code, "bad_days") << wrong;
    EXPECT_THROW(static_cast<void>(desk.PruneOrThrow(wrong, actor)), Failure);
  }
  EXPECT_EQ(desk.Prune(1, {}).error().code, "no_actor");
  EXPECT_TRUE(store.audit.empty());
}

TEST_F(PruneTest, APrunedEventIsReadAndNotChanged) {
  LetterDetail& old = store.Add(7, State::resolved);
  old.pruned = true;
  old.archived_in = "archive/0000000001.seg.zst";
  EXPECT_EQ(desk.Reopen(7, actor).error().code, "archived");
  store.Add(8, State::replayed).pruned = true;
  EXPECT_EQ(desk.Requeue(8, actor).error().code, "already_replayed");
  EXPECT_TRUE(store.acts.empty());
}

}  // namespace
}  // namespace dlo::deadletter
