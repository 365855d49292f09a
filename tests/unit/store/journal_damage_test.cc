// Torn, rotten, foreign, missing and mixed-up files: each is cut or named, and no wrong record ever comes out.
#include <gtest/gtest.h>

#include "../../../fuzz/journal_mutations.h"
#include "base/log.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/journal_verify.h"
#include "unit/store/journal_fixture.h"

namespace dlo::store {
namespace {

class JournalDamageTest : public JournalTest {
 protected:
  void SetUp() override { log::SetLevel("off"); }
  void TearDown() override { log::SetLevel("info"); }

  /// Three batches in one segment; offsets where each begins and where the last ends.
  void WriteThreeBatches() {
    Open();
    starts_ = {static_cast<std::size_t>(journal_->end().offset)};
    for (int i = 0; i < 3; ++i) {
      Append({MakeReceipt("a" + std::to_string(i), "body"), MakeReceipt("b" + std::to_string(i), "")});
      starts_.push_back(static_cast<std::size_t>(journal_->end().offset));
    }
  }
  void WriteSegments(int segments) {
    Open();
    for (int i = 0; journal_->end().segment < segments; ++i) {
      Append({MakeReceipt("k" + std::to_string(i), std::string(700, 'x'))});
    }
  }
  void Flip(const std::string& path, std::size_t at) {
    std::string bytes = files_->Contents(path);
    ASSERT_LT(at, bytes.size());
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    files_->SetContents(path, bytes);
  }
  void ExpectRefused(ErrorKind kind, const std::string& code, const std::vector<std::string>& words) {
    const auto opened = TryOpen();
    ASSERT_FALSE(opened);
    EXPECT_EQ(opened.error().kind, kind) << opened.error().message;
    EXPECT_EQ(opened.error().code, code) << opened.error().message;
    for (const auto& word : words) {
      EXPECT_NE(opened.error().message.find(word), std::string::npos) << word << " in: " << opened.error().message;
    }
  }
  void ExpectPrefix(const std::vector<JournalRecord>& records, std::size_t at_least) {
    ASSERT_GE(records.size(), at_least);
    ASSERT_LE(records.size(), written_.size());
    for (std::size_t i = 0; i < records.size(); ++i) ExpectSame(*records[i].receipt, *written_[i]);
  }

