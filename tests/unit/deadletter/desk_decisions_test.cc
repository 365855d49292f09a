// The desk's own rules for acts on many, standing rules, notes and corrections.
#include <gtest/gtest.h>

#include "deadletter/clerk.h"
#include "deadletter/desk.h"
#include "unit/deadletter/fake_store.h"

namespace dlo::deadletter {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using std::chrono::seconds;

class DeskDecisionsTest : public ::testing::Test {
 protected:
  testing::FakeStore store;
  ManualClock clock{Time(seconds(1'800'000'000))};
  ReplayPacer pacer{store};
  int rings = 0;
  Desk desk{{.store = store,
             .clock = clock,
             .pacer = pacer,
             .holds_lane = {},
             .wait = {},
             .ring = [this] { ++rings; },
             .max_body = [](const std::string&) { return std::size_t{10}; }}};
  DeadLetters& letters = desk;
  const Actor actor{.name = "ada", .role = "operator", .reason = "known"};
  Filter all_conflicts = [] {
    Filter f;
    f.classes = {FailureClass::conflict};
    return f;
  }();

  Rule Good() {
    Rule rule;
    rule.name = "known-1";
    rule.match.types = {"invoice.gone"};
    rule.resolve_code = ResolveCode::entity_deleted;
    rule.expires_at = clock.Now() + hours(1);
    return rule;
  }
};

TEST_F(DeskDecisionsTest, AnEmptyFilterIsRefusedUnlessAllIsSaid) {
  store.Add(1);
  EXPECT_EQ(desk.ReleaseWhere({}, {}, actor).error().code, "filter_empty");
  EXPECT_EQ(desk.ReopenWhere({}, {.dry_run = true}, actor).error().code, "filter_empty");
  EXPECT_EQ(desk.ResolveWhere({}, ResolveCode::duplicate, {.all = true, .dry_run = true}, actor)->count, 1);
  EXPECT_TRUE(store.decisions.empty());
}

TEST_F(DeskDecisionsTest, ADryRunAnswersOverTheCapAndChangesNothing) {
  for (EventId id = 1; id <= 3; ++id) store.Add(id, State::dead, FailureClass::conflict);
  const auto plan = desk.ResolveWhere(all_conflicts, ResolveCode::duplicate, {.max = 2, .dry_run = true}, actor);
  ASSERT_TRUE(plan);
  EXPECT_EQ(std::make_tuple(plan->id, plan->count, plan->over_cap), std::make_tuple(0, 3, true));
  EXPECT_EQ(desk.ResolveWhere(all_conflicts, ResolveCode::duplicate, {.max = 2}, actor).error().code, "too_many");
  for (const std::int64_t max : {std::int64_t{0}, std::int64_t{-1}, INT64_MAX}) {
    EXPECT_EQ(desk.ReleaseWhere(all_conflicts, {.max = max}, actor).error().code, "bad_max") << max;
  }
}

TEST_F(DeskDecisionsTest, ASmallOneIsDoneWhenItAnswersAndALargeOneGoesOnWithoutTheCaller) {
  for (EventId id = 1; id <= 250; ++id) store.Add(id, State::dead, FailureClass::conflict);
  const auto done = desk.HoldWhere(all_conflicts, {.link = "u"}, {}, actor);
  ASSERT_TRUE(done);
  EXPECT_EQ(std::make_tuple(done->state, done->changed, store.steps, rings), std::make_tuple("done", 250, 3, 0));
  store.on_step = [this] { clock.Advance(milliseconds(600)); };
  const auto running = desk.HoldWhere(all_conflicts, {.link = "u"}, {}, actor);
  ASSERT_TRUE(running);
  EXPECT_EQ(std::make_tuple(running->state, running->changed, rings), std::make_tuple("running", 200, 1));
  Clerk clerk(store, store);
  EXPECT_EQ(*clerk.RunOnce(clock.Now()), clock.Now() + Clerk::kLookAgain);
  EXPECT_EQ(desk.DecisionOf(running->id)->state, "done");
}

TEST_F(DeskDecisionsTest, AStoreThatFailsAfterTheFreezeDoesNotMakeTheDecisionUndone) {
  for (EventId id = 1; id <= 3; ++id) store.Add(id, State::dead, FailureClass::conflict);
  store.step_error = Error{ErrorKind::unavailable, "io", "no"};
  const auto made = desk.HoldWhere(all_conflicts, {.link = "u"}, {}, actor);
  ASSERT_TRUE(made);
  EXPECT_EQ(std::make_tuple(made->state, made->changed, rings), std::make_tuple("running", 0, 1));
  Clerk clerk(store, store);
  EXPECT_EQ(clerk.RunOnce(clock.Now()).error().code, "io");
  store.step_error.reset();
  EXPECT_TRUE(clerk.RunOnce(clock.Now()));
  EXPECT_TRUE(store.OpenDecisions()->empty());
}

TEST_F(DeskDecisionsTest, TheActsOwnWordsAreChecked) {
  EXPECT_EQ(desk.HoldWhere(all_conflicts, {.link = " "}, {}, actor).error().code, "link_missing");
  EXPECT_EQ(desk.HoldWhere(all_conflicts, {.link = "u", .until = clock.Now()}, {}, actor).error().code, "until_past");
  EXPECT_EQ(desk.ResolveWhere(all_conflicts, ResolveCode::other, {}, {.name = "ada"}).error().code, "reason_missing");
  EXPECT_EQ(desk.ReleaseWhere(all_conflicts, {}, {.name = ""}).error().code, "no_actor");
  EXPECT_THROW(desk.ReleaseWhereOrThrow({}, {}, actor), Failure);
}

TEST_F(DeskDecisionsTest, ByNowIsMadeATime) {
  Filter overdue;
  overdue.overdue = Time{};
  ASSERT_TRUE(desk.List(overdue, 10, ""));
  EXPECT_EQ(store.last_filter.overdue, clock.Now());
  EXPECT_EQ(store.last_filter.states, std::vector{State::held});
  ASSERT_TRUE(desk.ReleaseWhere(overdue, {}, actor));
  EXPECT_EQ(store.last_filter.overdue, clock.Now());
  ASSERT_TRUE(desk.RequeueWhere(overdue, {.dry_run = true}, actor));
  EXPECT_EQ(store.last_filter.overdue, clock.Now());
}

TEST_F(DeskDecisionsTest, ARuleNeverMatchesAllAndAlwaysEnds) {
  const struct {
    const char* code;  // "" = taken
    std::function<void(Rule&)> change;
  } rows[] = {
      {"", [](Rule&) {}},
      {"rule_matches_all", [](Rule& r) { r.match = {}; }},
      {"rule_matches_all",
       [](Rule& r) {
         r.match = {};
         r.match.sources = {"stripe"};
         r.match.classes = {FailureClass::permanent};
       }},
      {"rule_matches_all",
       [](Rule& r) {
         r.match = {};
         r.match.q = "";
       }},
      {"bad_rule", [](Rule& r) { r.match.q = ""; }},
      {"bad_rule", [](Rule& r) { r.match.ids = {1}; }},
      {"bad_rule", [](Rule& r) { r.match.states = {State::dead}; }},
      {"bad_rule", [](Rule& r) { r.match.overdue = Time{}; }},
      {"bad_rule", [](Rule& r) { r.name = "Not A Name"; }},
      {"bad_rule", [](Rule& r) { r.name = std::string(65, 'a'); }},
      {"", [](Rule& r) { r.name = std::string(64, 'a'); }},
      {"bad_rule", [](Rule& r) { r.hold_link = "u"; }},
      {"link_missing", [](Rule& r) { r.resolve_code.reset(); }},
      {"bad_expiry", [](Rule& r) { r.expires_at = Time{}; }},
      {"bad_expiry", [this](Rule& r) { r.expires_at = clock.Now(); }},
      {"", [this](Rule& r) { r.expires_at = clock.Now() + Duration(1); }},
      {"", [this](Rule& r) { r.expires_at = clock.Now() + kMaxRuleLife; }},
      {"bad_expiry", [this](Rule& r) { r.expires_at = clock.Now() + kMaxRuleLife + Duration(1); }},
  };
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    Rule rule = Good();
    rows[i].change(rule);
    const auto added = desk.AddRule(rule, actor);
    EXPECT_EQ(added ? "" : added.error().code, rows[i].code) << "row " << i;
  }
  EXPECT_EQ(desk.AddRule(Good(), {.name = "ada"}).error().code, "reason_missing");
}

TEST_F(DeskDecisionsTest, NotesHaveALengthInCharacters) {
  store.Add(1);
  std::string greek;
  for (int i = 0; i < 4'000; ++i) greek += "\xCE\xB1";
  EXPECT_TRUE(desk.AddNote(1, greek, actor));
  EXPECT_EQ(desk.AddNote(1, greek + "a", actor).error().code, "note_too_long");
  EXPECT_EQ(desk.AddNote(1, " \n", actor).error().code, "note_empty");
  EXPECT_EQ(desk.AddNote(0, "x", actor).error().code, "not_found");
  EXPECT_EQ(desk.AddGroupNote("f", "", actor).error().code, "note_empty");
  EXPECT_EQ(desk.NotesOf(1, 0, 501).error().code, "bad_limit");
}

TEST_F(DeskDecisionsTest, ACorrectionNeedsAReasonABodyAndRoom) {
  store.Add(1);
  EXPECT_EQ(letters.Revise(1, "x", {.name = "ada"}).error().code, "reason_missing");
  EXPECT_EQ(letters.ReviseToOriginal(1, {.name = "ada"}).error().code, "reason_missing");
  EXPECT_EQ(letters.Revise(1, "", actor).error().code, "revision_empty");
  EXPECT_EQ(letters.Revise(1, "12345678901", actor).error().code, "revision_too_large");
  EXPECT_EQ(letters.Revise(2, "x", actor).error().code, "not_found");
  EXPECT_TRUE(letters.Revise(1, "1234567890", actor));
  EXPECT_EQ(letters.ReviseOrThrow(1, "x", actor, 1).number, 2);
  EXPECT_THROW(letters.ReviseOrThrow(1, "x", actor, 1), Failure);
}

TEST_F(DeskDecisionsTest, TheClerkTellsEachHitAndComesBackWhileThereIsMore) {
  std::vector<std::pair<std::string, EventId>> told;
  Clerk clerk(store, store, [&](const std::string& rule, EventId id) { told.emplace_back(rule, id); });
  store.next_rule_step.hits = {{"known-1", 7}};
  store.next_rule_step.more = true;
  EXPECT_EQ(*clerk.RunOnce(clock.Now()), clock.Now());
  EXPECT_EQ(told, (std::vector<std::pair<std::string, EventId>>{{"known-1", 7}}));
  EXPECT_EQ(*clerk.RunOnce(clock.Now()), clock.Now() + Clerk::kLookAgain);
}

}  // namespace
}  // namespace dlo::deadletter
