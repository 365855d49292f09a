// The process dies, or the power goes, at every possible change of the disk: what was acknowledged is there afterwards.
#include <gtest/gtest.h>

#include "base/log.h"
#include "store/embedded/journal_verify.h"
#include "unit/store/journal_fixture.h"

namespace dlo::store {
namespace {

class JournalCrashTest : public JournalTest {
 protected:
  void SetUp() override { log::SetLevel("off"); }
  void TearDown() override { log::SetLevel("info"); }

  /// All acknowledged receipts in order, then at most the batch that was being appended, whole.
  void ExpectAcknowledged(const Receipts& in_flight) {
    const auto all = ReadAll(1 << 20);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_GE(all->size(), written_.size()) << "an acknowledged receipt is lost";
    const std::size_t more = all->size() - written_.size();
    ASSERT_TRUE(more == 0 || more == in_flight.size()) << more << " of " << in_flight.size();
    if (more > 0) written_.insert(written_.end(), in_flight.begin(), in_flight.end());
    for (std::size_t i = 0; i < all->size(); ++i) ExpectSame(*(*all)[i].receipt, *written_[i]);
  }
};

TEST_F(JournalCrashTest, NoAcknowledgedBatchIsLostWhereverItStops) {
  int deaths = 0, kept_in_flight = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    StartAnew();
    for (int life = 0; life < 6; ++life) {
      files_->DieAtChange(static_cast<std::int64_t>(random.Next() % 40 + 1));
      Receipts in_flight;
      if (auto opened = TryOpen(); opened) {
        journal_ = std::move(*opened);
        ExpectAcknowledged({});
        while (true) {
          in_flight.clear();
          for (std::uint64_t i = random.Next() % 4 + 1; i > 0; --i) in_flight.push_back(AnyReceipt(random, 900));
          if (!TryAppend(in_flight)) break;
        }
      }
      ++deaths;
      // A process that dies and starts again, and then loses power, is the case where a page cache lies.
      const std::uint64_t how = random.Next() % 3;
      if (how != 0) files_->ProcessDied();
      if (how == 1) {
        Open();
        const std::size_t before = written_.size();
        ExpectAcknowledged(in_flight);
        kept_in_flight += written_.size() > before ? 1 : 0;
        in_flight.clear();
      }
      if (how != 2) files_->PowerCut(random);
      Open();
      const std::size_t before = written_.size();
      ExpectAcknowledged(in_flight);
      kept_in_flight += written_.size() > before ? 1 : 0;
      if (HasFatalFailure()) return;
    }
    const auto report = VerifyJournal(*files_, "j");
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->problems.empty()) << report->problems[0];
  }
  EXPECT_EQ(deaths, 1200);
  EXPECT_GT(kept_in_flight, 20)
      << "whole batches that were not acknowledged were never seen: the test reaches too little";
}

TEST_F(JournalCrashTest, FullDiskBetweenDeathsLosesNothingEither) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    StartAnew();
    Open();
    for (int life = 0; life < 5; ++life) {
      Receipts in_flight;
      for (int i = 0; i < 25; ++i) {
        if (random.Next() % 4 == 0) files_->SetCapacity(random.Next() % 40'000);
        in_flight.clear();
        for (std::uint64_t k = random.Next() % 3 + 1; k > 0; --k) in_flight.push_back(AnyReceipt(random, 2500));
        const auto done = TryAppend(in_flight);
        if (done) continue;
        ASSERT_EQ(done.error().code, "disk_full");
      }
      files_->SetCapacity(UINT64_MAX);
      if (random.Next() % 2 == 0) files_->ProcessDied();
      files_->PowerCut(random);
      Open();
      ExpectAcknowledged({});
      if (HasFatalFailure()) return;
    }
  }
}

/// Dies at the n-th passing of a point, as kill -9 would, by stopping all changes of the disk from there.
class StopAt final : public CrashPoints {
 public:
  StopAt(MemoryFiles& files, std::string name, int passing) : files_(files), name_(std::move(name)), left_(passing) {}
  void At(std::string_view name) override {
    passed_.emplace_back(name);
    if (name == name_ && --left_ == 0) files_.DieAtChange(1);
  }
  [[nodiscard]] const std::vector<std::string>& passed() const { return passed_; }

 private:
  MemoryFiles& files_;
  std::string name_;
  int left_;
  std::vector<std::string> passed_;
};

TEST_F(JournalCrashTest, PointsArePassedInTheOrderThatTestsRelyOn) {
  StopAt points(*files_, "", 0);
  auto journal = Journal::Open(*files_, clock_, points, {"j", 4096, false});
  ASSERT_TRUE(journal);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE((*journal)->Append(Receipts{MakeReceipt("a", std::string(3000, 'x'))}, places_, digests_));
  }
  EXPECT_EQ(points.passed(),
            (std::vector<std::string>{"journal.segment_created", "journal.before_write", "journal.after_write",
                                      "journal.after_sync", "journal.segment_created", "journal.before_write",
                                      "journal.after_write", "journal.after_sync"}));
}

TEST_F(JournalCrashTest, DeathAtEachPointKeepsWhatWasAcknowledged) {
  for (const char* name :
       {"journal.segment_created", "journal.before_write", "journal.after_write", "journal.after_sync"}) {
    for (int passing = 1; passing <= 3; ++passing) {
      for (std::uint64_t seed = 0; seed < 10; ++seed) {
        SCOPED_TRACE(testing::Message() << name << ":" << passing << " seed " << seed);
        SeededRandom random(seed);
        StartAnew();
        StopAt points(*files_, name, passing);
        Receipts in_flight;
        if (auto opened = Journal::Open(*files_, clock_, points, {"j", segment_bytes_, false}); opened) {
          journal_ = std::move(*opened);
          do {
            in_flight = {MakeReceipt("k" + std::to_string(written_.size()), AnyBytes(random, 1500))};
          } while (TryAppend(in_flight));
        }
        files_->PowerCut(random);
        Open();
        ExpectAcknowledged(in_flight);
        Append({MakeReceipt("after", "x")});
        ExpectAllThere();
      }
    }
  }
}

}  // namespace
}  // namespace dlo::store