  std::vector<std::size_t> starts_;
};

TEST_F(JournalDamageTest, LastBatchTornAtAnyByteIsCutAndWorkGoesOn) {
  WriteThreeBatches();
  const std::string whole = files_->Contents(Path(1));
  const Receipts written = written_;
  for (std::size_t torn = starts_[2]; torn <= starts_[3]; ++torn) {
    for (const bool zeros : {true, false}) {
      SCOPED_TRACE(testing::Message() << "torn at " << torn << (zeros ? ", zeros behind" : ", the file ends"));
      std::string bytes = whole.substr(0, torn);
      if (zeros) bytes.resize(whole.size());
      files_->SetContents(Path(1), bytes);
      written_ = written;
      // Where the batch ends in zeros, a tear within them that leaves zeros is no tear.
      const bool whole_again = bytes.substr(0, starts_[3]) == whole.substr(0, starts_[3]);
      if (!whole_again) written_.resize(4);
      Open();
      ExpectAllThere();
      Append({MakeReceipt("after", "x")});
      Open();
      ExpectAllThere();
    }
  }
}

TEST_F(JournalDamageTest, OldBytesBehindACutNeverComeBack) {
  WriteThreeBatches();
  // The middle batch is torn and a whole one is behind it, as it looks when the disk wrote the later sectors first. Its
  // header declares the middle one durable, so this is damage.
  const std::string whole = files_->Contents(Path(1));
  Flip(Path(1), starts_[1] + kBatchHeaderBytes + 10);
  ExpectRefused(ErrorKind::corrupt, "journal_corrupt", {Path(1), std::to_string(starts_[1]), "dlo verify"});

  // Without that header it is a torn tail; what follows it must be gone for good, though the next batch ends before it.
  std::string torn = whole;
  torn[starts_[1] + kBatchHeaderBytes + 10] ^= 1;
  torn[starts_[2]] ^= 1;
  files_->SetContents(Path(1), torn);
  written_.resize(2);
  Open();
  ExpectAllThere();
  EXPECT_EQ(files_->Contents(Path(1)).find_last_not_of('\0') + 1, starts_[1]);
  Append({MakeReceipt("s", "")});
  Open();
  ExpectAllThere();
}

TEST_F(JournalDamageTest, BodyThatLooksLikeABatchIsNotTakenForOneInATornTail) {
  Open();
  Append({MakeReceipt("a", "1")});
  const std::string first = files_->Contents(Path(1));
  // A sender who knows the format, not the salt, posts a header that declares everything durable.
  std::string fake(kBatchHeaderBytes, '\0');
  BatchHeader header;
  header.bytes = 500;
  header.first_seq = 3;
  header.records = 1;
  header.durable_upto = static_cast<std::uint64_t>(journal_->end().offset) + 1;
  EncodeBatchHeader(header, fake.data());
  Append({MakeReceipt("b", fake + fake)});
  Flip(Path(1), static_cast<std::size_t>(places_[0].position) + 9);
  written_.resize(1);
  Open();
  ExpectAllThere();
}

TEST_F(JournalDamageTest, FlipOfAnyByteIsFoundOrHarmless) {
  WriteThreeBatches();
  const std::string whole = files_->Contents(Path(1));
  for (std::size_t at = 0; at < starts_[3] + 100; ++at) {
    SCOPED_TRACE(testing::Message() << "flipped at " << at);
    files_->SetContents(Path(1), whole);
    Flip(Path(1), at);
    auto opened = TryOpen();
    if (at < starts_[2]) {
      ASSERT_FALSE(opened) << "durable by the last batch's word";
      EXPECT_TRUE(opened.error().kind == ErrorKind::corrupt || opened.error().code == "journal_newer");
      continue;
    }
    // In the last batch a flip cannot be told from a tear; behind it there is nothing.
    ASSERT_TRUE(opened) << opened.error().message;
    journal_ = std::move(*opened);
    const auto all = ReadAll();
    ASSERT_TRUE(all);
    ExpectPrefix(*all, at < starts_[3] ? 4 : 6);
    EXPECT_EQ(all->size(), at < starts_[3] ? 4U : 6U);
  }
}

TEST_F(JournalDamageTest, FlipInAnySealedSegmentIsFoundByReadingAndByVerify) {
  WriteSegments(3);
  for (const int segment : {1, 2}) {
    const std::string whole = files_->Contents(Path(segment));
    for (std::size_t at = 128; at < 3300; at += 61) {
      SCOPED_TRACE(testing::Message() << "segment " << segment << " at " << at);
      Flip(Path(segment), at);
      const auto report = VerifyJournal(*files_, "j");
      ASSERT_TRUE(report);
      ASSERT_FALSE(report->problems.empty());
      EXPECT_NE(report->problems[0].find(Path(segment)), std::string::npos);
      auto opened = TryOpen();
      EXPECT_EQ(opened.has_value(), segment == 1) << "the newest sealed one is checked at every start";
      if (opened) {
        journal_ = std::move(*opened);
        const auto all = ReadAll();
        ASSERT_FALSE(all);
        EXPECT_EQ(all.error().kind, ErrorKind::corrupt);
      } else {
        EXPECT_EQ(opened.error().kind, ErrorKind::corrupt);
      }
      files_->SetContents(Path(segment), whole);
    }
  }
}

TEST_F(JournalDamageTest, RottenBodyIsNeverHandedOut) {
  Open();
  Append({MakeReceipt("a", "money")});
  const auto place = places_[0];
  // Under the reader's feet: the journal is open.
  std::string bytes = files_->Contents(Path(1));
  const char wrong = 'M';
  auto file = files_->Open(Path(1), OpenMode::read_write);
  char value = wrong;
  const iovec part{&value, 1};
  ASSERT_TRUE((*file)->WriteAt(bytes.find("money"), std::span(&part, 1)));
  const auto read = journal_->ReadAt(place);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().kind, ErrorKind::corrupt);
}

TEST_F(JournalDamageTest, MissingSegmentIsNamed) {
  WriteSegments(4);
  for (const int missing : {1, 2, 3}) {
    const std::string bytes = files_->Contents(Path(missing));
    ASSERT_TRUE(files_->Remove(Path(missing)));
    ExpectRefused(ErrorKind::corrupt, "journal_missing", {Path(missing), "dlo verify"});
    const auto report = VerifyJournal(*files_, "j");
    ASSERT_TRUE(report);
    ASSERT_FALSE(report->problems.empty());
    EXPECT_NE(report->problems[0].find(Path(missing)), std::string::npos);
    files_->SetContents(Path(missing), bytes);
  }
  Open();
  ExpectAllThere();
}

TEST_F(JournalDamageTest, SegmentsThatChangedPlacesAreNamed) {
  WriteSegments(4);
  const std::string two = files_->Contents(Path(2)), three = files_->Contents(Path(3));
  files_->SetContents(Path(2), three);
  files_->SetContents(Path(3), two);
  ExpectRefused(ErrorKind::corrupt, "journal_misplaced", {Path(2), "segment 3"});
}

TEST_F(JournalDamageTest, SegmentOfAnotherJournalBreaksTheChain) {
  WriteSegments(3);
  const std::string own = files_->Contents(Path(2)), first = files_->Contents(Path(1));
  StartAnew();
  WriteSegments(3);  // the same receipts, at other salts
  const std::string own_first = files_->Contents(Path(1));
  files_->SetContents(Path(2), own);
  ExpectRefused(ErrorKind::corrupt, "journal_corrupt", {Path(2), "chained"});
  const auto report = VerifyJournal(*files_, "j");
  ASSERT_TRUE(report);
  EXPECT_EQ(report->problems.size(), 2U) << "its link to the one before, and the next one's to it";

  StartAnew();
  WriteSegments(3);
  files_->SetContents(Path(1), first);
  const auto older = VerifyJournal(*files_, "j");
  ASSERT_TRUE(older);
  ASSERT_EQ(older->problems.size(), 1U);
  EXPECT_NE(older->problems[0].find(Path(1)), std::string::npos);
}

TEST_F(JournalDamageTest, SealedSegmentCutShortIsNamed) {
  WriteSegments(3);
  for (const int segment : {1, 2}) {
    const std::string bytes = files_->Contents(Path(segment));
    files_->SetContents(Path(segment), bytes.substr(0, 1000));
    ExpectRefused(ErrorKind::corrupt, "journal_corrupt", {Path(segment), "offset 1000"});
    files_->SetContents(Path(segment), bytes);
  }
}

TEST_F(JournalDamageTest, FirstBytesDecideWhatAFileIs) {
  WriteThreeBatches();
  const std::string good = files_->Contents(Path(1));
  const auto with = [&](std::size_t at, char value) {
    std::string bytes = good;
    bytes[at] = value;
    return bytes;
  };
  const struct {
    const char* name;
    std::string bytes;
    ErrorKind kind;
    const char* code;
  } rows[] = {
      {"text", "hello, I am a text file", ErrorKind::corrupt, "journal_foreign"},
      {"one byte", "x", ErrorKind::corrupt, "journal_foreign"},
      {"long text", std::string(9000, 'x'), ErrorKind::corrupt, "journal_foreign"},
      {"magic only", good.substr(0, 8), ErrorKind::corrupt, "journal_corrupt"},
      {"a byte short of a header", good.substr(0, kSegmentHeaderBytes - 1), ErrorKind::corrupt, "journal_corrupt"},
      {"version 2", with(8, 2), ErrorKind::invalid, "journal_newer"},
      {"version 0", with(8, 0), ErrorKind::corrupt, "journal_corrupt"},
      {"header lost, batches there", std::string(128, '\0') + good.substr(128), ErrorKind::corrupt, "journal_corrupt"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    files_->SetContents(Path(1), row.bytes);
    ExpectRefused(row.kind, row.code, {Path(1)});
  }
}

TEST_F(JournalDamageTest, EmptyLastSegmentWithoutAHeaderIsMadeAnew) {
  for (const std::size_t zeros : {0, 1, 127, 128, 4096}) {
    SCOPED_TRACE(zeros);
    StartAnew();
    files_->SetContents(Path(1), std::string(zeros, '\0'));
    Open();
    Append({MakeReceipt("a", "1")});
    const auto end = journal_->end();
    files_->SetContents(Path(2), std::string(zeros, '\0'));
    Open();
    EXPECT_EQ(journal_->end().segment, 1);
    EXPECT_EQ(journal_->end().offset, end.offset);
    ExpectAllThere();
    for (int i = 0; i < 10; ++i) Append({MakeReceipt("k" + std::to_string(i), std::string(700, 'x'))});
    ExpectAllThere();
    Open();
    ExpectAllThere();
  }
}

TEST_F(JournalDamageTest, OtherFilesInTheFolderAreLeftAloneAndUnfinishedOnesRemoved) {
  files_->SetContents("j/notes.txt", "mine");
  files_->SetContents("j/1.seg", "mine");
  files_->SetContents("j/0000000001.seg.new", "half");
  Open();
  Append({MakeReceipt("a", "1")});
  EXPECT_EQ(files_->Contents("j/notes.txt"), "mine");
  EXPECT_EQ(files_->Contents("j/1.seg"), "mine");
  EXPECT_FALSE(files_->Exists("j/0000000001.seg.new"));
}

/// Some bytes changed, removed, doubled or moved, as a bad disk or a bad hand would.
std::string Mutate(std::string bytes, std::size_t used, Random& random) {
  for (std::uint64_t i = random.Next() % 4 + 1; i > 0; --i) {
    if (bytes.empty()) return bytes;
    const std::size_t at = random.Next() % std::min(bytes.size(), used), count = random.Next() % 200 + 1;
    switch (random.Next() % 7) {
      case 0:
        bytes[at] = static_cast<char>(random.Next());
        break;
      case 1:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random.Next() % 8)));
        break;
      case 2:
        bytes.erase(at, count);
        break;
      case 3:
        bytes.insert(at, bytes.substr(random.Next() % bytes.size(), count));
        break;
      case 4:
        bytes.resize(at);
        break;
      case 5:
        for (std::size_t k = at; k < std::min(at + count, bytes.size()); ++k) bytes[k] = 0;
        break;
      default:
        for (std::size_t k = at; k < std::min(at + 4, bytes.size()); ++k) bytes[k] = static_cast<char>(0xFF);
    }
  }
  return bytes;
}

