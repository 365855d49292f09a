#include "store/embedded/key_filter.h"

#include <gtest/gtest.h>

#include "env/random.h"

namespace dlo::store {
namespace {

double MaybesAmongNew(KeyFilter& filter, SeededRandom& random, int keys) {
  int maybes = 0;
  for (int i = 0; i < keys; ++i) maybes += filter.AddAndTest(static_cast<std::int64_t>(random.Next())) ? 1 : 0;
  return static_cast<double>(maybes) / keys;
}

TEST(KeyFilterTest, NeverForgetsAKeyInAnyLayer) {
  SeededRandom random(1);
  KeyFilter filter(100);
  std::vector<std::int64_t> keys;
  for (int i = 0; i < 20'000; ++i) keys.push_back(static_cast<std::int64_t>(random.Next()));
  for (const std::int64_t key : keys) filter.AddAndTest(key);
  for (const std::int64_t key : keys) ASSERT_TRUE(filter.AddAndTest(key));
}

TEST(KeyFilterTest, FirstKeysAreSurelyNewEvenSmallNumbers) {
  KeyFilter filter(1000);
  EXPECT_FALSE(filter.AddAndTest(0));
  EXPECT_TRUE(filter.AddAndTest(0));
  EXPECT_FALSE(filter.AddAndTest(1));
  EXPECT_FALSE(filter.AddAndTest(-1));
  EXPECT_TRUE(filter.AddAndTest(-1));
}

TEST(KeyFilterTest, IsSeldomWrongUpToItsSizeAndBeyond) {
  SeededRandom random(2);
  KeyFilter filter(100'000);
  EXPECT_LT(MaybesAmongNew(filter, random, 100'000), 0.001) << "while filling up";
  KeyFilter full(100'000);
  MaybesAmongNew(full, random, 90'000);
  EXPECT_LT(MaybesAmongNew(full, random, 10'000), 0.002) << "nearly full";
  EXPECT_LT(MaybesAmongNew(full, random, 200'000), 0.003) << "second layer";
  EXPECT_LT(MaybesAmongNew(full, random, 400'000), 0.003) << "third layer";
}

TEST(KeyFilterTest, GrowsByLayersOnlyWhenFull) {
  SeededRandom random(3);
  KeyFilter filter(10'000);
  const std::int64_t before = filter.memory_bytes();
  EXPECT_LT(before, 30'000);
  MaybesAmongNew(filter, random, 10'000);
  EXPECT_EQ(filter.memory_bytes(), before);
  MaybesAmongNew(filter, random, 1'000);
  EXPECT_GT(filter.memory_bytes(), before);
  EXPECT_LT(filter.memory_bytes(), before * 4);
}

}  // namespace
}  // namespace dlo::store
