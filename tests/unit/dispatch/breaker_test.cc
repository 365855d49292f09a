#include "dispatch/breaker.h"

#include <gtest/gtest.h>

#include "dispatch/systemic.h"

namespace dlo::dispatch {
namespace {

using std::chrono::minutes;
using std::chrono::seconds;

constexpr Time kStart = Time(seconds(1'800'000'000));
constexpr double kMiddle = 0.5;  // jitter of exactly 1

void Fail(Breaker& breaker, int times, Time now = kStart) {
  for (int i = 0; i < times; ++i) breaker.Ended(false, true, now, kMiddle);
}
void Succeed(Breaker& breaker, int times) {
  for (int i = 0; i < times; ++i) breaker.Ended(false, false, kStart, kMiddle);
}

TEST(Breaker, OpensAtTheTenthFailureInARow) {
  Breaker breaker;
  Fail(breaker, 9);
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
  EXPECT_EQ(breaker.Permits(kStart), Breaker::kUnlimited);
  Fail(breaker, 1);
  EXPECT_EQ(breaker.state(), Breaker::State::open);
  EXPECT_EQ(breaker.Permits(kStart), 0);
}

TEST(Breaker, OpensWhereItIsToldTo) {
  const BreakerLimits limits{.in_a_row = 3, .percent = 25, .first_open = seconds(2), .longest_open = seconds(5)};
  Breaker row(limits);
  Fail(row, 2);
  EXPECT_EQ(row.state(), Breaker::State::closed);
  Fail(row, 1);
  Time now = kStart;
  for (const auto expected : {seconds(2), seconds(4), seconds(5), seconds(5)}) {
    EXPECT_EQ(row.retry_at() - now, expected);
    now = row.retry_at();
    ASSERT_TRUE(row.Claimed(now));
    row.Ended(true, true, now, kMiddle);
  }
  now = row.retry_at();
  ASSERT_TRUE(row.Claimed(now));
  row.Ended(true, false, now, kMiddle);
  Fail(row, 3, now);
  EXPECT_EQ(row.retry_at() - now, seconds(2)) << "its limits outlive a success";

  Breaker share(limits);
  Succeed(share, 15);
  for (int i = 0; i < 2; ++i) {
    Fail(share, 2);
    EXPECT_EQ(share.state(), Breaker::State::closed) << "4 of 20";
    Succeed(share, 1);
  }
  Fail(share, 1);
  EXPECT_EQ(share.state(), Breaker::State::open) << "5 of 20";
}

TEST(Breaker, ASuccessBeginsTheRowAnew) {
  Breaker breaker;
  Fail(breaker, 9);
  Succeed(breaker, 1);
  Fail(breaker, 9);
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
}

TEST(Breaker, OpensAtHalfOfTwentyAndNotBefore) {
  Breaker nine;
  for (int i = 0; i < 11; ++i) Succeed(nine, 1);
  for (int i = 0; i < 9; ++i) Fail(nine, 1);
  EXPECT_EQ(nine.state(), Breaker::State::closed) << "9 of 20";

  Breaker ten;
  for (int i = 0; i < 9; ++i) {
    Fail(ten, 1);
    Succeed(ten, 1);
  }
  Succeed(ten, 1);
  EXPECT_EQ(ten.state(), Breaker::State::closed) << "9 of 19";
  Fail(ten, 1);
  EXPECT_EQ(ten.state(), Breaker::State::open) << "10 of 20";
}

TEST(Breaker, OnlyTheLastTwentyCount) {
  Breaker breaker;
  Fail(breaker, 9);
  Succeed(breaker, 20);
  Fail(breaker, 9);
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
}

TEST(Breaker, OneProbeWhenItsTimeHasComeAndItsSuccessCloses) {
  Breaker breaker;
  Fail(breaker, 10);
  const Time at = kStart + seconds(30);
  EXPECT_EQ(breaker.retry_at(), at);
  EXPECT_EQ(breaker.Permits(at - Duration(1)), 0);
  EXPECT_FALSE(breaker.Claimed(at - Duration(1)));
  EXPECT_EQ(breaker.Permits(at), 1);
  EXPECT_TRUE(breaker.Claimed(at));
  EXPECT_EQ(breaker.state(), Breaker::State::half_open);
  EXPECT_EQ(breaker.Permits(at + minutes(10)), 0) << "one probe at a time";
  EXPECT_FALSE(breaker.Claimed(at));
  breaker.Ended(true, false, at, kMiddle);
  EXPECT_EQ(breaker.state(), Breaker::State::closed);
  Fail(breaker, 9, at);
  EXPECT_EQ(breaker.state(), Breaker::State::closed) << "old failures are forgotten";
}

TEST(Breaker, DoublesToFiveMinutesAndBeginsAnewAfterASuccess) {
  Breaker breaker;
  Fail(breaker, 10);
  Time now = kStart;
  for (const auto expected : {seconds(30), seconds(60), seconds(120), seconds(240), seconds(300), seconds(300)}) {
    EXPECT_EQ(breaker.retry_at() - now, expected);
    now = breaker.retry_at();
    ASSERT_TRUE(breaker.Claimed(now));
    EXPECT_TRUE(breaker.Ended(true, true, now, kMiddle));
  }
  now = breaker.retry_at();
  ASSERT_TRUE(breaker.Claimed(now));
  breaker.Ended(true, false, now, kMiddle);
  Fail(breaker, 10, now);
  EXPECT_EQ(breaker.retry_at() - now, seconds(30));
}

TEST(Breaker, JitterIsFromHalfToOneAndAHalf) {
  for (const auto& [unit, expected] : {std::pair(0.0, seconds(15)), {0.5, seconds(30)}, {1.0, seconds(45)}}) {
    Breaker breaker;
    for (int i = 0; i < 10; ++i) breaker.Ended(false, true, kStart, unit);
    EXPECT_EQ(breaker.retry_at() - kStart, expected);
  }
}

TEST(Breaker, AttemptsFromBeforeItOpenedChangeNothing) {
  Breaker breaker;
  Fail(breaker, 10);
  const Time retry_at = breaker.retry_at();
  Fail(breaker, 30, kStart + seconds(5));
  Succeed(breaker, 1);
  EXPECT_EQ(breaker.state(), Breaker::State::open);
  EXPECT_EQ(breaker.retry_at(), retry_at);
  ASSERT_TRUE(breaker.Claimed(retry_at));
  Fail(breaker, 5, retry_at);
  EXPECT_EQ(breaker.state(), Breaker::State::half_open) << "only the probe's word counts";
}

TEST(Breaker, AProbeThatWasNotAskedLetsAnotherGo) {
  Breaker breaker;
  Fail(breaker, 10);
  ASSERT_TRUE(breaker.Claimed(breaker.retry_at()));
  breaker.NotAsked(false);
  EXPECT_EQ(breaker.state(), Breaker::State::half_open);
  breaker.NotAsked(true);
  EXPECT_EQ(breaker.Permits(breaker.retry_at()), 1);
}

TEST(Breaker, AClockSetBackDoesNotKeepItOpen) {
  Breaker breaker;
  Fail(breaker, 10);
  EXPECT_EQ(breaker.Permits(kStart - std::chrono::hours(5)), 1);
}

TEST(Breaker, WhatCountsAsAFailureOfTheTarget) {
  const auto http = [](OutcomeKind kind, int status) {
    Outcome o;
    o.kind = kind;
    o.http_status = status;
    return o;
  };
  for (const int status : {0, 408, 425, 429, 500, 503, 599}) {
    EXPECT_TRUE(IsTargetFailure(http(OutcomeKind::retryable, status))) << status;
  }
  for (const int status : {200, 404, 409, 422}) {
    EXPECT_FALSE(IsTargetFailure(http(OutcomeKind::retryable, status)))
        << "the handler's word on one event: " << status;
  }
  for (const OutcomeKind kind :
       {OutcomeKind::applied, OutcomeKind::already_applied, OutcomeKind::not_applicable, OutcomeKind::permanent,
        OutcomeKind::gone, OutcomeKind::crashed, OutcomeKind::corrupt}) {
    EXPECT_FALSE(IsTargetFailure(http(kind, 0)));
    EXPECT_FALSE(IsTargetFailure(http(kind, 500)));
  }
}

// --- the systemic breaker of a source

Transition Ended(OutcomeKind kind, const std::string& fingerprint) {
  Transition t;
  t.outcome.kind = kind;
  t.outcome.message = "message of " + fingerprint;
  t.fingerprint = fingerprint;
  return t;
}

RunContext First() {
  return {};
}

Systemic::Verdict Feed(Systemic& systemic, int bad, int good, int other = 0) {
  auto last = Systemic::Verdict::nothing;
  for (int i = 0; i < good; ++i) last = systemic.Ended(First(), Ended(OutcomeKind::applied, ""), false, kStart);
  for (int i = 0; i < other; ++i) last = systemic.Ended(First(), Ended(OutcomeKind::permanent, "b"), false, kStart);
  for (int i = 0; i < bad; ++i) last = systemic.Ended(First(), Ended(OutcomeKind::permanent, "a"), false, kStart);
  return last;
}

TEST(Systemic, JudgesOnlyWhenItHasSeenFifty) {
  Systemic systemic;
  EXPECT_EQ(Feed(systemic, 49, 0), Systemic::Verdict::nothing);
  EXPECT_FALSE(systemic.paused());
  EXPECT_EQ(Feed(systemic, 1, 0), Systemic::Verdict::pause);
  EXPECT_TRUE(systemic.paused());
  EXPECT_EQ(systemic.fingerprint(), "a");
  EXPECT_EQ(systemic.message(), "message of a");
}

TEST(Systemic, FortyOfFiftyWithOneFingerprint) {
  Systemic low;
  EXPECT_EQ(Feed(low, 39, 11), Systemic::Verdict::nothing);
  Systemic at;
  EXPECT_EQ(Feed(at, 40, 10), Systemic::Verdict::pause);
  Systemic mixed;
  EXPECT_EQ(Feed(mixed, 39, 0, 11), Systemic::Verdict::nothing) << "all permanent, but of two causes";
  Systemic slides;
  Feed(slides, 39, 11);
  EXPECT_EQ(Feed(slides, 1, 0), Systemic::Verdict::pause) << "the oldest success left the window";
}

TEST(Systemic, TheFiftiethMayBeASuccess) {
  Systemic systemic;
  for (int i = 0; i < 40; ++i) (void)systemic.Ended(First(), Ended(OutcomeKind::permanent, "a"), false, kStart);
  for (int i = 0; i < 9; ++i) (void)systemic.Ended(First(), Ended(OutcomeKind::applied, ""), false, kStart);
  EXPECT_EQ(systemic.Ended(First(), Ended(OutcomeKind::applied, ""), false, kStart), Systemic::Verdict::pause);
  EXPECT_EQ(systemic.message(), "message of a");
}

TEST(Systemic, LooksAtFirstLiveAttemptsOnly) {
  Systemic systemic;
  RunContext second = First();
  second.attempt = 2;
  RunContext replay = First();
  replay.replaying = true;
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(systemic.Ended(second, Ended(OutcomeKind::permanent, "a"), false, kStart), Systemic::Verdict::nothing);
    EXPECT_EQ(systemic.Ended(replay, Ended(OutcomeKind::permanent, "a"), false, kStart), Systemic::Verdict::nothing);
  }
  for (int i = 0; i < 60; ++i) {
    EXPECT_EQ(systemic.Ended(First(), Ended(OutcomeKind::retryable, "a"), false, kStart), Systemic::Verdict::nothing)
        << "an outage is the other breaker's";
  }
}

TEST(Systemic, OneProbeAMinuteAndWhatItsEndSays) {
  Systemic systemic;
  Feed(systemic, 50, 0);
  EXPECT_FALSE(systemic.ProbeDue(kStart + minutes(1) - Duration(1)));
  EXPECT_TRUE(systemic.ProbeDue(kStart + minutes(1)));
  systemic.ProbeClaimed(kStart + minutes(1));
  EXPECT_FALSE(systemic.ProbeDue(kStart + minutes(9))) << "one at a time";
  const auto probe = [&](OutcomeKind kind, const char* fingerprint) {
    return systemic.Ended(First(), Ended(kind, fingerprint), true, kStart + minutes(1));
  };
  EXPECT_EQ(probe(OutcomeKind::permanent, "a"), Systemic::Verdict::nothing);
  EXPECT_FALSE(systemic.ProbeDue(kStart + minutes(2) - Duration(1)));
  EXPECT_TRUE(systemic.ProbeDue(kStart + minutes(2)));
  EXPECT_EQ(probe(OutcomeKind::retryable, "c"), Systemic::Verdict::nothing) << "not judged by the handler";
  EXPECT_EQ(probe(OutcomeKind::crashed, "c"), Systemic::Verdict::nothing);
  EXPECT_EQ(probe(OutcomeKind::corrupt, "c"), Systemic::Verdict::nothing);
  EXPECT_EQ(systemic.Ended(First(), Ended(OutcomeKind::applied, ""), false, kStart), Systemic::Verdict::nothing)
      << "no probe";
  EXPECT_EQ(probe(OutcomeKind::permanent, "b"), Systemic::Verdict::resume) << "another cause";
  EXPECT_EQ(probe(OutcomeKind::applied, ""), Systemic::Verdict::resume);
}

TEST(Systemic, ForgetsWhenResumed) {
  Systemic systemic;
  Feed(systemic, 50, 0);
  systemic.Clear();
  EXPECT_FALSE(systemic.paused());
  EXPECT_EQ(Feed(systemic, 49, 0), Systemic::Verdict::nothing);
  EXPECT_EQ(Feed(systemic, 1, 0), Systemic::Verdict::pause);
}

TEST(Systemic, LoadedFromTheStoreItProbesAtOnce) {
  Systemic systemic;
  systemic.Load("a", kStart);
  EXPECT_TRUE(systemic.paused());
  EXPECT_TRUE(systemic.ProbeDue(kStart));
}

}  // namespace
}  // namespace dlo::dispatch
