#include "intake/gate.h"

#include <gtest/gtest.h>

#include "base/log.h"

namespace dlo::intake {
namespace {

Config TwoSources() {
  Config config;
  config.store.max_waiting = 1'000;
  config.store.min_free = 100;
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
  void Set(std::int64_t a, std::int64_t b, std::optional<std::uint64_t> free = 1'000) {
    store::Figures figures;
    figures.counts = {{.source = "a", .state = State::waiting, .count = a},
                      {.source = "a", .state = State::dead, .count = 1'000'000},  // letters are no backlog
                      {.source = "b", .state = State::waiting, .count = b}};
    figures.free_bytes = free;
    gate.Update(figures);
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

TEST_F(GateTest, RefusalsAreCountedBySource) {
  Set(600, 0);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate.Refusal("a"));
  EXPECT_NE(metrics.Render().find("dlo_refused_total{source=\"a\"} 3"), std::string::npos) << metrics.Render();
}

}  // namespace
}  // namespace dlo::intake
