#include "store/embedded/journal_ahead.h"

#include <gtest/gtest.h>

#include "base/encoding.h"
#include "env/memory_files.h"

namespace dlo::store {
namespace {

constexpr std::uint64_t kBytes = 64 << 10;

std::shared_ptr<File> Filled(MemoryFiles& files, const std::string& bytes) {
  files.SetContents("j/active", bytes);
  return std::move(*files.Open("j/active", OpenMode::read_write));
}

TEST(JournalAheadTest, HashIsOfTheBytesWithAndWithoutAThread) {
  const std::string bytes(kBytes, 'x');
  for (const bool own_thread : {false, true}) {
    SCOPED_TRACE(own_thread);
    MemoryFiles files;
    JournalAhead ahead(files, "j", kBytes, own_thread);
    for (int round = 0; round < 3; ++round) {
      ahead.Begin(Filled(files, bytes), kBytes);
      for (std::uint64_t end = 100; end < 60'000; end += 999) ahead.Advanced(end);
      EXPECT_EQ(ahead.Hash(60'000).value(), Sha256(std::string_view(bytes).substr(0, 60'000)));
      EXPECT_EQ(ahead.Hash(kBytes).value(), Sha256(bytes)) << "a roll that failed asks again, further on";
    }
  }
}

TEST(JournalAheadTest, SpareIsReadyWhenTheSegmentIsFullAndNotBeforeItsMiddle) {
  MemoryFiles files;
  JournalAhead ahead(files, "j", kBytes, true);
  ahead.Begin(Filled(files, std::string(kBytes, 'x')), kBytes);
  ahead.Advanced(kBytes / 2 - 1);
  EXPECT_TRUE(ahead.Hash(kBytes / 2 - 1));
  EXPECT_FALSE(files.Exists(ahead.spare_path()));
  ahead.Advanced(kBytes);
  while (!files.Exists(ahead.spare_path())) std::this_thread::yield();
  const auto spare = ahead.TakeSpare();
  ASSERT_NE(spare, nullptr);
  EXPECT_EQ(spare->Size().value(), kBytes);
  EXPECT_EQ(ahead.TakeSpare(), nullptr);
}

/// Notes how far it was said that its bytes need not stay in memory.
class NotedFile final : public File {
 public:
  explicit NotedFile(std::unique_ptr<File> file) : file_(std::move(file)) {}
  Result<void> WriteAt(std::uint64_t offset, std::span<const iovec> parts) override {
    return file_->WriteAt(offset, parts);
  }
  Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const override {
    return file_->ReadAt(offset, out);
  }
  Result<void> Sync() override { return file_->Sync(); }
  Result<void> Allocate(std::uint64_t size) override { return file_->Allocate(size); }
  Result<void> Truncate(std::uint64_t size) override { return file_->Truncate(size); }
  Result<std::uint64_t> Size() const override { return file_->Size(); }
  void Uncache(std::uint64_t offset, std::uint64_t bytes) override {
    EXPECT_EQ(offset, uncached) << "piece by piece, none twice";
    uncached = offset + bytes;
  }
  std::atomic<std::uint64_t> uncached{0};

 private:
  std::unique_ptr<File> file_;
};

TEST(JournalAheadTest, AnOldSegmentLeavesTheSystemsMemoryWhileANewOneFills) {
  MemoryFiles files;
  files.SetContents("j/active", std::string(kBytes, 'x'));
  std::vector<std::shared_ptr<NotedFile>> segments;
  {
    JournalAhead ahead(files, "j", kBytes, true);
    for (int n = 0; n < 6; ++n) {
      segments.push_back(std::make_shared<NotedFile>(std::move(*files.Open("j/active", OpenMode::read_write))));
      ahead.Begin(segments.back(), kBytes);
      ahead.Advanced(kBytes / 2);
      while (!files.Exists(ahead.spare_path())) std::this_thread::yield();  // the worker came to the end
      EXPECT_TRUE(ahead.Hash(kBytes));
      (void)ahead.TakeSpare();
      ASSERT_TRUE(files.Remove(ahead.spare_path()));
    }
  }
  EXPECT_EQ(segments[0]->uncached, kBytes / 2) << "what the roll itself hashed is left: nobody waits for advice";
  EXPECT_EQ(segments[1]->uncached, kBytes / 2);
  for (int n = 2; n < 6; ++n) EXPECT_EQ(segments[n]->uncached, 0U) << "segment " << n << " may be read soon";
}

TEST(JournalAheadTest, FullDiskMeansNoSpareAndGivesItsSpaceBack) {
  MemoryFiles files;
  const std::string bytes(kBytes, 'x');
  {
    JournalAhead ahead(files, "j", kBytes, true);
    ahead.Begin(Filled(files, bytes), kBytes);
    files.SetCapacity(kBytes + kBytes / 2);
    ahead.Advanced(kBytes);
    EXPECT_EQ(ahead.Hash(kBytes).value(), Sha256(bytes));
  }
  EXPECT_FALSE(files.Exists("j/spare.seg.new"));
  EXPECT_EQ(files.FreeBytes("j").value(), kBytes / 2);
}

}  // namespace
}  // namespace dlo::store
