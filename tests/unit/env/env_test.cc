// Clock, chance, descriptors and crash points.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <set>

#include "env/clock.h"
#include "env/crash_points.h"
#include "env/descriptors.h"
#include "env/random.h"

namespace dlo {
namespace {

TEST(ClockTest, RealTimeIsOfThisCenturyAndMonotonicNeverGoesBack) {
  const RealClock clock;
  EXPECT_GT(clock.Now(), Time(std::chrono::sys_days(std::chrono::year(2024) / 1 / 1)));
  Duration before = clock.Monotonic();
  for (int i = 0; i < 1000; ++i) {
    const Duration now = clock.Monotonic();
    ASSERT_GE(now, before);
    before = now;
  }
}

TEST(ClockTest, ManualTimeMovesOnlyWhenTold) {
  ManualClock clock(Time(Duration(5)));
  EXPECT_EQ(clock.Now(), Time(Duration(5)));
  clock.Advance(std::chrono::seconds(1));
  EXPECT_EQ(clock.Now(), Time(Duration(1'000'005)));
  EXPECT_EQ(clock.Monotonic(), Duration(1'000'005));
}

TEST(DescriptorsTest, AreRaisedToWhatIsWantedAndNoFurtherThanTheSystemLets) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_GE(before.rlim_max, 256U);
  const rlimit low{.rlim_cur = 128, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  const auto now = [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
  };
  EXPECT_EQ(RaiseDescriptorLimit(64), 128U);
  EXPECT_EQ(now(), 128U) << "lowered";
  EXPECT_EQ(RaiseDescriptorLimit(200), 200U);
  EXPECT_EQ(now(), 200U);
  if (before.rlim_max != RLIM_INFINITY) {
    EXPECT_EQ(RaiseDescriptorLimit(before.rlim_max + 1), before.rlim_max);
    EXPECT_EQ(now(), before.rlim_max);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

TEST(RandomTest, SeededGivesThePublishedSequenceOfSplitmix64) {
  // First outputs for seed 1234567 in the reference implementation's test (Rosetta Code, "Pseudo-random
  // numbers/Splitmix64").
  SeededRandom random(1234567);
  EXPECT_EQ(random.Next(), 6457827717110365317ULL);
  EXPECT_EQ(random.Next(), 3203168211198807973ULL);
  EXPECT_EQ(random.Next(), 9817491932198370423ULL);
}

TEST(RandomTest, UnitStaysBelowOneAndRealOnesDiffer) {
  SeededRandom seeded(1);
  RealRandom real;
  std::set<std::uint64_t> seen;
  for (int i = 0; i < 10'000; ++i) {
    const double unit = seeded.Unit();
    ASSERT_GE(unit, 0.0);
    ASSERT_LT(unit, 1.0);
    seen.insert(real.Next());
  }
  EXPECT_EQ(seen.size(), 10'000U);
  unsigned char a[32] = {}, b[32] = {};
  FillWithSecretBytes(a);
  FillWithSecretBytes(b);
  EXPECT_NE(std::string(a, a + 32), std::string(b, b + 32));
}

struct CrashRow {
  const char* spec;
  int passings;  // of "here"
  bool dies;
};

class CrashPointsTest : public testing::TestWithParam<CrashRow> {};

TEST_P(CrashPointsTest, DiesAtTheNamedPassingOnly) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const CrashRow& row = GetParam();
  const auto pass = [&] {
    CrashAt points(row.spec);
    for (int i = 0; i < row.passings; ++i) points.At("here");
    _exit(0);
  };
  if (row.dies) {
    EXPECT_EXIT(pass(), testing::KilledBySignal(SIGKILL), "");
  } else {
    EXPECT_EXIT(pass(), testing::ExitedWithCode(0), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, CrashPointsTest,
                         testing::Values(CrashRow{"", 3, false}, CrashRow{"elsewhere", 3, false},
                                         CrashRow{"here", 0, false}, CrashRow{"here", 1, true},
                                         CrashRow{"here:1", 1, true}, CrashRow{"here:3", 2, false},
                                         CrashRow{"here:3", 3, true}, CrashRow{"here:3", 5, true}));

}  // namespace
}  // namespace dlo
