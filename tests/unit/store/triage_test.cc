#include "store/embedded/triage.h"

#include <map>

#include "env/random.h"
#include "model/law.h"
#include "store/embedded/access.h"
#include "store/embedded/replay_acts.h"
#include "store/embedded/replay_items.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

constexpr Act kActs[] = {Act::replay, Act::hold, Act::release, Act::resolve, Act::reopen};
const Time kNow = kStart + std::chrono::hours(24);

TriageAct Request(EventId id, Act act) {
  TriageAct request{.id = id, .act = act};
  request.hold.link = "https://issues.example/1";
  request.hold.owner = "jo";
  request.resolve_code = ResolveCode::handled_manually;
  return request;
}

class Triage : public LettersFixture {
 protected:
  Result<Letter> Do(const TriageAct& request) {
    return InTransaction([&](Counts& counts) { return ApplyTriage(*db_, counts, lanes_, request, actor_, kNow); });
  }
  Result<Letter> Do(EventId id, Act act) { return Do(Request(id, act)); }
  std::int64_t AuditRows() { return Number("SELECT count(*) FROM audit"); }
  AuditRecord LastAudit() { return OrThrow(ReadAudit(*db_, 0, 0, 1)).at(0); }
  /// The whole row and its failure as text, to see that nothing changed.
  std::string Dump(EventId id) {
    auto rows =
        OrThrow(db_->PrepareOnce("SELECT * FROM events e JOIN receipts r ON r.id = e.id LEFT JOIN failures f ON "
                                 "f.event_id = e.id WHERE e.id = ?1"));
    EXPECT_TRUE(OrThrow(rows.Bind(1, id).Step()));
    std::string text;
    for (int i = 0; i < 55; ++i) text += rows.String(i) + "|";
    return text;
  }
};

/// Which refusal the law's gaps give: by act and state, and for a letter that is in a replay.
const char* ExpectedCode(Act act, State state, bool replaying) {
  if (state == State::replayed) return "already_replayed";
  if (replaying && (state == State::waiting || state == State::running)) return "in_replay";
  if (act == Act::hold && state == State::held) return "already_held";
  if (act == Act::release) return "not_held";
  if (act == Act::reopen) return "not_resolved";
  return "not_dead_lettered";
}

TEST_F(Triage, EveryActInEveryStateFollowsTheLawAndLeavesOneRecordOrNone) {
  for (const Act act : kActs) {
    for (int s = 0; s < kStateCount; ++s) {
      for (const bool replaying : {false, true}) {
        const auto from = static_cast<State>(s);
        if (replaying && from != State::waiting && from != State::running) continue;
        SCOPED_TRACE(std::string(Name(act)) + " " + std::string(Name(from)) + (replaying ? " replaying" : ""));
        const EventId id =
            Add({.subject = "sub_1", .state = from, .replaying = replaying, .replay_id = replaying ? 77 : 0});
        const std::int64_t records = AuditRows();
        const std::string before = Dump(id);
        const auto letter = Do(id, act);
        if (const auto to = Target(act, from)) {
          ASSERT_TRUE(letter) << letter.error().message;
          EXPECT_EQ(letter->state, *to);
          EXPECT_EQ(AuditRows(), records + 1);
          const AuditRecord record = LastAudit();
          EXPECT_EQ(record.action, Name(act));
          EXPECT_EQ(record.event_id, id);
          EXPECT_EQ(record.at, kNow);
          EXPECT_EQ(std::tie(record.actor, record.role, record.reason),
                    std::tie(actor_.name, actor_.role, actor_.reason));
          EXPECT_NE(record.details.find("\"before\":{\"state\":\"" + std::string(Name(from)) + "\""),
                    std::string::npos);
          EXPECT_NE(record.details.find("\"after\":{\"state\":\"" + std::string(Name(*to)) + "\""), std::string::npos);
        } else {
          ASSERT_FALSE(letter);
          EXPECT_EQ(letter.error().kind, ErrorKind::conflict);
          EXPECT_EQ(letter.error().code, ExpectedCode(act, from, replaying));
          EXPECT_TRUE(IsRefusal(letter.error()));
          EXPECT_EQ(letter.error().message.find("replay 77") != std::string::npos, replaying);
          EXPECT_EQ(AuditRows(), records);
          EXPECT_EQ(Dump(id), before);
        }
        ExpectSound();
        // Out of the way: one subject has one running event.
        OrThrow(db_->Prepare("UPDATE events SET lane = NULL, behind = 0 WHERE id = ?1").Bind(1, id).Run());
        lanes_.Leave(LaneOf("stripe", "sub_1"), id);
      }
    }
  }
}

