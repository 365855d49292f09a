// Disks that are full or fail under the journal (in memory here) and under the index (a limit of the size of files).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "base/metrics.h"
#include "contract/fixture.h"
#include "env/memory_files.h"
#include "store/embedded/embedded_store.h"

namespace dlo::store::contract {
namespace {

class DiskTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = testing::TempDir() + "dlo-disk-XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    Open();
  }
  void TearDown() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Open() {
    store_.reset();
    Result<std::unique_ptr<Store>> store = OpenEmbedded({.database = folder_ + "/dlo.db", .segment_bytes = 64 << 10},
                                                        files_, clock_, no_crash_points_, metrics_);
    ASSERT_TRUE(store) << store.error().message;
    store_ = std::move(*store);
  }

  std::future<Result<std::vector<Accepted>>> Send(Receipt receipt) {
    auto answer = std::make_shared<std::promise<Result<std::vector<Accepted>>>>();
    auto answered = answer->get_future();
    store_->Accept({std::make_shared<Receipt>(std::move(receipt))},
                   [answer](Result<std::vector<Accepted>> result) { answer->set_value(std::move(result)); });
    return answered;
  }

  ManualClock clock_{kStart};
  MemoryFiles files_;
  NoCrashPoints no_crash_points_;
  Metrics metrics_;
  std::string folder_;
  std::unique_ptr<Store> store_;
};

Receipt Sized(const std::string& key, std::size_t bytes) {
  Receipt receipt = MakeReceipt(key);
  receipt.body.assign(bytes, 'x');
  return receipt;
}

TEST_F(DiskTest, OnAFullDiskNothingIsAcknowledgedAndAcceptanceResumesByItself) {
  ASSERT_TRUE(Send(Sized("a", 100)).get());
  files_.SetCapacity(100 << 10);
  int refused = 0;
  std::size_t stored = 1;
  for (int i = 0; i < 20 && refused == 0; ++i) {
    const auto answer = Send(Sized("b" + std::to_string(i), 30'000)).get();
    if (answer) {
      ++stored;
      continue;
    }
    ++refused;
    EXPECT_EQ(answer.error().kind, ErrorKind::unavailable);
    EXPECT_EQ(answer.error().code, "disk_full");
  }
  EXPECT_EQ(refused, 1);
  EXPECT_EQ(store_->Ready().error().code, "disk_full");
  EXPECT_TRUE(store_->Show(1)) << "reading goes on";
  files_.SetCapacity(100 << 20);
  EXPECT_TRUE(store_->Ready());
  const auto after = Send(Sized("after", 100)).get();
  ASSERT_TRUE(after) << after.error().message;
  EXPECT_EQ(after->at(0).id, static_cast<EventId>(stored + 1)) << "what was refused left no trace";
  Open();
  EXPECT_EQ(store_->Read()->receipts, static_cast<std::int64_t>(stored + 1));
}

TEST_F(DiskTest, AFailedSyncIsFinalUntilTheRestart) {
  ASSERT_TRUE(Send(Sized("a", 100)).get());
  files_.FailSyncs(1);
  const auto failed = Send(Sized("b", 100)).get();
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::unavailable);
  const auto later = Send(Sized("c", 100)).get();
  ASSERT_FALSE(later);
  EXPECT_EQ(later.error().code, "store_failed");
  EXPECT_EQ(store_->Ready().error().code, "store_failed");
  EXPECT_TRUE(store_->Show(1));
  Open();
  EXPECT_TRUE(store_->Ready());
  EXPECT_TRUE(store_->Show(1));
  EXPECT_TRUE(Send(Sized("c", 100)).get());
}

/// No file of this process grows beyond `bytes`; SQLite then meets a disk that refuses.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileLimit() { Lift(); }
  void Lift() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST_F(DiskTest, WhenTheIndexCannotCommitReceiptsAreStoredAndTakenInLater) {
  ASSERT_TRUE(Send(Sized("a", 100)).get());
  ASSERT_TRUE(store_->Exchange({.finished = {}, .wants = {}, .lease = {"w"}, .now = kStart}));
  FileLimit limit(std::filesystem::file_size(folder_ + "/dlo.db-wal"));
  for (int i = 0; i < 50; ++i) {
    const auto answer = Send(Sized("b" + std::to_string(i), 100)).get();
    ASSERT_TRUE(answer) << "the journal has it: " << answer.error().message;
  }
  auto duplicate = Send(Sized("b7", 100));
  const std::vector<ClaimWant> wants = {{"stripe", "billing", 1}};
  const auto claimed = store_->Exchange({.finished = {}, .wants = wants, .lease = {"w"}, .now = kStart});
  ASSERT_FALSE(claimed);
  EXPECT_EQ(claimed.error().kind, ErrorKind::unavailable);
  EXPECT_FALSE(store_->Ready());
  EXPECT_TRUE(store_->ReleaseLanes("stripe", 1, kStart, {"system", "admin", "limits"}, kStart)) << "it writes nothing";
  EXPECT_FALSE(store_->Ready()) << "and hides nothing";
  EXPECT_TRUE(store_->Show(1)) << "reading goes on";
  EXPECT_LT(store_->Read()->indexed, 51);
  limit.Lift();
  const auto answer = duplicate.get();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->at(0).status, AcceptStatus::duplicate);
  EXPECT_EQ(store_->Read()->indexed, 52);
  EXPECT_EQ(store_->Recount()->accounting_difference, 0);
  EXPECT_TRUE(store_->Ready());
}

TEST_F(DiskTest, StoppedWhileTheIndexCannotCommitNothingIsLost) {
  ASSERT_TRUE(Send(Sized("a", 100)).get());
  ASSERT_TRUE(store_->Exchange({.finished = {}, .wants = {}, .lease = {"w"}, .now = kStart}));
  FileLimit limit(std::filesystem::file_size(folder_ + "/dlo.db-wal"));
  ASSERT_TRUE(Send(Sized("b", 100)).get());
  auto duplicate = Send(Sized("b", 100));
  store_->Close();
  const auto answer = duplicate.get();
  ASSERT_FALSE(answer) << "nobody knows yet what it is";
  EXPECT_EQ(answer.error().code, "stopping");
  limit.Lift();
  Open();
  EXPECT_TRUE(store_->Show(2));
  EXPECT_EQ(store_->Read()->duplicates, 1);
}

}  // namespace
}  // namespace dlo::store::contract
