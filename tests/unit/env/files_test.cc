// The real file system and the one in memory keep the same contract.
#include "env/files.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>

#include "env/memory_files.h"
#include "env/random.h"

namespace dlo {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = testing::TempDir() + "dlo_files_XXXXXX";
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  [[nodiscard]] std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<void> WriteText(File& file, std::uint64_t offset, std::string text) {
  const iovec part{text.data(), text.size()};
  return file.WriteAt(offset, std::span(&part, 1));
}

std::string ReadText(const File& file, std::uint64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  const auto got = file.ReadAt(offset, text);
  text.resize(got.value_or(0));
  return text;
}

enum class Kind { real, memory };

class FilesTest : public testing::TestWithParam<Kind> {
 protected:
  Files& files() { return GetParam() == Kind::real ? static_cast<Files&>(real_) : memory_; }
  Folder folder_;

 private:
  RealFiles real_;
  MemoryFiles memory_;
};

INSTANTIATE_TEST_SUITE_P(Both, FilesTest, testing::Values(Kind::real, Kind::memory),
                         [](const auto& kind) { return kind.param == Kind::real ? "real" : "memory"; });

TEST_P(FilesTest, WritesPartsInOrderAndReadsThemBack) {
  auto file = files().Open(folder_ / "a", OpenMode::create_new);
  ASSERT_TRUE(file) << file.error().message;
  std::string one = "one", none, three = "three";
  const std::vector<iovec> parts = {{one.data(), one.size()}, {none.data(), 0}, {three.data(), three.size()}};
  ASSERT_TRUE((*file)->WriteAt(2, parts));
  EXPECT_EQ(ReadText(**file, 0, 100), std::string("\0\0onethree", 10));
  EXPECT_EQ(ReadText(**file, 5, 3), "thr");
  EXPECT_EQ(ReadText(**file, 10, 1), "");
  EXPECT_EQ(ReadText(**file, 5000, 1), "");
  EXPECT_TRUE((*file)->Sync());
  EXPECT_EQ((*file)->Size().value(), 10U);
}

TEST_P(FilesTest, WritesMorePartsThanOneSystemCallTakes) {
  auto file = files().Open(folder_ / "a", OpenMode::create_new);
  ASSERT_TRUE(file);
  std::string expected;
  std::vector<std::string> texts;
  for (int i = 0; i < 5000; ++i)
    texts.push_back(std::string(static_cast<std::size_t>(i % 7), static_cast<char>('a' + i % 26)));
  std::vector<iovec> parts;
  for (auto& text : texts) {
    expected += text;
    parts.push_back({text.data(), text.size()});
  }
  ASSERT_TRUE((*file)->WriteAt(0, parts));
  EXPECT_EQ(ReadText(**file, 0, 100'000), expected);
}

TEST_P(FilesTest, AllocatedSpaceReadsAsZerosAndKeepsWhatIsThere) {
  auto file = files().Open(folder_ / "a", OpenMode::create_new);
  ASSERT_TRUE(file);
  ASSERT_TRUE(WriteText(**file, 0, "kept"));
  ASSERT_TRUE((*file)->Allocate(8192));
  EXPECT_EQ((*file)->Size().value(), 8192U);
  EXPECT_EQ(ReadText(**file, 0, 8), std::string("kept\0\0\0\0", 8));
  ASSERT_TRUE((*file)->Allocate(10));  // less than there is: nothing happens
  EXPECT_EQ((*file)->Size().value(), 8192U);
  ASSERT_TRUE((*file)->Truncate(2));
  ASSERT_TRUE((*file)->Allocate(6));
  EXPECT_EQ(ReadText(**file, 0, 100), std::string("ke\0\0\0\0", 6));
}

TEST_P(FilesTest, OpenModesRefuseWhatTheySay) {
  EXPECT_EQ(files().Open(folder_ / "a", OpenMode::read).error().code, "no_file");
  EXPECT_EQ(files().Open(folder_ / "a", OpenMode::read_write).error().code, "no_file");
  ASSERT_TRUE(files().Open(folder_ / "a", OpenMode::create_new));
  EXPECT_EQ(files().Open(folder_ / "a", OpenMode::create_new).error().code, "exists");
  auto reader = files().Open(folder_ / "a", OpenMode::read);
  ASSERT_TRUE(reader);
  EXPECT_EQ(WriteText(**reader, 0, "x").error().code, "io");
}

TEST_P(FilesTest, ListsRenamesAndRemoves) {
  EXPECT_TRUE(files().List(folder_ / "missing").value().empty());
  for (const char* name : {"b", "a"}) ASSERT_TRUE(files().Open(folder_ / name, OpenMode::create_new));
  EXPECT_EQ(files().List(folder_.path()).value(), (std::vector<std::string>{"a", "b"}));
  ASSERT_TRUE(files().Rename(folder_ / "b", folder_ / "c"));
  EXPECT_FALSE(files().Exists(folder_ / "b"));
  EXPECT_TRUE(files().Exists(folder_ / "c"));
  ASSERT_TRUE(files().Remove(folder_ / "a"));
  EXPECT_EQ(files().List(folder_.path()).value(), std::vector<std::string>{"c"});
  EXPECT_TRUE(files().SyncFolder(folder_.path()));
  EXPECT_EQ(files().Rename(folder_ / "a", folder_ / "b").error().code, "no_file");
  EXPECT_EQ(files().Remove(folder_ / "a").error().code, "no_file");
}

TEST_P(FilesTest, LockIsExclusiveAndEndsWithItsHolder) {
  auto first = files().Lock(folder_ / "lock");
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(files().Lock(folder_ / "lock").error().code, "locked");
  EXPECT_EQ(files().Lock(folder_ / "lock").error().kind, ErrorKind::conflict);
  first->reset();
  EXPECT_TRUE(files().Lock(folder_ / "lock"));
}

TEST(RealFilesTest, LockErrorNamesTheProcessThatHoldsIt) {
  const Folder folder;
  int ready[2], stop[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(stop), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto lock = RealFiles().Lock(folder / "lock");
    char byte = lock ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    close(stop[1]);
    _exit(read(stop[0], &byte, 1) == 0 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  RealFiles files;
  const auto refused = files.Lock(folder / "lock");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("process " + std::to_string(child) + ":"), std::string::npos)
      << refused.error().message;
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(files.Lock(folder / "lock")) << "a dead holder holds nothing";
  for (const int fd : {ready[0], ready[1], stop[0], stop[1]}) close(fd);
}

TEST(RealFilesTest, MakesFoldersOfAnyDepthAndIsContentWithThoseThere) {
  const Folder folder;
  RealFiles files;
  ASSERT_TRUE(files.MakeFolders(folder / "x/y/z"));
  ASSERT_TRUE(files.MakeFolders(folder / "x/y/z/"));
  EXPECT_TRUE(std::filesystem::is_directory(folder / "x/y/z"));
  ASSERT_TRUE(files.Open(folder / "file", OpenMode::create_new));
  EXPECT_FALSE(files.MakeFolders(folder / "file/below"));
  EXPECT_GT(files.FreeBytes(folder.path()).value(), 0U);
  EXPECT_GE(files.TotalBytes(folder.path()).value(), files.FreeBytes(folder.path()).value());
}

TEST(RealFilesTest, FullDiskIsToldApartFromAFailingOne) {
  RealFiles files;
  auto full = files.Open("/dev/full", OpenMode::read_write);
  ASSERT_TRUE(full);
  EXPECT_EQ(WriteText(**full, 0, "x").error().code, "disk_full");
  EXPECT_EQ(files.Open("/proc/self/mem/x", OpenMode::read).error().code, "io");
}

TEST(MemoryFilesTest, PowerCutKeepsWhatWasSyncedAndInventsNothing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    MemoryFiles files;
    auto file = files.Open("d/a", OpenMode::create_new);
    ASSERT_TRUE(WriteText(**file, 0, std::string(2048, 's')));
    ASSERT_TRUE((*file)->Sync());
    ASSERT_TRUE(files.SyncFolder("d"));
    ASSERT_TRUE(WriteText(**file, 1024, std::string(2048, 'u')));
    files.PowerCut(random);
    const std::string after = files.Contents("d/a");
    ASSERT_TRUE(after.size() == 2048 || after.size() == 3072) << after.size();
    EXPECT_EQ(after.substr(0, 1024), std::string(1024, 's'));
    for (std::size_t at = 1024; at < after.size(); at += 512) {
      const char c = after[at];
      EXPECT_TRUE(c == 'u' || c == (at < 2048 ? 's' : '\0'));
      EXPECT_EQ(after.substr(at, 512), std::string(512, c)) << "a sector is whole";
    }
  }
}

TEST(MemoryFilesTest, NameIsLostUnlessItsFolderWasSynced) {
  int lost = 0;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    SeededRandom random(seed);
    MemoryFiles files;
    auto file = files.Open("d/a", OpenMode::create_new);
    ASSERT_TRUE((*file)->Sync());
    files.PowerCut(random);
    lost += files.Exists("d/a") ? 0 : 1;
  }
  EXPECT_GT(lost, 0);
  EXPECT_LT(lost, 50);
}

TEST(MemoryFilesTest, FailedSyncMakesNothingDurableNorDoesALaterOne) {
  SeededRandom random(1);
  MemoryFiles files;
  auto file = files.Open("d/a", OpenMode::create_new);
  ASSERT_TRUE(files.SyncFolder("d"));
  ASSERT_TRUE(WriteText(**file, 0, "gone"));
  files.FailSyncs(1);
  EXPECT_FALSE((*file)->Sync());
  EXPECT_EQ(files.Contents("d/a"), "gone") << "still in the page cache";
  EXPECT_TRUE((*file)->Sync());
  files.PowerCut(random);
  EXPECT_EQ(files.Contents("d/a"), std::string(4, '\0'));
}

}  // namespace
}  // namespace dlo
