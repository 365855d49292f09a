#include <gmock/gmock.h>

#include <algorithm>
#include <map>

#include "contract/fixture.h"
#include "env/random.h"

namespace dlo::store::contract {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

class LanesTest : public StoreTest {};
DLO_FOR_EACH_STORE(LanesTest);

Result<Letter> Replay(Store& store, EventId id, Time now) {
  const TriageAct replay{.id = id, .act = Act::replay};
  return store.Triage(std::span(&replay, 1), {"ada", "operator", "test"}, now)->at(0);
}

TEST_P(LanesTest, EventsOfOneSubjectGoOneByOneInReceiptOrder) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1"), MakeReceipt("c", "sub_1"), MakeReceipt("d", "sub_2")});
  EXPECT_TRUE(Get(2).behind);
  for (const EventId expected : {1, 2, 3}) {
    const std::vector<Claimed> claimed = Claim();
    ASSERT_FALSE(claimed.empty());
    EXPECT_EQ(claimed[0].run.id, expected);
    EXPECT_EQ(claimed.size(), expected == 1 ? 2U : 1U) << "the other subject goes at once";
    ExpectLawful();
    EXPECT_THAT(Claim(), IsEmpty());
    Apply(Ended(claimed[0], State::succeeded, Now()));
  }
}

TEST_P(LanesTest, EventsWithoutSubjectHaveNoOrder) {
  Accept({MakeReceipt("a"), MakeReceipt("b"), MakeReceipt("c")});
  EXPECT_THAT(Ids(Claim()), ElementsAre(1, 2, 3));
}

TEST_P(LanesTest, TheSameSubjectAtTwoSourcesIsTwoLanes) {
  Accept(MakeReceipt("a", "sub_1", "stripe"));
  Accept(MakeReceipt("a", "sub_1", "github"));
  EXPECT_THAT(Ids(Claim(9, "stripe")), ElementsAre(1));
  EXPECT_THAT(Ids(Claim(9, "github")), ElementsAre(2));
}

TEST_P(LanesTest, FollowersWaitWhileTheFirstRetries) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1")});
  Apply(Ended(ClaimOne(), State::waiting, Now()));
  EXPECT_THAT(Claim(), IsEmpty());
  Accept(MakeReceipt("c", "sub_1"));
  Reopen();
  EXPECT_THAT(Claim(), IsEmpty());
  clock_.Advance(seconds(5));
  EXPECT_THAT(Ids(Claim()), ElementsAre(1));
}

TEST_P(LanesTest, ParkingReleasesOrHoldsTheSubjectAsItsSourceSays) {
  for (const bool hold : {false, true}) {
    SCOPED_TRACE(hold ? "hold" : "release");
    const std::string subject = hold ? "sub_hold" : "sub_release";
    const Accepted first = Accept(MakeReceipt(subject + "1", subject));
    const Accepted second = Accept(MakeReceipt(subject + "2", subject));
    Transition dead = Ended(ClaimOne(), State::dead, Now());
    dead.keep_lane = hold;
    Apply(dead);
    EXPECT_EQ(Get(second.id).behind, hold);
    const Accepted third = Accept(MakeReceipt(subject + "3", subject));
    EXPECT_TRUE(Get(third.id).behind);
    const std::vector<Claimed> claimed = Claim();
    if (!hold) {
      EXPECT_THAT(Ids(claimed), ElementsAre(second.id));
      Apply(Ended(claimed[0], State::succeeded, Now()));
      Apply(Ended(ClaimOne(), State::succeeded, Now()));
      continue;
    }
    EXPECT_THAT(claimed, IsEmpty());
    EXPECT_EQ(Get(first.id).events_behind, 2);
    ASSERT_TRUE(Replay(*store_, first.id, Now()));
    for (const EventId expected : {first.id, second.id, third.id}) {
      const Claimed next = ClaimOne();
      EXPECT_EQ(next.run.id, expected);
      Apply(Ended(next, next.run.replaying ? State::replayed : State::succeeded, Now()));
    }
  }
}

