#include "dispatch/retry_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <queue>
#include <vector>

namespace dlo::dispatch {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kStart = Time(seconds(1'800'000'000));

int TakeAll(RetryBudget& budget, Time now, int asked = 10'000) {
  int taken = 0;
  while (taken < asked && budget.Take(now)) ++taken;
  return taken;
}

TEST(RetryBudget, TenPercentOfTheFirstCallsOfTheLastMinuteOrOneASecond) {
  struct Row {
    const char* name;
    double percent, per_second;
    int first_calls;
    int retries;
  };
  for (const Row& row : {
           Row{"nothing called: the floor", 10, 1, 0, 60},
           Row{"the floor is more", 10, 1, 599, 60},
           Row{"as much", 10, 1, 600, 60},
           Row{"the share is more", 10, 1, 610, 61},
           Row{"much more", 10, 1, 10'000, 1'000},
           Row{"only a share", 50, 0, 100, 50},
           Row{"only a share, of nothing: one all the same", 10, 0, 0, 1},
           Row{"only a floor", 0, 0.5, 10'000, 30},
       }) {
    SCOPED_TRACE(row.name);
    RetryBudget budget(row.percent, row.per_second);
    for (int i = 0; i < row.first_calls; ++i) budget.First(kStart);
    EXPECT_EQ(TakeAll(budget, kStart), row.retries);
    EXPECT_EQ(TakeAll(budget, kStart + minutes(1) - Duration(1)), 0) << "the window has not moved on";
  }
}

TEST(RetryBudget, BothZeroIsNoBudget) {
  RetryBudget budget(0, 0);
  EXPECT_EQ(TakeAll(budget, kStart), 10'000);
}

TEST(RetryBudget, TheWindowSlides) {
  RetryBudget budget(10, 1);
  for (int i = 0; i < 30; ++i) EXPECT_TRUE(budget.Take(kStart));
  EXPECT_EQ(TakeAll(budget, kStart + seconds(30)), 30);
  EXPECT_EQ(TakeAll(budget, kStart + minutes(1)), 30) << "those of the first moment have left it";
  EXPECT_EQ(TakeAll(budget, kStart + seconds(90)), 30);
  EXPECT_EQ(TakeAll(budget, kStart + minutes(10)), 60);
}

TEST(RetryBudget, FirstCallsLeaveTheWindowToo) {
  RetryBudget budget(10, 1);
  for (int i = 0; i < 2'000; ++i) budget.First(kStart);
  EXPECT_EQ(TakeAll(budget, kStart + seconds(59), 100), 100);
  EXPECT_FALSE(budget.Take(kStart + seconds(60))) << "100 were taken, 60 are allowed by now";
}

TEST(RetryBudget, PromisesAreEvenlySpacedAndKept) {
  RetryBudget budget(10, 1);
  EXPECT_EQ(TakeAll(budget, kStart), 60);
  std::vector<Time> promises;
  for (int i = 0; i < 100; ++i) {
    ASSERT_FALSE(budget.Take(kStart));
    promises.push_back(budget.Defer(kStart));
  }
  EXPECT_EQ(promises[0], kStart + minutes(1));
  for (std::size_t i = 1; i < promises.size(); ++i) EXPECT_EQ(promises[i] - promises[i - 1], seconds(1)) << i;
  EXPECT_FALSE(budget.Take(kStart + seconds(61) - milliseconds(1100))) << "nobody overtakes them";
  for (const Time promise : promises) {
    EXPECT_TRUE(budget.Take(promise + milliseconds(7))) << "a little late, as loops are";
    EXPECT_FALSE(budget.Take(promise + milliseconds(8)));
  }
}

TEST(RetryBudget, NothingIsPromisedFurtherThanAnHour) {
  RetryBudget budget(10, 1);
  TakeAll(budget, kStart);
  Time last{};
  for (int i = 0; i < 10'000; ++i) last = budget.Defer(kStart);
  EXPECT_EQ(last, kStart + hours(1));
}

TEST(RetryBudget, APromiseThatNobodyKeepsIsForgotten) {
  RetryBudget budget(10, 1);
  TakeAll(budget, kStart);
  for (int i = 0; i < 60; ++i) (void)budget.Defer(kStart);
  EXPECT_EQ(TakeAll(budget, kStart + minutes(3)), 60);
}

TEST(RetryBudget, AProbeGoesAndCounts) {
  RetryBudget budget(0, 0.05);  // 3 a minute
  budget.Force(kStart);
  EXPECT_EQ(TakeAll(budget, kStart), 2);
  budget.Force(kStart);
  EXPECT_FALSE(budget.Take(kStart + seconds(59)));
  EXPECT_GT(budget.Defer(kStart + seconds(59)), kStart + seconds(59));
}

TEST(RetryBudget, AClockSetBackDoesNotStopRetries) {
  RetryBudget budget(10, 1);
  TakeAll(budget, kStart);
  EXPECT_TRUE(budget.Take(kStart - hours(5)));
}

// Retries that fail and come again, from two storms of different size: whatever the order, no minute holds more than it
// may, none is put off for ever, and few are put off twice.
TEST(RetryBudget, AStormIsSpreadOut) {
  RetryBudget budget(10, 1);
  std::priority_queue<Time, std::vector<Time>, std::greater<>> due;
  for (int i = 0; i < 1'000; ++i) {
    budget.First(kStart);
    due.push(kStart + milliseconds(2'500 + 5 * i));
  }
  std::deque<Time> gone;
  int put_off = 0;
  Time now = kStart;
  while (!due.empty()) {
    now = std::max(now, due.top()) + milliseconds(3);  // a round of the loop
    due.pop();
    if (!budget.Take(now)) {
      const Time later = budget.Defer(now);
      ASSERT_GT(later, now);
      due.push(later);
      ++put_off;
      continue;
    }
    gone.push_back(now);
    const auto in_window = std::ranges::count_if(gone, [&](Time t) { return t > now - minutes(1) + seconds(1); });
    ASSERT_LE(in_window, now < kStart + minutes(1) ? 100 : 101) << (now - kStart) / seconds(1) << " s";
  }
  EXPECT_EQ(gone.size(), 1'000U);
  EXPECT_LT(gone.back() - kStart, minutes(17));
  EXPECT_LT(put_off, 1'500);
}

}  // namespace
}  // namespace dlo::dispatch