TEST_F(Triage, AnUnknownEventIsNotFoundForEveryAct) {
  for (const Act act : kActs) EXPECT_EQ(Do(5, act).error().code, "not_found");
  EXPECT_EQ(AuditRows(), 0);
}

TEST_F(Triage, ActsOfTheDispatcherAreNotAPersons) {
  const EventId waiting = Add({.state = State::waiting}), running = Add({.state = State::running});
  EXPECT_FALSE(Do(waiting, Act::claim));
  EXPECT_FALSE(Do(running, Act::hand_back));
  EXPECT_FALSE(Do(running, Act::apply));
  EXPECT_EQ(AuditRows(), 0);
}

TEST_F(Triage, ReplayGivesAFullBudgetAndANumberedReplay) {
  const EventId id = Add({.subject = "sub_1", .replay_id = 3, .replays_failed = 2});
  OrThrow(db_->Exec("UPDATE events SET attempts = 6, tries = 6, crashes = 2, attempt_no = 9, token = 9, replays = 2"));
  const Letter l = OrThrow(Do(id, Act::replay));
  EXPECT_EQ(std::make_tuple(l.attempts, l.tries, l.crashes, l.attempt_number, l.replays, l.replays_failed),
            std::make_tuple(6, 0, 0, 9, 3, 2));
  EXPECT_EQ(l.due_at, kNow);
  EXPECT_EQ(l.parked_at, std::nullopt);
  EXPECT_EQ(l.failure_class, FailureClass::permanent);
  EXPECT_FALSE(l.behind);
  EXPECT_EQ(Number("SELECT replaying FROM events"), 1);
  EXPECT_EQ(Number("SELECT token FROM events"), 9);  // an old lease stays old
  const auto replay = OrThrow(GetReplay(*db_, l.replay_id, kNow));
  EXPECT_EQ(std::make_tuple(replay.count, replay.requeued, replay.remaining), std::make_tuple(1, 1, 1));
  EXPECT_EQ(std::make_tuple(replay.kind, replay.state, replay.actor), std::make_tuple("replay", "running", "jane"));
  EXPECT_EQ(replay.filter, "{\"ids\":[" + std::to_string(id) + "]}");
  EXPECT_EQ(replay.digest, HexEncode(Sha256(std::to_string(id))));
  EXPECT_TRUE(OrThrow(RunningReplays(*db_)).empty());  // nothing for the pacer
}

TEST_F(Triage, ReplayTakesEveryClassButCorrupt) {
  for (int c = 1; c < kClassCount; ++c) {
    const auto failure_class = static_cast<FailureClass>(c);
    const auto letter = Do(Add({.failure_class = failure_class, .replays_failed = 5}), Act::replay);
    if (failure_class == FailureClass::corrupt) {
      EXPECT_EQ(letter.error().code, "corrupt");
      EXPECT_EQ(letter.error().kind, ErrorKind::conflict);
    } else {
      EXPECT_TRUE(letter) << Name(failure_class);
    }
  }
  ExpectSound();
}

TEST_F(Triage, AReplayedEventTakesItsPlaceInItsLane) {
  const EventId first = Add({.subject = "s"}), second = Add({.subject = "s", .state = State::waiting}),
                third = Add({.subject = "s"});
  EXPECT_FALSE(OrThrow(Do(first, Act::replay)).behind);  // earliest receipt
  EXPECT_TRUE(OrThrow(Do(third, Act::replay)).behind);
  EXPECT_EQ(Number("SELECT behind FROM events WHERE id = " + std::to_string(second)), 1);
  ExpectSound();
}

TEST_F(Triage, AReplayedEventWaitsForTheRunningOneOfItsLane) {
  const EventId first = Add({.subject = "s"});
  Add({.subject = "s", .state = State::running});
  EXPECT_TRUE(OrThrow(Do(first, Act::replay)).behind);
  ExpectSound();
}

