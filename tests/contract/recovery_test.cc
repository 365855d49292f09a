// What a process that dies leaves behind, at every named point of a commit and between calls.
#include <gmock/gmock.h>

#include <mutex>

#include "contract/fixture.h"

namespace dlo::store::contract {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;

class RecoveryTest : public StoreTest {};
DLO_FOR_EACH_STORE(RecoveryTest);

/// Takes the place's picture, as a kill would leave it, whenever `point` is passed.
class Photographer final : public CrashPoints {
 public:
  Photographer(StorePlace& place, std::string point) : place_(place), point_(std::move(point)) {}
  void At(std::string_view name) override {
    const std::lock_guard lock(mutex_);
    if (name == point_) pictures_.push_back(place_.AsIfKilledNow());
  }
  std::vector<std::unique_ptr<StorePlace>> Take() {
    const std::lock_guard lock(mutex_);
    return std::move(pictures_);
  }

 private:
  StorePlace& place_;
  const std::string point_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StorePlace>> pictures_;
};

TEST_P(RecoveryTest, EveryStateIsThereAgainAfterReopening) {
  std::vector<Receipt> batch;
  for (int i = 1; i <= 6; ++i) batch.push_back(MakeReceipt("evt_" + std::to_string(i)));
  Accept(batch);
  const std::vector<Claimed> claimed = Claim(5);
  Exchange({Ended(claimed[0], State::succeeded, Now()), Ended(claimed[1], State::waiting, Now()),
            Ended(claimed[2], State::dead, Now()), Ended(claimed[3], State::resolved, Now())},
           {});
  std::vector<Letter> before;
  for (EventId id = 1; id <= 6; ++id) before.push_back(Get(id));
  Reopen();
  for (EventId id = 1; id <= 6; ++id) {
    const Letter after = Get(id);
    const Letter& was = before[static_cast<std::size_t>(id - 1)];
    EXPECT_EQ(after.state, was.state) << id;
    EXPECT_EQ(after.due_at, was.due_at) << id;
    EXPECT_EQ(after.lease_until, was.lease_until) << id;
    EXPECT_EQ(after.fingerprint, was.fingerprint) << id;
    EXPECT_EQ(after.attempt_number, was.attempt_number) << id;
  }
}

/// Killed at any named point: whatever was answered is there, nothing is there twice, every law holds.
TEST_P(RecoveryTest, KilledAtAnyPointNothingAnsweredIsMissing) {
  for (const char* point : {"index.before_commit", "index.after_commit", "claim.after_commit", "apply.before_commit",
                            "apply.after_commit"}) {
    SCOPED_TRACE(point);
    store_.reset();
    place_ = GetParam().make();
    Photographer photographer(*place_, point);
    options_.crash_points = &photographer;
    Open();
    std::vector<std::unique_ptr<StorePlace>> pictures;
    std::vector<std::size_t> answered_before;
    std::size_t answered = 0;
    const auto collect = [&] {
      for (auto& picture : photographer.Take()) {
        pictures.push_back(std::move(picture));
        answered_before.push_back(answered);
      }
    };
    for (int i = 0; i < 6; ++i) {
      Accept(MakeReceipt("evt_" + std::to_string(i), i % 2 == 0 ? "even" : "odd"));
      collect();
      ++answered;
      std::vector<Transition> ends;
      for (const Claimed& claimed : Claim(1))
        ends.push_back(Ended(claimed, i == 3 ? State::dead : State::succeeded, Now()));
      collect();
      Exchange(ends, {});
      collect();
    }
    store_.reset();
    ASSERT_GE(pictures.size(), 5U);
    options_.crash_points = nullptr;
    for (std::size_t p = 0; p < pictures.size(); ++p) {
      SCOPED_TRACE("picture " + std::to_string(p));
      store_.reset();
      place_ = std::move(pictures[p]);
      Open();
      ExpectLawful();
      for (std::size_t i = 0; i < answered_before[p]; ++i) {
        EXPECT_EQ(Get(static_cast<EventId>(i + 1)).key, "evt_" + std::to_string(i));
      }
      // What was running is rescued; then everything can be worked off, and each key once.
      ASSERT_TRUE(store_->ExpireAllLeases(Now()));
      const std::vector<RunContext> expired = *store_->ExpiredLeases(Now(), 100);
      for (const RunContext& run : expired) {
        Claimed claimed;
        claimed.run = run;
        EXPECT_EQ(Apply(Ended(claimed, State::waiting, Now())), ApplyStatus::applied);
      }
      clock_.Advance(seconds(5));
      for (std::vector<Claimed> some = Claim(); !some.empty(); some = Claim()) {
        for (const Claimed& claimed : some) Apply(Ended(claimed, State::succeeded, Now()));
      }
      EXPECT_EQ(CountIn(State::waiting) + CountIn(State::running), 0);
      const Result<Figures> figures = store_->Read();
      EXPECT_EQ(CountIn(State::succeeded) + CountIn(State::dead), figures->receipts);
      for (std::int64_t i = 0; i < figures->receipts; ++i) {
        EXPECT_EQ(Accept(MakeReceipt("evt_" + std::to_string(i), i % 2 == 0 ? "even" : "odd")).status,
                  AcceptStatus::duplicate);
      }
    }
    store_.reset();
  }
}

TEST_P(RecoveryTest, KilledBetweenCallsTheSameEventsAreClaimable) {
  Accept({MakeReceipt("a", "s"), MakeReceipt("b", "s"), MakeReceipt("c")});
  Apply(Ended(ClaimOne(), State::waiting, Now()));
  std::unique_ptr<StorePlace> left = place_->AsIfKilledNow();
  store_.reset();
  place_ = std::move(left);
  Open();
  EXPECT_THAT(Ids(Claim()), ElementsAre(3));
  clock_.Advance(seconds(5));
  EXPECT_THAT(Ids(Claim()), ElementsAre(1));
}

TEST_P(RecoveryTest, ASecondOpeningIsRefusedWhileTheFirstLives) {
  const Result<std::unique_ptr<Store>> second = place_->Open(clock_, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().kind, ErrorKind::conflict);
  EXPECT_EQ(second.error().code, "locked");
  EXPECT_EQ(Accept(MakeReceipt("a")).status, AcceptStatus::stored) << "the first goes on";
  store_->Close();
  Reopen();  // fails if closing did not release the lock
  EXPECT_EQ(Get(1).key, "a");
}

TEST_P(RecoveryTest, ReopenedManyTimesItTakesNothingInTwice) {
  for (int i = 0; i < 5; ++i) {
    Accept(MakeReceipt("evt_" + std::to_string(i)));
    Accept(MakeReceipt("evt_0"));
    Reopen();
    ExpectLawful();
  }
  EXPECT_EQ(CountIn(State::waiting), 5);
  EXPECT_EQ(Get(1).deliveries, 6);
}

}  // namespace
}  // namespace dlo::store::contract
