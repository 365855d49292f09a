// What is appended is read back, over segments, restarts, a full disk and a failing one.
#include "store/embedded/journal.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "store/embedded/journal_format.h"
#include "store/embedded/journal_verify.h"
#include "unit/store/journal_fixture.h"

namespace dlo::store {
namespace {

class JournalWorkTest : public JournalTest {};

TEST_F(JournalWorkTest, NewOneIsEmptyAndStaysSoAfterARestart) {
  Open();
  EXPECT_EQ(journal_->last_seq(), 0);
  ExpectAllThere();
  EXPECT_TRUE(TryAppend({}));
  Open();
  ExpectAllThere();
  EXPECT_EQ(files_->List("j").value(), std::vector<std::string>{"0000000001.seg"});
}

TEST_F(JournalWorkTest, GivesContiguousIdsPlacesAndDigests) {
  Open();
  Append({MakeReceipt("a", "one"), MakeReceipt("b", "")});
  Append({MakeReceipt("c", "three")});
  EXPECT_EQ(digests_[0], Sha256("three"));
  EXPECT_EQ(places_[0].segment, 1);
  EXPECT_EQ(journal_->end().seq, 3);
  EXPECT_EQ(journal_->end().offset, places_[0].position + places_[0].length);
  ExpectAllThere();
  Open();
  ExpectAllThere();
  Append({MakeReceipt("d", "four")});
  ExpectAllThere();
}

TEST_F(JournalWorkTest, KeepsAnyBytesInEveryField) {
  SeededRandom random(11);
  Open();
  for (int batch = 0; batch < 60; ++batch) {
    Receipts receipts;
    for (std::uint64_t i = random.Next() % 9 + 1; i > 0; --i) receipts.push_back(AnyReceipt(random, 300));
    Append(receipts);
  }
  ExpectAllThere();
  Open();
  ExpectAllThere();
  EXPECT_GT(journal_->end().segment, 5);
}

TEST_F(JournalWorkTest, KeepsBodiesOfAnySize) {
  segment_bytes_ = 3 << 20;
  Open();
  for (const std::size_t size :
       {std::size_t{0}, std::size_t{1}, std::size_t{1} << 20, std::size_t{25} << 20, std::size_t{7}}) {
    std::string body(size, '\0');
    for (std::size_t i = 0; i < size; i += 97) body[i] = static_cast<char>(i * 31);
    Append({MakeReceipt("k" + std::to_string(size), body)});
  }
  ExpectAllThere();
  EXPECT_EQ(journal_->end().segment, 3) << "the large one has a segment of its own";
  Open();
  ExpectAllThere();
}

TEST_F(JournalWorkTest, FirstBatchLargerThanASegmentMakesTheFirstSegmentLarger) {
  Open();
  Append({MakeReceipt("a", std::string(10'000, 'x'))});
  EXPECT_EQ(journal_->end().segment, 1);
  Append({MakeReceipt("b", "y")});
  EXPECT_EQ(journal_->end().segment, 2);
  Open();
  ExpectAllThere();
}

TEST_F(JournalWorkTest, RollsExactlyWhenABatchDoesNotFit) {
  for (const int spare : {-1, 0, 1}) {
    SCOPED_TRACE(spare);
    StartAnew();
    const auto receipt = MakeReceipt("a", "body");
    const auto bytes = static_cast<std::int64_t>(kBatchHeaderBytes + RecordHeadBytes(*receipt) + 4);
    segment_bytes_ = static_cast<std::int64_t>(kSegmentHeaderBytes) + 2 * bytes + spare;
    Open();
    for (int i = 0; i < 2; ++i) Append({MakeReceipt("a", "body")});
    EXPECT_EQ(journal_->end().segment, spare < 0 ? 2 : 1);
    Open();
    ExpectAllThere();
  }
}

TEST_F(JournalWorkTest, ReadsOnFromAMarkAndOnlyWholeBatches) {
  Open();
  for (int i = 0; i < 40; ++i)
    Append({MakeReceipt("a" + std::to_string(i), "1"), MakeReceipt("b", std::string(100, '2'))});
  Mark mark;
  EventId last = 0;
  while (true) {
    const auto some = journal_->ReadFrom(mark, 1000);
    ASSERT_TRUE(some) << some.error().message;
    if (some->empty()) break;
    EXPECT_EQ(some->size() % 2, 0U);
    EXPECT_LE(some->size(), 6U);
    for (const auto& record : *some) EXPECT_EQ(record.receipt->id, ++last);
    EXPECT_EQ(mark.seq, last);
  }
  EXPECT_EQ(last, 80);
  Append({MakeReceipt("new", "3")});
  const auto more = journal_->ReadFrom(mark, 1);
  ASSERT_TRUE(more);
  ASSERT_EQ(more->size(), 1U);
  EXPECT_EQ((*more)[0].receipt->key, "new");
}

TEST_F(JournalWorkTest, MarkBehindTheEndIsCorruptSinceTheIndexKnowsMoreThanTheJournal) {
  Open();
  Append({MakeReceipt("a", "1")});
  const Mark end = journal_->end();
  for (const Mark bad :
       {Mark{1, end.offset + 1, 1}, Mark{2, 0, 1}, Mark{0, 0, 0}, Mark{1, -1, 0}, Mark{1, 0, 1}, Mark{1, 130, 0}}) {
    Mark mark = bad;
    const auto read = journal_->ReadFrom(mark, 1);
    ASSERT_FALSE(read) << bad.segment << " " << bad.offset;
    EXPECT_EQ(read.error().kind, ErrorKind::corrupt);
  }
}

TEST_F(JournalWorkTest, PlaceThatIsNoRecordIsCorrupt) {
  Open();
  Append({MakeReceipt("a", "1"), MakeReceipt("b", "2")});
  const Place good = places_[1];
  for (const Place bad :
       {Place{0, 0, 0}, Place{2, 0, 1}, Place{1, good.position + 1, good.length}, Place{1, -1, good.length},
        Place{1, good.position, good.length - 1}, Place{1, good.position, good.length + 1},
        Place{1, places_[0].position, places_[0].length + good.length}, Place{1, good.position, -1}}) {
    const auto read = journal_->ReadAt(bad);
    ASSERT_FALSE(read) << bad.segment << " " << bad.position << " " << bad.length;
    EXPECT_EQ(read.error().kind, ErrorKind::corrupt);
  }
  EXPECT_TRUE(journal_->ReadAt(good));
}

TEST_F(JournalWorkTest, FullDiskRefusesAndAppendingResumesByItself) {
  SeededRandom random(3);
  Open();
  // Room for the segment and a part of the next one.
  files_->SetCapacity(4096 + 2000);
  int refused = 0;
  for (int i = 0; i < 60; ++i) {
    const auto done = TryAppend({MakeReceipt("k" + std::to_string(i), AnyBytes(random, 300))});
    if (done) continue;
    ++refused;
    EXPECT_EQ(done.error().kind, ErrorKind::unavailable);
    EXPECT_EQ(done.error().code, "disk_full");
    EXPECT_TRUE(places_.empty());
    ExpectAllThere();
    if (refused == 5) files_->SetCapacity(100'000);
  }
  EXPECT_EQ(refused, 5);
  ExpectAllThere();
  Open();
  ExpectAllThere();
}

TEST_F(JournalWorkTest, OpensAndReadsOnAFullDisk) {
  Open();
  Append({MakeReceipt("a", "1")});
  const std::string bytes = files_->Contents(Path(1)).substr(0, static_cast<std::size_t>(journal_->end().offset));
  files_->SetContents(Path(1), bytes);
  files_->SetCapacity(0);
  Open();
  ExpectAllThere();
  EXPECT_EQ(TryAppend({MakeReceipt("b", "2")}).error().code, "disk_full");
  files_->SetCapacity(100'000);
  Append({MakeReceipt("b", "2")});
  Open();
  ExpectAllThere();
}

TEST_F(JournalWorkTest, FirstFailedSyncIsFinal) {
  Open();
  Append({MakeReceipt("a", "1")});
  files_->FailSyncs(1);
  EXPECT_EQ(TryAppend({MakeReceipt("b", "2")}).error().code, "store_failed");
  const auto again = TryAppend({MakeReceipt("b", "2")});
  ASSERT_FALSE(again) << "the disk works again, and must not be believed";
  EXPECT_EQ(again.error().code, "store_failed");
  EXPECT_EQ(again.error().kind, ErrorKind::unavailable);
  ExpectAllThere();
}

TEST_F(JournalWorkTest, BatchWhoseSyncFailedIsMadeDurableByTheNextStartBeforeAnyoneReadsIt) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    StartAnew();
    Open();
    Append({MakeReceipt("a", "1")});
    files_->FailSyncs(1);
    ASSERT_FALSE(TryAppend({MakeReceipt("b", std::string(1500, '2'))}));
    Open();  // the page cache still shows the batch whole
    const auto before = ReadAll();
    ASSERT_TRUE(before);
    files_->PowerCut(random);
    Open();
    const auto after = ReadAll();
    ASSERT_TRUE(after) << after.error().message;
    EXPECT_EQ(after->size(), before->size()) << "an index that took it in must find it again";
  }
}

TEST_F(JournalWorkTest, RecordTooLargeIsRefusedAloneAndHarmsNothing) {
  Open();
  Append({MakeReceipt("a", "1")});
  auto huge = MakeReceipt("b", "");
  huge->body.resize(kMaxRecordBytes);
  EXPECT_EQ(TryAppend({huge}).error().kind, ErrorKind::too_large);
  huge.reset();
  Append({MakeReceipt("c", "2")});
  ExpectAllThere();
}

TEST_F(JournalWorkTest, VerifyCountsWhatIsThere) {
  Open();
  for (int i = 0; i < 50; ++i) Append({MakeReceipt("a" + std::to_string(i), std::string(200, 'x'))});
  const auto report = VerifyJournal(*files_, "j");
  ASSERT_TRUE(report);
  EXPECT_TRUE(report->problems.empty()) << report->problems[0];
  EXPECT_EQ(report->records, 50);
  EXPECT_EQ(report->last_seq, 50);
  EXPECT_EQ(report->segments, journal_->end().segment);
  EXPECT_EQ(report->torn_bytes, 0);
}

// On the real disk, since only there do reads and writes truly run side by side.
TEST(JournalThreadsTest, PlacesAreReadableByOtherThreadsWhileAppending) {
  std::string folder = testing::TempDir() + "dlo_journal_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  {
    RealFiles files;
    RealClock clock;
    NoCrashPoints crash_points;
    auto journal = Journal::Open(files, clock, crash_points, {folder + "/journal", 64 << 10});
    ASSERT_TRUE(journal) << journal.error().message;
    constexpr int kBatches = 300;
    std::mutex mutex;
    std::condition_variable came;
    std::vector<std::pair<Place, std::string>> done;
    std::thread reader([&] {
      for (std::size_t next = 0; next < kBatches; ++next) {
        std::unique_lock lock(mutex);
        came.wait(lock, [&] { return done.size() > next; });
        const auto [place, body] = done[next];
        const auto old = done[next / 2].first;
        lock.unlock();
        const auto record = (*journal)->ReadAt(place);
        ASSERT_TRUE(record) << record.error().message;
        ASSERT_EQ(record->receipt->body, body);
        ASSERT_TRUE((*journal)->ReadAt(old));
      }
    });
    std::thread follower([&] {
      Mark mark;
      EventId last = 0;
      while (last < kBatches) {
        const auto some = (*journal)->ReadFrom(mark, 4096);
        ASSERT_TRUE(some) << some.error().message;
        for (const auto& record : *some) ASSERT_EQ(record.receipt->id, ++last);
        std::this_thread::yield();
      }
    });
    SeededRandom random(5);
    std::vector<Place> places;
    std::vector<Sha256Digest> digests;
    for (int i = 0; i < kBatches; ++i) {
      const Receipts one = {MakeReceipt(std::to_string(i), AnyBytes(random, 3000))};
      const auto appended = (*journal)->Append(one, places, digests);
      EXPECT_TRUE(appended) << appended.error().message;
      const std::lock_guard lock(mutex);
      done.emplace_back(places[0], one[0]->body);
      came.notify_one();
    }
    reader.join();
    follower.join();
    EXPECT_GT((*journal)->end().segment, 3);
    const auto report = VerifyJournal(files, folder + "/journal");
    ASSERT_TRUE(report);
    EXPECT_TRUE(report->problems.empty());
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dlo::store