TEST_P(LanesTest, AHoldingLetterWithTooManyBehindItLetsThemGo) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1"), MakeReceipt("c", "sub_1")});
  Transition dead = Ended(ClaimOne(), State::dead, Now());
  dead.keep_lane = true;
  Apply(dead);
  const Actor system{"system", "admin", "limits"};
  const Time long_ago = Now() - seconds(1);
  EXPECT_THAT(*store_->ReleaseLanes("stripe", 2, long_ago, system, Now()), IsEmpty());
  EXPECT_THAT(Claim(), IsEmpty());
  EXPECT_THAT(*store_->ReleaseLanes("stripe", 1, long_ago, system, Now()), ElementsAre(1));
  EXPECT_EQ(Get(1).state, State::dead);
  EXPECT_THAT(Ids(Claim()), ElementsAre(2));
}

TEST_P(LanesTest, AnInvalidEventOfAHoldingSourceHoldsItsSubject) {
  options_.holds_lane = [](const std::string& source) { return source == "stripe"; };
  Reopen();
  Receipt invalid = MakeReceipt("a", "sub_1");
  invalid.disposition = Disposition::invalid;
  Accept(invalid);
  Accept(MakeReceipt("b", "sub_1"));
  EXPECT_THAT(Claim(), IsEmpty());
}

TEST_P(LanesTest, AnOlderEventThatIsReplayedGoesBeforeThoseThatWait) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1"), MakeReceipt("c", "sub_1")});
  Apply(Ended(ClaimOne(), State::dead, Now()));
  EXPECT_FALSE(Get(2).behind);
  ASSERT_TRUE(Replay(*store_, 1, Now()));
  EXPECT_TRUE(Get(2).behind);
  EXPECT_THAT(Ids(Claim()), ElementsAre(1));
}

TEST_P(LanesTest, AnOlderEventThatIsReplayedWaitsForTheOneThatRuns) {
  Accept({MakeReceipt("a", "sub_1"), MakeReceipt("b", "sub_1"), MakeReceipt("c", "sub_1")});
  Apply(Ended(ClaimOne(), State::dead, Now()));
  const Claimed running = ClaimOne();
  EXPECT_EQ(running.run.id, 2);
  ASSERT_TRUE(Replay(*store_, 1, Now()));
  EXPECT_TRUE(Get(1).behind);
  EXPECT_THAT(Claim(), IsEmpty());
  ExpectLawful();
  // The younger one retries: now the older is first.
  Apply(Ended(running, State::waiting, Now()));
  clock_.Advance(seconds(5));
  EXPECT_THAT(Ids(Claim()), ElementsAre(1));
}

/// What the laws of lanes say, in the plainest words: at any moment the claimable of a lane is its first open event, if
/// it waits and nothing of the lane runs.
struct Model {
  struct Event {
    std::string subject;
    State state = State::waiting;
    Time due{};
    bool holds = false;  // dead, and its followers wait
    bool replaying = false;
  };
  std::map<EventId, Event> events;

  [[nodiscard]] static bool Open(const Event& e) {
    return e.state == State::waiting || e.state == State::running || (e.state == State::dead && e.holds);
  }

  [[nodiscard]] std::vector<EventId> Claimable(Time now) const {
    std::vector<EventId> ids;
    std::map<std::string, EventId> first;
    std::map<std::string, bool> runs;
    for (const auto& [id, e] : events) {
      if (!Open(e)) continue;
      first.try_emplace(e.subject, id);
      if (e.state == State::running) runs[e.subject] = true;
    }
    for (const auto& [id, e] : events) {
      if (e.state != State::waiting || e.due > now) continue;
      if (e.subject.empty() || (first.at(e.subject) == id && !runs[e.subject])) ids.push_back(id);
    }
    return ids;
  }
};

