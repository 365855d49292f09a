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
