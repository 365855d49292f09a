#include "dispatch/decide.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "model/fingerprint.h"
#include "store/embedded/filter_sql.h"

namespace dlo::dispatch {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr Time kNow = Time(seconds(1'800'000'000));
const std::vector<Duration> kRetry = {seconds(5), seconds(30), seconds(120), seconds(600), seconds(1800)};

Outcome Of(OutcomeKind kind) {
  Outcome o;
  o.kind = kind;
  o.code = "code";
  o.message = "No such subscription: sub_1N";
  return o;
}

RunContext Live(int tries, int crashes = 0) {
  RunContext run;
  run.id = 7;
  run.token = 3;
  run.kind = "invoice.paid";
  run.attempt = run.tries = tries;
  run.crashes = crashes;
  return run;
}

RunContext Replay(int tries, int replays_failed, int crashes = 0) {
  RunContext run = Live(tries, crashes);
  run.attempt = 6 + tries;
  run.replaying = true;
  run.replay_id = 2;
  run.replays_failed = replays_failed;
  return run;
}

// What does not depend on waits: one row per boundary of budget, caps and kinds.
struct Row {
  const char* name;
  OutcomeKind kind;
  RunContext run;
  std::size_t retries;  // how many of kRetry
  State to;
  FailureClass failure_class;
  ReplayResult result;
  int crashes;
  int replays_failed;
};

constexpr auto kNone = FailureClass::none;
constexpr auto kNoResult = ReplayResult::none;
using enum OutcomeKind;

const Row kRows[] = {
    {"live applied", applied, Live(1), 5, State::succeeded, kNone, kNoResult, 0, 0},
    {"live applied at the last try", applied, Live(6), 5, State::succeeded, kNone, kNoResult, 0, 0},
    {"live applied after crashes", applied, Live(3, 2), 5, State::succeeded, kNone, kNoResult, 2, 0},
    {"live already applied", already_applied, Live(1), 5, State::succeeded, kNone, kNoResult, 0, 0},
    {"live not applicable", not_applicable, Live(1), 5, State::resolved, kNone, kNoResult, 0, 0},
    {"live gone is permanent", gone, Live(1), 5, State::dead, FailureClass::permanent, kNoResult, 0, 0},
    {"live permanent, first try", permanent, Live(1), 5, State::dead, FailureClass::permanent, kNoResult, 0, 0},
    {"live permanent, later try", permanent, Live(4), 5, State::dead, FailureClass::permanent, kNoResult, 0, 0},
    {"live permanent past the budget", permanent, Live(9), 5, State::dead, FailureClass::permanent, kNoResult, 0, 0},
    {"live corrupt", corrupt, Live(1), 5, State::dead, FailureClass::corrupt, kNoResult, 0, 0},

    {"budget 6: first try", retryable, Live(1), 5, State::waiting, kNone, kNoResult, 0, 0},
    {"budget 6: try 5", retryable, Live(5), 5, State::waiting, kNone, kNoResult, 0, 0},
    {"budget 6: try 6", retryable, Live(6), 5, State::dead, FailureClass::exhausted, kNoResult, 0, 0},
    {"budget 6: try 7", retryable, Live(7), 5, State::dead, FailureClass::exhausted, kNoResult, 0, 0},
    {"budget 1: first try", retryable, Live(1), 0, State::dead, FailureClass::exhausted, kNoResult, 0, 0},
    {"budget 2: first try", retryable, Live(1), 1, State::waiting, kNone, kNoResult, 0, 0},
    {"budget 2: second try", retryable, Live(2), 1, State::dead, FailureClass::exhausted, kNoResult, 0, 0},

    {"first crash", crashed, Live(1, 0), 5, State::waiting, kNone, kNoResult, 1, 0},
    {"second crash", crashed, Live(2, 1), 5, State::waiting, kNone, kNoResult, 2, 0},
    {"third crash", crashed, Live(3, 2), 5, State::dead, FailureClass::crashed, kNoResult, 3, 0},
    {"fourth crash", crashed, Live(4, 3), 5, State::dead, FailureClass::crashed, kNoResult, 4, 0},
    {"third crash at the end of the budget", crashed, Live(6, 2), 5, State::dead, FailureClass::crashed, kNoResult, 3,
     0},
    {"second crash at the end of the budget", crashed, Live(6, 1), 5, State::dead, FailureClass::exhausted, kNoResult,
     2, 0},
    {"first crash, budget 1", crashed, Live(1, 0), 0, State::dead, FailureClass::exhausted, kNoResult, 1, 0},
    {"a retryable failure keeps the crashes", retryable, Live(3, 2), 5, State::waiting, kNone, kNoResult, 2, 0},

    {"replay applied", applied, Replay(1, 4), 5, State::replayed, kNone, ReplayResult::committed, 0, 4},
    {"replay already applied", already_applied, Replay(1, 0), 5, State::replayed, kNone, ReplayResult::already_applied,
     0, 0},
    {"replay not applicable", not_applicable, Replay(1, 0), 5, State::resolved, kNone, ReplayResult::resolved, 0, 0},
    {"replay gone is a terminal skip", gone, Replay(1, 4), 5, State::replayed, kNone, ReplayResult::skipped_gone, 0, 4},
    {"replay retries with the full budget", retryable, Replay(5, 0), 5, State::waiting, kNone, kNoResult, 0, 0},
    {"replay at the cap still retries", retryable, Replay(5, 5), 5, State::waiting, kNone, kNoResult, 0, 5},
    {"replay exhausted", retryable, Replay(6, 0), 5, State::dead, FailureClass::exhausted, ReplayResult::dead_again, 0,
     1},
    {"replay permanent", permanent, Replay(1, 0), 5, State::dead, FailureClass::permanent, ReplayResult::dead_again, 0,
     1},
    {"replay crashed", crashed, Replay(3, 0, 2), 5, State::dead, FailureClass::crashed, ReplayResult::dead_again, 3, 1},
    {"replay crashed once", crashed, Replay(1, 4), 5, State::waiting, kNone, kNoResult, 1, 4},
    {"replay corrupt", corrupt, Replay(1, 0), 5, State::dead, FailureClass::corrupt, ReplayResult::dead_again, 0, 1},

    {"fourth failed replay", retryable, Replay(6, 3), 5, State::dead, FailureClass::exhausted, ReplayResult::dead_again,
     0, 4},
    {"fifth failed replay", retryable, Replay(6, 4), 5, State::dead, FailureClass::poison, ReplayResult::dead_again, 0,
     5},
    {"sixth failed replay", retryable, Replay(6, 5), 5, State::dead, FailureClass::poison, ReplayResult::dead_again, 0,
     6},
    {"fourth failed replay, permanent", permanent, Replay(1, 3), 5, State::dead, FailureClass::permanent,
     ReplayResult::dead_again, 0, 4},
    {"fifth failed replay, permanent", permanent, Replay(1, 4), 5, State::dead, FailureClass::poison,
     ReplayResult::dead_again, 0, 5},
    {"fifth failed replay, crashed", crashed, Replay(3, 4, 2), 5, State::dead, FailureClass::poison,
     ReplayResult::dead_again, 3, 5},
    {"fifth failed replay, corrupt stays corrupt", corrupt, Replay(1, 4), 5, State::dead, FailureClass::corrupt,
     ReplayResult::dead_again, 0, 5},
    {"six live attempts are not poison", retryable, Live(6), 5, State::dead, FailureClass::exhausted, kNoResult, 0, 0},
};

TEST(Decide, EveryBoundary) {
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    for (const OnPark on_park : {OnPark::release, OnPark::hold}) {
      const Policy policy{{kRetry.begin(), kRetry.begin() + static_cast<std::ptrdiff_t>(row.retries)}, 0.5, on_park};
      const Transition t = Decide(Of(row.kind), policy, row.run, kNow, 0.5);
      EXPECT_EQ(t.id, 7);
      EXPECT_EQ(t.token, 3);
      EXPECT_EQ(t.to, row.to);
      EXPECT_EQ(t.failure_class, row.failure_class);
      EXPECT_EQ(t.replay_result, row.result);
      EXPECT_EQ(t.crashes, row.crashes);
      EXPECT_EQ(t.replays_failed, row.replays_failed);
      EXPECT_EQ(t.due_at.has_value(), row.to == State::waiting);
      EXPECT_EQ(t.resolve_code.has_value(), row.to == State::resolved);
      EXPECT_EQ(t.keep_lane, on_park == OnPark::hold && row.to == State::dead);
      EXPECT_EQ(t.at, kNow);
      EXPECT_EQ(t.outcome.kind, row.kind);
      EXPECT_EQ(t.outcome.message, "No such subscription: sub_1N");
      const bool failed = row.to == State::dead || row.to == State::waiting;
      EXPECT_EQ(t.fingerprint.empty(), !failed);
    }
  }
}

TEST(Decide, ResolvedByTheHandlerHasCodeOther) {
  EXPECT_EQ(Decide(Outcome::NotApplicable("test account"), {kRetry}, Live(1), kNow, 0).resolve_code,
            ResolveCode::other);
}

struct WaitRow {
  const char* name;
  int tries;
  double jitter;
  double unit;
  std::optional<Duration> retry_after;
  Duration wait;
};

const WaitRow kWaits[] = {
    {"first wait, middle of the jitter", 1, 0.5, 0.5, {}, seconds(5)},
    {"second", 2, 0.5, 0.5, {}, seconds(30)},
    {"third", 3, 0.5, 0.5, {}, seconds(120)},
    {"fourth", 4, 0.5, 0.5, {}, seconds(600)},
    {"fifth", 5, 0.5, 0.5, {}, seconds(1800)},
    {"shortest draw", 2, 0.5, 0.0, {}, seconds(15)},
    {"longest draw stays below 1.5", 2, 0.5, 1.0, {}, seconds(45)},
    {"no jitter", 2, 0.0, 0.9, {}, seconds(30)},
    {"full jitter may be no wait", 2, 1.0, 0.0, {}, seconds(0)},
    {"a jitter out of range is cut", 2, 7.0, 0.0, {}, seconds(0)},
    {"Retry-After below the wait changes nothing", 2, 0.0, 0.5, seconds(29), seconds(30)},
    {"Retry-After equal to the wait", 2, 0.0, 0.5, seconds(30), seconds(30)},
    {"Retry-After above the wait is the floor", 2, 0.0, 0.5, seconds(31), seconds(31)},
    {"the jitter never goes below the floor", 2, 0.5, 0.0, seconds(20), seconds(20)},
    {"zero Retry-After", 1, 0.0, 0.5, seconds(0), seconds(5)},
    {"negative Retry-After", 1, 0.0, 0.5, seconds(-100), seconds(5)},
    {"Retry-After at the cap", 1, 0.0, 0.5, hours(1), hours(1)},
    {"Retry-After above the cap", 1, 0.0, 0.5, hours(1) + seconds(1), hours(1)},
    {"huge Retry-After", 1, 0.0, 0.5, Duration::max(), hours(1)},
    {"most negative Retry-After", 1, 0.0, 0.5, Duration::min(), seconds(5)},
};

TEST(Decide, Waits) {
  for (const WaitRow& row : kWaits) {
    SCOPED_TRACE(row.name);
    Outcome outcome = Of(retryable);
    outcome.retry_after = row.retry_after;
    const Transition t = Decide(outcome, {kRetry, row.jitter, OnPark::release}, Live(row.tries), kNow, row.unit);
    ASSERT_TRUE(t.due_at.has_value());
    EXPECT_EQ(*t.due_at - kNow, row.wait);
  }
}

TEST(Decide, ACrashWaitsAsAnyRetryableFailure) {
  const Transition t = Decide(Of(crashed), {kRetry, 0.5, OnPark::release}, Live(2, 1), kNow, 0.5);
  EXPECT_EQ(t.due_at, kNow + seconds(30));
}

TEST(Decide, ARetryAfterIsAFloorUpToTheTargetsOwnLimit) {
  Outcome outcome = Of(retryable);
  outcome.retry_after = hours(5);
  for (const Duration most : {Duration(0), Duration(std::chrono::seconds(90)), Duration(hours(2))}) {
    const Policy policy{{std::chrono::seconds(5)}, 0, OnPark::release, most};
    EXPECT_EQ(Decide(outcome, policy, Live(1), kNow, 0).due_at,
              kNow + std::max<Duration>(std::chrono::seconds(5), most));
  }
}

TEST(Decide, OddConfiguredWaitsDoNotOverflow) {
  for (const Duration wait : {Duration::max(), Duration::min(), Duration(0)}) {
    const Transition t = Decide(Of(retryable), {{wait}, 1.0, OnPark::release}, Live(1), kNow, 0.999);
    ASSERT_TRUE(t.due_at.has_value());
    EXPECT_GE(*t.due_at, kNow);
    EXPECT_LE(*t.due_at, kNow + hours(24 * 366 * 2));
  }
}

TEST(Decide, ALetterKeepsItsFingerprintWhenItDiesAndWhenItBecomesPoison) {
  const Policy policy{kRetry};
  const std::string first = Decide(Of(retryable), policy, Live(1), kNow, 0).fingerprint;
  EXPECT_EQ(first, Fingerprint(FailureClass::exhausted, "code", "No such subscription: sub_2M", "invoice.paid"));
  EXPECT_EQ(first, Decide(Of(retryable), policy, Live(6), kNow, 0).fingerprint);
  EXPECT_EQ(first, Decide(Of(retryable), policy, Replay(6, 4), kNow, 0).fingerprint);
  EXPECT_NE(first, Decide(Of(permanent), policy, Live(1), kNow, 0).fingerprint);
  EXPECT_EQ(Decide(Of(crashed), policy, Live(1), kNow, 0).fingerprint,
            Decide(Of(crashed), policy, Live(3, 2), kNow, 0).fingerprint);
}

// The store may not include dispatch, so its selection for replays has the cap as a number of its own.
TEST(Decide, TheStoreSelectsForReplayUpToTheSamePoisonCap) {
  EXPECT_EQ(store::kMaxFailedReplays, kPoisonCap);
}

}  // namespace
}  // namespace dlo::dispatch
