#include "store/embedded/seekable.h"

#include <gtest/gtest.h>

#include "env/memory_files.h"
#include "env/random.h"

namespace dlo::store {
namespace {

class SeekableTest : public testing::Test {
 protected:
  WrittenFile Write(const std::vector<std::string>& frames) {
    auto file = OrThrow(files_.Open("f", OpenMode::create_new));
    SeekableWriter writer(*file);
    original_.clear();
    for (const std::string& frame : frames) {
      OrThrow(writer.AddFrame(frame));
      original_ += frame;
    }
    return OrThrow(writer.Finish());
  }
  Result<std::unique_ptr<SeekableFile>> Open() {
    return SeekableFile::Open(OrThrow(files_.Open("f", OpenMode::read)), "f");
  }

  MemoryFiles files_;
  std::string original_;
};

TEST_F(SeekableTest, AnyPieceReadsAsTheOriginal) {
  SeededRandom random(11);
  std::vector<std::string> frames;
  for (int i = 0; i < 50; ++i) {
    std::string frame(1 + random.Next() % 5'000, '\0');
    for (char& c : frame) c = static_cast<char>('a' + random.Next() % 4);
    frames.push_back(std::move(frame));
  }
  frames.push_back(std::string(std::size_t{3} << 20, 'x'));  // a record larger than what is kept in memory
  const WrittenFile written = Write(frames);
  EXPECT_EQ(written.original_bytes, original_.size());
  EXPECT_EQ(written.original_sha256, Sha256(original_));
  EXPECT_EQ(written.sha256, Sha256(files_.Contents("f")));
  EXPECT_EQ(written.bytes, files_.Contents("f").size());
  EXPECT_LT(written.bytes, original_.size() / 3);
  const auto file = OrThrow(Open());
  EXPECT_EQ(file->frames(), frames.size());
  EXPECT_EQ(OrThrow(file->Size()), original_.size());
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t offset = random.Next() % (original_.size() + 10);
    std::string piece(random.Next() % 20'000, '\0');
    const std::string expected = offset < original_.size() ? original_.substr(offset, piece.size()) : "";
    piece.resize(OrThrow(file->ReadAt(offset, piece)));
    ASSERT_EQ(piece, expected) << "at " << offset;
  }
}

TEST_F(SeekableTest, AnEmptyFileHasNoFrames) {
  Write({"", ""});
  const auto file = OrThrow(Open());
  EXPECT_EQ(file->frames(), 0U);
  std::string some(5, 'x');
  EXPECT_EQ(OrThrow(file->ReadAt(0, some)), 0U);
}

TEST_F(SeekableTest, EveryByteCountsAndNoDamageIsReadAsData) {
  Write({std::string(300, 'a') + "one", std::string(300, 'b') + "two"});
  const std::string whole = files_.Contents("f");
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    files_.SetContents("f", bytes);
    const auto file = Open();
    if (!file) {
      EXPECT_EQ(file.error().code, "archive_damaged");
      continue;
    }
    std::string all(original_.size(), '\0');
    const auto got = (*file)->ReadAt(0, all);
    if (got) {
      EXPECT_EQ(all.substr(0, *got), original_) << "byte " << i;
    } else {
      EXPECT_EQ(got.error().code, "archive_damaged");
    }
  }
  for (std::size_t size = 0; size < whole.size(); ++size) {
    files_.SetContents("f", whole.substr(0, size));
    const auto file = Open();
    ASSERT_FALSE(file) << size;
    EXPECT_EQ(file.error().code, "archive_damaged");
  }
}

TEST_F(SeekableTest, ATableThatPromisesTooMuchCostsNoMemory) {
  std::string bytes(17, '\0');
  const auto put = [&](std::size_t at, std::uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[at + static_cast<std::size_t>(i)] = static_cast<char>(value >> (8 * i));
  };
  put(0, 0x184D2A5E);
  put(8, 0xFFFFFFFF);
  put(13, 0x8F92EAB1);
  files_.SetContents("f", bytes);
  EXPECT_EQ(Open().error().code, "archive_damaged");
}

}  // namespace
}  // namespace dlo::store