class RandomRun {
 public:
  RandomRun(std::uint64_t seed, ManualClock& clock) : random_(seed), clock_(clock) {}

  std::size_t Pick(std::size_t n) { return static_cast<std::size_t>(random_.Next() % n); }

  Transition End(const Claimed& claimed) {
    static constexpr State kLive[] = {State::succeeded, State::succeeded, State::waiting, State::dead, State::resolved};
    static constexpr State kReplay[] = {State::replayed, State::waiting, State::dead};
    const State to = claimed.run.replaying ? kReplay[Pick(3)] : kLive[Pick(5)];
    Transition t = Ended(claimed, to, clock_.Now());
    t.keep_lane = to == State::dead && Pick(2) == 0;
    Model::Event& e = model.events.at(claimed.run.id);
    e.state = to;
    e.holds = t.keep_lane;
    if (t.due_at) e.due = *t.due_at;
    if (to != State::waiting) e.replaying = false;
    return t;
  }

  Model model;
  std::vector<Claimed> running;

 private:
  SeededRandom random_;
  ManualClock& clock_;
};

TEST_P(LanesTest, HoldUnderRandomOperations) {
  const std::vector<std::string> subjects = {"", "s1", "s2", "s3"};
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    store_.reset();
    place_ = GetParam().make();
    Open();
    RandomRun run(seed, clock_);
    int key = 0;
    for (int step = 0; step < 150; ++step) {
      SCOPED_TRACE("step " + std::to_string(step));
      const std::size_t what = run.Pick(12);
      if (what < 4) {
        const std::string subject = subjects[run.Pick(subjects.size())];
        Receipt receipt = MakeReceipt("k" + std::to_string(key++), subject);
        receipt.received_at = Now();
        const Accepted accepted = Accept(receipt);
        run.model.events[accepted.id] = {.subject = subject, .due = Now()};
      } else if (what < 7) {
        std::vector<EventId> expected = run.model.Claimable(Now());
        std::vector<Claimed> claimed = Claim(1000);
        std::vector<EventId> ids = Ids(claimed);
        std::sort(ids.begin(), ids.end());
        ASSERT_EQ(ids, expected);
        for (Claimed& one : claimed) {
          run.model.events.at(one.run.id).state = State::running;
          run.running.push_back(std::move(one));
        }
      } else if (what < 10 && !run.running.empty()) {
        const auto which = run.running.begin() + static_cast<std::ptrdiff_t>(run.Pick(run.running.size()));
        if (run.Pick(6) == 0) {
          const LeaseRef lease{which->run.id, which->run.token};
          ASSERT_EQ(store_->HandBack(std::span(&lease, 1), Now()), 1);
          run.model.events.at(which->run.id).state = State::waiting;
          run.model.events.at(which->run.id).due = Now();
        } else {
          ASSERT_EQ(Apply(run.End(*which)), ApplyStatus::applied);
        }
        run.running.erase(which);
      } else if (what == 10) {
        std::vector<EventId> dead;
        for (const auto& [id, e] : run.model.events) {
          if (e.state == State::dead) dead.push_back(id);
        }
        if (dead.empty()) continue;
        const EventId id = dead[run.Pick(dead.size())];
        ASSERT_TRUE(Replay(*store_, id, Now()));
        Model::Event& e = run.model.events.at(id);
        e = {.subject = e.subject, .due = Now(), .replaying = true};
      } else {
        clock_.Advance(seconds(run.Pick(4)));
        if (run.Pick(4) == 0) Reopen();
      }
      ASSERT_EQ(place_->BrokenLaws(), std::vector<std::string>());
    }
    for (const auto& [id, e] : run.model.events) ASSERT_EQ(Get(id).state, e.state) << "event " << id;
    ExpectLawful();
  }
}

}  // namespace
}  // namespace dlo::store::contract