TEST_F(Triage, AParkedLetterThatHeldItsLaneGoesFirstWhenReplayed) {
  const EventId first = Add({.subject = "s", .in_lane = true}), second = Add({.subject = "s", .state = State::waiting});
  EXPECT_EQ(Number("SELECT behind FROM events WHERE id = " + std::to_string(second)), 1);
  EXPECT_FALSE(OrThrow(Do(first, Act::replay)).behind);
  ExpectSound();
}

TEST_F(Triage, HoldReleaseAndResolveKeepOrLeaveTheLane) {
  for (const bool keep : {true, false}) {
    for (const Act act : {Act::hold, Act::release, Act::resolve}) {
      SCOPED_TRACE(std::string(Name(act)) + (keep ? " keep" : " leave"));
      const std::string subject = std::string(Name(act)) + (keep ? "k" : "l");
      const State from = act == Act::release ? State::held : State::dead;
      const EventId letter = Add({.subject = subject, .state = from, .in_lane = true});
      const EventId follower = Add({.subject = subject, .state = State::waiting});
      TriageAct request = Request(letter, act);
      request.keep_lane = keep;
      OrThrow(Do(request));
      const bool kept = keep && act != Act::resolve;  // a resolved one never holds anybody
      EXPECT_EQ(Number("SELECT lane IS NOT NULL FROM events WHERE id = " + std::to_string(letter)), kept);
      EXPECT_EQ(Number("SELECT behind FROM events WHERE id = " + std::to_string(follower)), kept);
      ExpectSound();
    }
  }
}

TEST_F(Triage, KeepingTheLaneOfALetterThatWasReleasedBeforeTakesNothing) {
  const EventId letter = Add({.subject = "s"});
  const EventId follower = Add({.subject = "s", .state = State::waiting});
  TriageAct request = Request(letter, Act::hold);
  request.keep_lane = true;
  OrThrow(Do(request));
  EXPECT_EQ(Number("SELECT behind FROM events WHERE id = " + std::to_string(follower)), 0);
}

TEST_F(Triage, ReopenTakesTheLaneAgainExceptForAConflict) {
  struct Row {
    bool keep;
    FailureClass failure_class;
    bool holds;
  };
  for (const Row& row : {Row{true, FailureClass::permanent, true}, Row{false, FailureClass::permanent, false},
                         Row{true, FailureClass::conflict, false}}) {
    const std::string subject = "s" + std::to_string(last_id_);
    const EventId letter = Add({.subject = subject, .state = State::resolved, .failure_class = row.failure_class});
    const EventId follower = Add({.subject = subject, .state = State::waiting});
    TriageAct request = Request(letter, Act::reopen);
    request.keep_lane = row.keep;
    const Letter l = OrThrow(Do(request));
    EXPECT_EQ(l.failure_class, row.failure_class);
    EXPECT_EQ(l.parked_at, kNow);
    EXPECT_EQ(l.finished_at, std::nullopt);
    EXPECT_EQ(l.message, "No such subscription");
    EXPECT_EQ(Number("SELECT behind FROM events WHERE id = " + std::to_string(follower)), row.holds);
    ExpectSound();
  }
}

TEST_F(Triage, AReopenedTestEventBecomesPermanent) {
  const EventId id = Add({.state = State::resolved});  // never failed: no class, no failure
  const Letter l = OrThrow(Do(id, Act::reopen));
  EXPECT_EQ(l.failure_class, FailureClass::permanent);
  EXPECT_EQ(l.first_failed_at, std::nullopt);
  EXPECT_NE(LastAudit().details.find("\"before\":{\"state\":\"resolved\",\"class\":\"none\"}"), std::string::npos);
  EXPECT_NE(LastAudit().details.find("\"after\":{\"state\":\"dead\",\"class\":\"permanent\"}"), std::string::npos);
  ExpectSound();
}

TEST_F(Triage, HoldKeepsItsWordsAndLeavingItClearsThem) {
  for (const Act out : {Act::release, Act::replay, Act::resolve}) {
    const EventId id = Add();
    TriageAct request = Request(id, Act::hold);
    request.hold.until = kNow + std::chrono::hours(1);
    request.hold.wake_on_handler = "v2";
    const Letter held = OrThrow(Do(request));
    EXPECT_EQ(std::tie(held.hold_link, held.hold_owner, held.wake_on_handler),
              std::make_tuple("https://issues.example/1", "jo", "v2"));
    EXPECT_EQ(held.hold_until, kNow + std::chrono::hours(1));
    EXPECT_TRUE(held.parked_at);
    EXPECT_NE(LastAudit().details.find("\"link\":\"https://issues.example/1\""), std::string::npos);
    const Letter after = OrThrow(Do(id, out));
    EXPECT_EQ(after.hold_link + after.hold_owner + after.wake_on_handler, "");
    EXPECT_EQ(after.hold_until, std::nullopt);
  }
}

