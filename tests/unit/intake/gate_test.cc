#include "intake/gate.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace dlo::intake {
namespace {

Config TwoSources() {
  Config config;
  config.store.max_waiting = 1'000;
  config.store.min_free = 100;
  config.store.min_free_percent = 5;
  config.store.warn_free_percent = 20;
  config.server.max_memory = 1'000;
  config.sources = {SourceConfig{.name = "a"}, SourceConfig{.name = "b"}};
  for (SourceConfig& source : config.sources) source.max_waiting = 600;
  return config;
}

class GateTest : public ::testing::Test {
 protected:
  std::string Code(const std::string& source) {
    const auto refusal = gate.Refusal(source);
    return refusal ? refusal->code : "";
  }
  void Set(std::int64_t a, std::int64_t b, std::optional<std::uint64_t> free = 1'000, const Machine& machine = {}) {
    store::Figures figures;
    figures.counts = {{.source = "a", .state = State::waiting, .count = a},
                      {.source = "a", .state = State::dead, .count = 1'000'000},  // letters are no backlog
                      {.source = "b", .state = State::waiting, .count = b}};
    figures.free_bytes = free;
    gate.Update(figures, machine);
  }
  Metrics metrics;
  Gate gate{TwoSources(), metrics};
};

TEST_F(GateTest, EachLimitClosesAndOpensLower) {
  EXPECT_EQ(Code("a"), "") << "open before the first look";
  Set(599, 0);
  EXPECT_EQ(Code("a"), "");
  Set(600, 0);
  EXPECT_EQ(Code("a"), "source_backlog");
  EXPECT_EQ(Code("b"), "") << "one source does not close another";
  Set(540, 0);
  EXPECT_EQ(Code("a"), "source_backlog") << "not before 90 %";
  Set(539, 0);
  EXPECT_EQ(Code("a"), "");
  Set(500, 500);
  EXPECT_EQ(Code("a"), "backlog");
  EXPECT_EQ(Code("b"), "backlog");
  Set(400, 499);
  EXPECT_EQ(Code("b"), "");
  Set(0, 0, 99);
  EXPECT_EQ(Code("b"), "disk_low");
  Set(0, 0, 199);
  EXPECT_EQ(Code("b"), "disk_low") << "not before twice as much";
  Set(0, 0, std::nullopt);
  EXPECT_EQ(Code("b"), "disk_low") << "what is not known changes nothing";
  Set(0, 0, 200);
  EXPECT_EQ(Code("b"), "");
  Set(0, 0, std::nullopt);
  EXPECT_EQ(Code("b"), "");
}

TEST_F(GateTest, TheDiskClosesAtTheLargerOfBytesAndShare) {
  const struct {
    std::uint64_t free, total;
    const char* code;
    const char* level;
  } steps[] = {
      {2'000, 10'000, "", "0"},       {1'999, 10'000, "", "1"},
      {2'099, 10'000, "", "1"},  // warned until a point more is free
      {2'100, 10'000, "", "0"},       {500, 10'000, "", "1"},
      {499, 10'000, "disk_low", "2"}, {799, 10'000, "disk_low", "2"},
      {800, 10'000, "", "1"},         {100, 1'000, "", "1"},  // here the 100 bytes are more than 5 %
      {99, 1'000, "disk_low", "2"},                           //
      {199, 1'000, "disk_low", "2"},  {200, 1'000, "", "1"},
  };
  for (const auto& step : steps) {
    SCOPED_TRACE(std::to_string(step.free) + " of " + std::to_string(step.total));
    Set(0, 0, step.free, {.disk_bytes = step.total});
    EXPECT_EQ(Code("a"), step.code);
    EXPECT_NE(metrics.Render().find(std::string("dlo_disk_low ") + step.level), std::string::npos) << metrics.Render();
  }
}

TEST_F(GateTest, MemoryClosesAtItsLimitAndOpensBelowNineTenths) {
  const struct {
    std::uint64_t resident;
    const char* code;
  } steps[] = {{999, ""}, {1'000, "memory_high"}, {900, "memory_high"}, {899, ""}, {999, ""}};
  for (const auto& step : steps) {
    SCOPED_TRACE(step.resident);
    Set(0, 0, 1'000, {.resident_bytes = step.resident});
    EXPECT_EQ(Code("a"), step.code);
    EXPECT_EQ(Code("b"), step.code);
  }
  Set(0, 0, 1'000, {.resident_bytes = 1'000});
  Set(0, 0);
  EXPECT_EQ(Code("a"), "memory_high") << "what is not known changes nothing";
}

TEST(GateOff, ZeroSwitchesDiskAndMemoryOff) {
  Config config = TwoSources();
  config.store.min_free = 0;
  config.store.min_free_percent = config.store.warn_free_percent = 0;
  config.server.max_memory = 0;
  Metrics metrics;
  Gate gate(config, metrics);
  store::Figures figures;
  figures.free_bytes = 0;
  gate.Update(figures, {.disk_bytes = 1'000, .resident_bytes = UINT64_MAX});
  EXPECT_FALSE(gate.Refusal("a"));
  EXPECT_NE(metrics.Render().find("dlo_disk_low 0"), std::string::npos);
}

TEST_F(GateTest, RefusalsAreCountedBySource) {
  Set(600, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate.Refusal("a"));
  EXPECT_NE(metrics.Render().find("dlo_refused_total{source=\"a\"} 3"), std::string::npos) << metrics.Render();
}

}  // namespace
}  // namespace dlo::intake
