// The checks must be able to fail: each test breaks one rule on purpose, between the real parts, and wants to be
// caught.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/log.h"
#include "sim/forward_queue.h"
#include "sim/world.h"

namespace dlo::sim {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kSeeds = 60;

/// What the first world says that notices; empty if none does.
std::string Caught(Options options) {
  log::SetLevel("off");
  for (options.seed = 1; options.seed <= kSeeds; ++options.seed) {
    const Report report = World(options).Run();
    if (!report.failure.empty()) return report.failure;
  }
  return {};
}

TEST(SimHonestyTest, TheSameSeedGivesTheSameRun) {
  log::SetLevel("off");
  const Report first = World({.seed = 11}).Run(), second = World({.seed = 11}).Run(), other = World({.seed = 12}).Run();
  EXPECT_EQ(first.failure, "");
  EXPECT_EQ(first.digest, second.digest);
  EXPECT_NE(first.digest, other.digest);
}

/// A journal that answers before its sync: the sync of a segment does nothing.
class AnsweringEarly final : public Files {
 public:
  explicit AnsweringEarly(Files& disk) : disk_(disk) {}
  Result<std::unique_ptr<File>> Open(const std::string& path, OpenMode mode) override {
    auto file = disk_.Open(path, mode);
    if (!file || !path.contains("/journal/")) return file;
    return std::unique_ptr<File>(std::make_unique<Unsynced>(std::move(*file)));
  }
  Result<std::vector<std::string>> List(const std::string& folder) override { return disk_.List(folder); }
  Result<void> MakeFolders(const std::string& folder) override { return disk_.MakeFolders(folder); }
  Result<void> Rename(const std::string& from, const std::string& to) override { return disk_.Rename(from, to); }
  Result<void> Remove(const std::string& path) override { return disk_.Remove(path); }
  Result<void> SyncFolder(const std::string& folder) override { return disk_.SyncFolder(folder); }
  bool Exists(const std::string& path) const override { return disk_.Exists(path); }
  Result<std::unique_ptr<File>> Lock(const std::string& path) override { return disk_.Lock(path); }
  Result<std::uint64_t> FreeBytes(const std::string& path) override { return disk_.FreeBytes(path); }
  Result<std::uint64_t> TotalBytes(const std::string& path) override { return disk_.TotalBytes(path); }

 private:
  class Unsynced final : public File {
   public:
    explicit Unsynced(std::unique_ptr<File> file) : file_(std::move(file)) {}
    Result<void> WriteAt(std::uint64_t offset, std::span<const iovec> parts) override {
      return file_->WriteAt(offset, parts);
    }
    Result<std::size_t> ReadAt(std::uint64_t offset, std::span<char> out) const override {
      return file_->ReadAt(offset, out);
    }
    Result<void> Sync() override { return {}; }
    Result<void> Allocate(std::uint64_t size) override { return file_->Allocate(size); }
    Result<void> Truncate(std::uint64_t size) override { return file_->Truncate(size); }
    Result<std::uint64_t> Size() const override { return file_->Size(); }

   private:
    std::unique_ptr<File> file_;
  };
  Files& disk_;
};

TEST(SimHonestyTest, AJournalThatAnswersBeforeItsSyncIsCaught) {
  EXPECT_THAT(Caught({.wrap_files = [](Files& disk) { return std::make_unique<AnsweringEarly>(disk); }}),
              AnyOf(HasSubstr("nothing acknowledged is lost"), HasSubstr("the store opens"),
                    HasSubstr("what was acknowledged is what was sent")));
}

/// Hands everything on; the two below change what comes to be applied.
class Altered : public ForwardQueue {
 public:
  Altered(store::Queue& queue, const std::string& vfs)
      : ForwardQueue(queue), eyes_(OrThrow(store::Db::Open("data/dlo.db", store::Db::Mode::reader, vfs))) {}
  Result<store::ExchangeResult> Exchange(const store::ExchangeRequest& request) override {
    std::vector<Transition> finished(request.finished.begin(), request.finished.end());
    for (Transition& transition : finished) Alter(transition);
    store::ExchangeRequest altered = request;
    altered.finished = finished;
    return ForwardQueue::Exchange(altered);
  }

 protected:
  virtual void Alter(Transition& transition) = 0;
  std::int64_t Number(const char* sql, EventId id) {
    store::Statement row = eyes_->Prepare(sql);
    return OrThrow(row.Bind(1, id).Step()) ? row.Int(0) : 0;
  }

 private:
  std::unique_ptr<store::Db> eyes_;
};

class WithoutToken final : public Altered {
  using Altered::Altered;
  void Alter(Transition& t) override {
    t.token = std::max(t.token, Number("SELECT token FROM events WHERE id = ?1", t.id));
  }
};

TEST(SimHonestyTest, AnAnswerThatIsNotFencedByItsTokenIsCaught) {
  EXPECT_THAT(Caught({.wrap_queue = [](store::Queue& queue,
                                       const std::string& vfs) { return std::make_unique<WithoutToken>(queue, vfs); }}),
              AnyOf(HasSubstr("nobody but its owner moves an event"), HasSubstr("one owner at a time"),
                    HasSubstr("a handler has a lease")));
}

class AroundDecide final : public Altered {
  using Altered::Altered;
  void Alter(Transition& t) override {
    if (Number("SELECT replaying FROM events WHERE id = ?1", t.id) == 0) return;
    t.to = State::replayed;
    t.failure_class = FailureClass::none;
    t.due_at.reset();
    t.keep_lane = false;
    t.replay_result = ReplayResult::committed;
  }
};

TEST(SimHonestyTest, AReplayThatGoesAroundDecideIsCaught) {
  EXPECT_THAT(Caught({.wrap_queue = [](store::Queue& queue,
                                       const std::string& vfs) { return std::make_unique<AroundDecide>(queue, vfs); }}),
              HasSubstr("no success without its effect"));
}

}  // namespace
}  // namespace dlo::sim