TEST_F(JournalDamageTest, MutatedSegmentGivesAnErrorOrAPrefixOfWhatWasWritten) {
  SeededRandom writing(99);
  segment_bytes_ = 16384;
  Open();
  for (int i = 0; i < 6; ++i) Append({AnyReceipt(writing, 200), AnyReceipt(writing, 200)});
  ASSERT_EQ(journal_->end().segment, 1);
  const std::string good = files_->Contents(Path(1));
  const auto used = static_cast<std::size_t>(journal_->end().offset);
  int errors = 0, prefixes = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    const auto read = ReadWhole(Mutate(good, used, random));
    ++(read ? prefixes : errors);
    if (!read) {
      EXPECT_TRUE(read.error().kind == ErrorKind::corrupt || read.error().code == "journal_newer")
          << read.error().message;
      continue;
    }
    ExpectPrefix(*read, 0);
  }
  EXPECT_GT(errors, 50);
  EXPECT_GT(prefixes, 50);
}

TEST_F(JournalDamageTest, AnyBytesBehindRightChecksumsAreDecodedWithinBounds) {
  SeededRandom writing(98);
  auto receipt = AnyReceipt(writing, 100);
  receipt->id = 1;
  const std::size_t head = RecordHeadBytes(*receipt);
  std::string record(head, '\0');
  EncodeRecordHead(*receipt, Sha256(receipt->body), head, record.data());
  record += receipt->body;
  const auto good = ReadWhole(SegmentAround(record));
  ASSERT_TRUE(good) << good.error().message;
  ASSERT_EQ(good->size(), 1U);
  ExpectSame(*(*good)[0].receipt, *receipt);
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    static_cast<void>(ReadWhole(SegmentAround(Mutate(record, record.size(), random))));
  }
}

}  // namespace
}  // namespace dlo::store
