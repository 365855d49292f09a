// The cost of claims and results does not grow with what waits: counted in steps of SQLite's machine, not in time.
#include <gtest/gtest.h>

#include "base/time_text.h"
#include "env/clock.h"
#include "store/embedded/index_queue.h"
#include "store/embedded/lanes.h"
#include "store/embedded/schema.h"

namespace dlo::store {
namespace {

const Time kNow = FromMicros(1'764'504'000'000'000);
constexpr int kOthers = 10;
constexpr int kBacklog = 100'000;

/// An index with `backlog` events waiting behind one retrying subject, as many dead letters, and ten events of other
/// subjects, which are the youngest.
class Office {
 public:
  explicit Office(int backlog) {
    db_ = OrThrow(Db::Open(":memory:", Db::Mode::writer));
    OrThrow(Migrate(*db_, kNow));
    source_ = OrThrow(names_.Id(*db_, "stripe"));
    OrThrow(db_->Exec("BEGIN"));
    const std::int64_t stuck = *LaneOf("stripe", "stuck");
    Insert(1, backlog, "0", std::to_string(ToMicros(kNow) - 1), std::to_string(stuck), "(i.n > 1)");
    if (backlog > 0) {
      // The first of them is due before everything else, and retries later.
      OrThrow(db_->Exec("UPDATE events SET due_at = due_at + 3600000000 WHERE id = 1"));
    }
    Insert(kBacklog + 1, backlog, "3", "NULL", "NULL", "0");
    for (int i = 0; i < kOthers; ++i) {
      auto receipt = std::make_shared<Receipt>();
      receipt->id = 3 * kBacklog + i;
      receipt->source = "stripe";
      receipt->subject = "other_" + std::to_string(i);
      const std::int64_t lane = *LaneOf("stripe", receipt->subject);
      Insert(receipt->id, 1, "0", std::to_string(ToMicros(kNow)), std::to_string(lane), "0");
      Insert(receipt->id + kOthers, 1, "0", std::to_string(ToMicros(kNow)), std::to_string(lane), "1");
      hot_.Keep(std::move(receipt));
    }
    OrThrow(db_->Exec("COMMIT"));
    OrThrow(lanes_.Load(*db_));
  }

  /// Claims everything that is due, then ends it; returns the steps that each took.
  std::pair<std::int64_t, std::int64_t> ClaimAndEnd() {
    IndexContext context{*db_, counts_, names_, lanes_, clock_};
    (void)Steps();
    std::vector<Claimed> claimed;
    OrThrow(ClaimDue(context, hot_, {"stripe", "billing", 100}, {"worker"}, kNow, claimed));
    EXPECT_EQ(claimed.size(), static_cast<std::size_t>(kOthers));
    const std::int64_t claim = Steps();
    for (const Claimed& one : claimed) {
      Transition t;
      t.id = one.run.id;
      t.token = one.run.token;
      t.to = State::succeeded;
      t.at = kNow;
      EXPECT_EQ(OrThrow(ApplyTransition(context, hot_, t)), ApplyStatus::applied);
    }
    return {claim, Steps()};
  }

  /// The stuck subject's first event ends and frees the next.
  std::int64_t EndStuck() {
    IndexContext context{*db_, counts_, names_, lanes_, clock_};
    OrThrow(db_->Exec("UPDATE events SET state = 1, due_at = NULL, lease_until = 5, token = 1 WHERE id = 1"));
    (void)Steps();
    Transition t;
    t.id = 1;
    t.token = 1;
    t.to = State::succeeded;
    t.at = kNow;
    EXPECT_EQ(OrThrow(ApplyTransition(context, hot_, t)), ApplyStatus::applied);
    return Steps();
  }

  /// What no code of ours writes: the second of a subject is free too.
  std::vector<EventId> ClaimWithASecondFreeOne() {
    IndexContext context{*db_, counts_, names_, lanes_, clock_};
    const EventId second = 3 * kBacklog + kOthers;
    OrThrow(db_->Exec("UPDATE events SET behind = 0, due_at = due_at - 1 WHERE id = " + std::to_string(second)));
    std::vector<Claimed> claimed;
    OrThrow(ClaimDue(context, hot_, {"stripe", "billing", 100}, {"worker"}, kNow, claimed));
    std::vector<EventId> ids;
    for (const Claimed& one : claimed) ids.push_back(one.run.id);
    EXPECT_EQ(ids.size(), static_cast<std::size_t>(kOthers));
    EXPECT_EQ(std::ranges::count(ids, second), 0);
    return ids;
  }

 private:
  void Insert(std::int64_t first, int n, const std::string& state, const std::string& due, const std::string& lane,
              const std::string& behind) {
    OrThrow(
        db_->Exec("WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < " + std::to_string(n) +
                  ") INSERT INTO events (id, source, received_at, state, class, due_at, lane, behind, letter) SELECT " +
                  std::to_string(first - 1) + " + n, " + std::to_string(source_) + ", 0, " + state + ", CASE " + state +
                  " WHEN 3 THEN 2 ELSE 0 END, " + due + ", " + lane + ", " + behind + ", CASE " + state +
                  " WHEN 3 THEN 3 END FROM i WHERE " + std::to_string(n) + " > 0"));
  }

  /// Steps of all statements since the last call.
  std::int64_t Steps() {
    std::int64_t steps = 0;
    for (sqlite3_stmt* s = sqlite3_next_stmt(db_->handle(), nullptr); s != nullptr;
         s = sqlite3_next_stmt(db_->handle(), s)) {
      steps += sqlite3_stmt_status(s, SQLITE_STMTSTATUS_VM_STEP, 1);
    }
    return steps;
  }

  ManualClock clock_{kNow};
  HotCache hot_{std::size_t{1} << 20};
  Counts counts_;
  Names names_;
  Lanes lanes_;
  std::unique_ptr<Db> db_;
  std::int64_t source_ = 0;
};

TEST(LanesCostTest, ASecondFreeEventOfASubjectIsPutBehindAndNotClaimed) {
  EXPECT_FALSE(Office(0).ClaimWithASecondFreeOne().empty());
}

TEST(LanesCostTest, AHundredThousandWaitingBehindOneSubjectCostTheOthersNothing) {
  const auto [claim_empty, end_empty] = Office(0).ClaimAndEnd();
  Office full(kBacklog);
  const auto [claim_full, end_full] = full.ClaimAndEnd();
  ASSERT_GT(claim_empty, 0);
  ASSERT_GT(end_empty, 0);
  // The last look of the claim finds one event more, which is not due.
  EXPECT_LE(claim_full, claim_empty + 20);
  EXPECT_LE(end_full, end_empty + 20);
  EXPECT_LT(full.EndStuck(), 1'000) << "the first of a long lane ends as cheaply";
}

}  // namespace
}  // namespace dlo::store