TEST_F(Triage, ResolveKeepsCodeAndReasonUntilReopened) {
  const EventId id = Add();
  const Letter l = OrThrow(Do(id, Act::resolve));
  EXPECT_EQ(l.resolve_code, ResolveCode::handled_manually);
  EXPECT_EQ(l.resolve_reason, "because");
  EXPECT_EQ(l.finished_at, kNow);
  EXPECT_NE(LastAudit().details.find("\"code\":\"handled_manually\""), std::string::npos);
  const Letter again = OrThrow(Do(id, Act::reopen));
  EXPECT_EQ(again.resolve_code, std::nullopt);
  EXPECT_EQ(again.resolve_reason, "");
}

TEST_F(Triage, WhatARequestLacksIsNamedAndChangesNothing) {
  const EventId id = Add();
  const std::string before = Dump(id);
  TriageAct no_link = Request(id, Act::hold), blank_link = Request(id, Act::hold), no_code = Request(id, Act::resolve);
  no_link.hold.link = "";
  blank_link.hold.link = " \n";
  no_code.resolve_code = std::nullopt;
  EXPECT_EQ(Do(no_link).error().code, "link_missing");
  EXPECT_EQ(Do(blank_link).error().code, "link_missing");
  EXPECT_EQ(Do(no_code).error().code, "resolve_code_missing");
  actor_.name = "";
  EXPECT_EQ(Do(id, Act::replay).error().code, "actor_missing");
  EXPECT_EQ(Dump(id), before);
  EXPECT_EQ(AuditRows(), 0);
}

TEST_F(Triage, HostileTextOfAPersonIsKeptAsText) {
  const EventId id = Add();
  TriageAct request = Request(id, Act::hold);
  request.hold.link = std::string("a'\"\0); DROP TABLE events --\xFF", 28);
  request.hold.owner = std::string(10'000, 'x');
  actor_.reason = "\"}\n\x01";
  const Letter l = OrThrow(Do(request));
  EXPECT_EQ(l.hold_link, "a'\" ); DROP TABLE events --\uFFFD");
  EXPECT_LE(l.hold_owner.size(), 200U);
  EXPECT_EQ(LastAudit().reason, "\"}\n ");
}

TEST_F(Triage, AMoveFencedByAStaleRowChangesNothing) {
  const EventId id = Add();
  const LetterRow row = *OrThrow(ReadLetterRow(*db_, id));
  OrThrow(Do(id, Act::hold));
  const std::string before = Dump(id);
  const auto moved = InTransaction([&](Counts& counts) { return MoveToReplay(*db_, counts, lanes_, row, 1, kNow); });
  EXPECT_FALSE(OrThrow(moved));
  EXPECT_EQ(Dump(id), before);
  ExpectSound();
}

TEST_F(Triage, RandomActsKeepCountsLanesAndRecordsTrue) {
  for (const std::uint64_t seed : {1, 2, 3, 4, 5}) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    SeededRandom random(seed);
    const auto pick = [&](std::uint64_t n) { return random.Next() % n; };
    std::int64_t records = AuditRows();
    for (int i = 0; i < 40; ++i) {
      const auto state = static_cast<State>(pick(kStateCount));
      if (state == State::running) continue;
      Add({.source = pick(2) == 0 ? "stripe" : "github",
           .subject = "s" + std::to_string(pick(4)),
           .state = state,
           .in_lane = (state == State::dead || state == State::held) && pick(2) == 0});
    }
    for (int i = 0; i < 200; ++i) {
      TriageAct request =
          Request(static_cast<EventId>(1 + pick(static_cast<std::uint64_t>(last_id_))), kActs[pick(std::size(kActs))]);
      request.keep_lane = pick(2) == 0;
      records += Do(request) ? 1 : 0;
    }
    EXPECT_EQ(AuditRows(), records);
    ExpectSound();
  }
}

}  // namespace
}  // namespace dlo::store
