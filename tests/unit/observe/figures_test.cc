#include "observe/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "observe/health.h"

namespace dlo::observe {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class FakeFigures final : public store::FigureSource {
 public:
  store::Figures figures;
  std::optional<Error> broken;
  int reads = 0;
  Result<store::Figures> Read() override {
    ++reads;
    if (broken) return std::unexpected(*broken);
    return figures;
  }
  Result<store::Figures> Recount() override { return Read(); }
  Result<void> Ready() override {
    if (broken) return std::unexpected(*broken);
    return {};
  }
};

class FiguresTest : public ::testing::Test {
 protected:
  FiguresTest() {
    source.figures.counts = {{"stripe", State::dead, FailureClass::exhausted, 3},
                             {"stripe", State::held, FailureClass::permanent, 2},
                             {"stripe", State::waiting, FailureClass::none, 4},
                             {"meters", State::waiting, FailureClass::none, 5},
                             {"stripe", State::running, FailureClass::none, 1}};
    source.figures.oldest = {{"stripe", clock.Now() - std::chrono::seconds(90), 7}};
    source.figures.receipts = 20;
    source.figures.indexed = 15;
    source.figures.audit_head = 11;
    source.figures.free_bytes = 4096;
  }
  FakeFigures source;
  ManualClock clock{Time(std::chrono::seconds(1'800'000'000))};
  Metrics metrics;
  Scrape scrape{metrics, source, clock};
};

TEST_F(FiguresTest, EveryFigureIsShown) {
  const std::string text = scrape.Render();
  for (const char* line :
       {"dlo_dead_letters{source=\"stripe\",state=\"dead\",class=\"exhausted\"} 3\n",
        "dlo_dead_letters{source=\"stripe\",state=\"held\",class=\"permanent\"} 2\n",
        "dlo_oldest_unresolved_seconds{source=\"stripe\"} 90\n", "\ndlo_waiting 9\n", "\ndlo_running 1\n",
        "\ndlo_accounting_difference 0\n", "\ndlo_audit_head_seq 11\n", "\ndlo_store_free_bytes 4096\n",
        "\ndlo_journal_receipts 20\n", "\ndlo_index_lag 5\n", "\ndlo_store_readable 1\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

TEST_F(FiguresTest, AScrapeReadsTheStoreOnce) {
  (void)scrape.Render();
  EXPECT_EQ(source.reads, 1);
  (void)scrape.Render();
  EXPECT_EQ(source.reads, 2);
}

TEST_F(FiguresTest, AnUnreadableStoreLeavesNoStaleNumbers) {
  (void)scrape.Render();
  source.broken = Error{ErrorKind::unavailable, "store_failed", "the disk went"};
  const std::string text = scrape.Render();
  EXPECT_THAT(text, Not(HasSubstr("\ndlo_waiting ")));
  EXPECT_THAT(text, Not(HasSubstr("\ndlo_accounting_difference ")));
  EXPECT_THAT(text, HasSubstr("\ndlo_store_readable 0\n"));
}

TEST(Health, IsReadyWhileTheStoreIsAndNobodyStopsIt) {
  FakeFigures store;
  Health health(store);
  EXPECT_TRUE(health.Ready().ready);
  EXPECT_EQ(health.Ready().json, R"({"status":"ready","checks":{"store":"ok","draining":false}})");
  store.broken = Error{ErrorKind::unavailable, "disk_full", "the disk is full"};
  EXPECT_FALSE(health.Ready().ready);
  EXPECT_THAT(health.Ready().json, HasSubstr("the disk is full"));
  store.broken.reset();
  health.SetDraining();
  EXPECT_FALSE(health.Ready().ready);
}

}  // namespace
}  // namespace dlo::observe
