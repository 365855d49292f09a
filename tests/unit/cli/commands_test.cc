// Exit codes, messages and requests of each command against a server that answers from a script.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli_run.h"

namespace dlo::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;

constexpr char kLetter[] =
    R"({"id":7,"source":"stripe","key":"evt_1","kind":"invoice.paid","subject":"sub_1","state":"dead","class":"permanent",)"
    R"("attempt_number":1,"received_at":"2026-11-30T00:00:00Z","parked_at":"2026-11-30T00:00:01Z",)"
    R"("code":"not_found","message":"No such customer: 'cus_1'"})";

std::string PageOf(const std::string& items, const std::string& next = "null") {
  return R"({"items":[)" + items + R"(],"next":)" + next + "}";
}

std::string Problem(const std::string& code, const std::string& detail) {
  return R"({"title":"x","status":0,"code":")" + code + R"(","detail":")" + detail + R"("})";
}

class Commands : public testing::Test {
 protected:
  Commands() { runner.environment["DLO_SERVER"] = server.address(); }
  ScriptedServer server;
  Runner runner;
};

TEST_F(Commands, WrongUsageIsExit2AndAsksNoServer) {
  const std::vector<std::vector<std::string>> rows = {
      {},
      {"nonsense"},
      {"list", "--nonsense"},
      {"list", "--json", "--nonsense"},
      {"list", "extra"},
      {"list", "--limit", "0"},
      {"list", "--limit", "501"},
      {"list", "--state", "deceased"},
      {"list", "--class", "none"},
      {"list", "--since", "yesterday"},
      {"list", "--livemode", "maybe"},
      {"list", "--type"},
      {"show"},
      {"show", "abc"},
      {"show", "0"},
      {"show", "7x"},
      {"show", "99999999999999999999"},
      {"show", "7", "8"},
      {"groups", "--by", "colour"},
      {"replay"},
      {"replay", "--dry-run"},
      {"replay", "7", "x"},
      {"replay", "7", "--type", "a"},
      {"replay", "7", "--all"},
      {"replay", "7", "--dry-run"},
      {"replay", "--all", "--type", "a", "--yes"},
      {"replay", "--all"},        // nobody to ask, no --yes
      {"replay", "--type", "a"},  // likewise
      {"replay", "--all", "--yes", "--stagger", "soon"},
      {"replay", "--all", "--yes", "--batch-size", "0"},
      {"requeue"},
      {"hold", "7"},
      {"hold", "--link", "u"},
      {"hold", "7", "--link", "u", "--until", "soon"},
      {"resolve", "7"},
      {"resolve", "7", "--code", "other"},
      {"resolve", "7", "--code", "boring", "--reason", "r"},
      {"drain"},
      {"drain", "--source", "s", "--all", "--yes"},
      {"drain", "--all"},
      {"drain", "--all", "--yes", "--wait", "long"},
      {"token"},
      {"token", "create", "ci"},
      {"token", "create", "ci", "--role", "king"},
      {"source", "resume"},
      {"send"},
      {"send", "--source", "s"},  // scheme stripe without a secret
      {"send", "--source", "s", "--secret", "x", "--kind", "no.such"},
      {"send", "--source", "s", "--secret", "x", "--scheme", "morse"},
      {"send", "--source", "s", "--secret", "x", "--file", "/no/such/file"},
      {"send", "--source", "s", "--secret", "env:NOT_SET"},
      {"send", "--source", "s", "--secret", "x", "--header", "no colon"},
      {"tail", "--interval", "0s"},
      {"demo-handler", "--outage", "x"},
  };
  for (const auto& words : rows) {
    Ran ran = runner.Run(words);
    std::string line;
    for (const std::string& word : words) line += " " + word;
    EXPECT_EQ(ran.code, kUsage) << line << "\n" << ran.err;
    EXPECT_THAT(ran.out, IsEmpty()) << line;
    EXPECT_THAT(ran.err, Not(IsEmpty())) << line;
  }
  EXPECT_THAT(server.calls(), IsEmpty());
}

TEST_F(Commands, HelpAndVersionAreDone) {
  EXPECT_EQ(runner.Run({"--help"}).code, kDone);
  EXPECT_THAT(runner.Run({"--version"}).out, HasSubstr("dlo "));
  Ran help = runner.Run({"replay", "--help"});
  EXPECT_EQ(help.code, kDone);
  EXPECT_THAT(help.out, HasSubstr("--dry-run"));
  EXPECT_THAT(runner.Run({"--help"}).out, Not(HasSubstr("Send a stream of billing events")));  // demo is hidden
}

TEST_F(Commands, ErrorsOfUsageAreJsonWhenAskedFor) {
  EXPECT_THAT(runner.Run({"list", "--json", "--nonsense"}).err, StartsWith(R"({"error":{"code":"usage","message":")"));
  EXPECT_THAT(runner.Run({"replay", "--json"}).err, StartsWith(R"({"error":{"code":"usage","message":")"));
}

TEST_F(Commands, NoServerIsExit3AndAsksWhetherItRuns) {
  runner.environment["DLO_SERVER"] = "http://127.0.0.1:1";
  for (std::vector<std::string> words : {std::vector<std::string>{"list"},
                                         {"show", "7"},
                                         {"replay", "7", "8"},
                                         {"stats"},
                                         {"send", "--source", "s", "--scheme", "none"}}) {
    Ran ran = runner.Run(words);
    EXPECT_EQ(ran.code, kUnreachable) << words[0];
    EXPECT_THAT(ran.err, HasSubstr("is `dlo serve` running there?"));
    EXPECT_THAT(ran.err, HasSubstr("http://127.0.0.1:1"));
  }
  EXPECT_THAT(runner.Run({"list", "--json"}).err, StartsWith(R"({"error":{"code":"unreachable")"));
}

TEST_F(Commands, AnswersOfTheServerBecomeExitCodesAndNextSteps) {
  struct Row {
    int status;
    std::string body;
    int code;
    std::string message;
  };
  const Row rows[] = {
      {400, Problem("bad_query", "The word since takes a time."), kUsage, "The word since takes a time."},
      {401, Problem("unauthorized", "x"), kRefused, "set DLO_TOKEN"},
      {403, Problem("forbidden", "This needs role operator."), kRefused, "dlo token create NAME --role"},
      {404, Problem("not_found", "No event 7."), kRefused, "No event 7."},
      {409, Problem("already_replayed", "Event 7 was replayed."), kRefused, "Event 7 was replayed."},
      {503, Problem("store_failed", "The store cannot commit."), kRefused, "The store cannot commit."},
      {404, "<html>nginx</html>", kRefused, "is it a dlo server?"},
      {200, "<html>hello</html>", kRefused, "not JSON"},
  };
  for (const Row& row : rows) {
    ScriptedServer one;
    one.On("GET /v1/events/7", row.status, row.body);
    Ran ran = runner.Run({"show", "7", "--server", one.address()});
    EXPECT_EQ(ran.code, row.code) << row.status;
    EXPECT_THAT(ran.err, HasSubstr(row.message)) << row.status;
    EXPECT_THAT(ran.out, IsEmpty());
  }
}

TEST_F(Commands, TheTokenIsSentAndARejectedOneIsExplained) {
  server.On("GET /v1/stats", 401, Problem("unauthorized", "x"));
  runner.environment["DLO_TOKEN"] = "dlo_secret\n";
  EXPECT_THAT(runner.Run({"stats"}).err, HasSubstr("does not know this token"));
  EXPECT_EQ(server.heads().back().Find("Authorization"), "Bearer dlo_secret");
  (void)runner.Run({"--token", "other", "stats"});
  EXPECT_EQ(server.heads().back().Find("Authorization"), "Bearer other");
}

TEST_F(Commands, ListShowsATableAndTheWayToTheNextPage) {
  server.On("GET /v1/dead-letters?type=invoice.paid&type=a%20b&class=permanent&limit=1", 200, PageOf(kLetter, "\"7\""));
  Ran ran = runner.Run({"list", "--type", "invoice.paid", "--type", "a b", "--class", "permanent", "--limit", "1"});
  EXPECT_EQ(ran.code, kDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("FAILURE"));
  EXPECT_THAT(ran.out, HasSubstr("not_found: No such customer: 'cus_1'"));
  EXPECT_THAT(ran.err, HasSubstr("--type 'a b' --class permanent --limit 1 --cursor 7"));
  EXPECT_THAT(ran.out, Not(HasSubstr("\x1b")));
}

TEST_F(Commands, JsonIsTheAnswerUnchanged) {
  const std::string body = R"({ "items" :[ {"id":7,"exact":1.10000000000000000001} ],"next":null})";
  server.On("GET /v1/dead-letters?limit=50", 200, body);
  EXPECT_EQ(runner.Run({"list", "--json"}).out, body + "\n");
  EXPECT_EQ(runner.Run({"--json", "list"}).out, body + "\n");
}

TEST_F(Commands, AnEmptyListSaysSoOutsideStdout) {
  server.On("GET /v1/dead-letters?limit=50", 200, PageOf(""));
  Ran ran = runner.Run({"list"});
  EXPECT_EQ(ran.code, kDone);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(ran.err, "No dead letters.\n");
}

TEST_F(Commands, AgesBecomeTimes) {
  server.On("GET /v1/dead-letters/count?since=2026-11-29T22%3A53%3A20Z", 200, R"({"count":3})");
  Ran ran = runner.Run({"count", "--since", "2h"});  // the clock shows 2026-11-30T00:53:20Z
  EXPECT_EQ(ran.out, "3\n") << server.calls().back();
}

TEST_F(Commands, ColourIsForTerminalsWithoutNoColor) {
  server.On("GET /v1/dead-letters?limit=50", 200, PageOf(kLetter));
  EXPECT_THAT(runner.Run({"list"}).out, Not(HasSubstr("\x1b")));
  runner.terminal.out = true;
  EXPECT_THAT(runner.Run({"list"}).out, HasSubstr("\x1b[31m"));
  runner.environment["NO_COLOR"] = "1";
  EXPECT_THAT(runner.Run({"list"}).out, Not(HasSubstr("\x1b")));
}

TEST_F(Commands, ANarrowTerminalGetsFewerColumnsThatCanBeRead) {
  server.On("GET /v1/dead-letters?limit=50", 200, PageOf(kLetter));
  runner.environment["NO_COLOR"] = "1";
  runner.terminal.out = true;
  for (int columns : {109, 110}) {
    runner.terminal.columns = columns;
    Ran ran = runner.Run({"list"});
    EXPECT_EQ(ran.out.find("sub_1") != std::string::npos, columns >= 110) << ran.out;
    EXPECT_THAT(ran.out, HasSubstr("No such customer: 'cus_1'"));
  }
  runner.terminal.columns = 80;
  EXPECT_THAT(runner.Run({"list"}).out, HasSubstr("invoice.paid      1  No such customer: 'c"));
}

TEST_F(Commands, ShowTellsTheWholeStoryOfHostileEvents) {
  server.On("GET /v1/events/7", 200,
            R"({"id":7,"source":"stripe","key":"k\u001b[2J","kind":"invoice.paid","subject":"s","state":"dead",)"
            R"("class":"permanent","code":"http_400","message":"bad\nFAKE","attempts":1,"body_bytes":9,)"
            R"("received_at":"2026-11-30T00:00:00Z","fingerprint":"00112233aabbccdd",)"
            R"("timeline":[{"number":2,"started_at":"2026-11-30T00:00:02Z","finished_at":"2026-11-30T00:00:02.25Z",)"
            R"("outcome":"permanent","code":"http_400","message":"m2","http_status":400,"worker":"w"},)"
            R"({"number":1,"started_at":"2026-11-30T00:00:01Z","outcome":null,"worker":"w"}],)"
            R"("headers":[{"name":"Content-Type","value":"x\u202ey"}],)"
            R"("verdict":{"verified":true,"scheme":"stripe","secret_id":"secrets[0]"}})");
  server.On("GET /v1/events/7/audit", 200,
            PageOf(R"({"at":"2026-11-30T00:10:00Z","actor":"ann","action":"reopen","reason":"again"})"));
  server.On("GET /v1/events/7/payload", 200, R"({"amount":1.10,"x":"\u001b"})");
  Ran ran = runner.Run({"show", "#7"});
  ASSERT_EQ(ran.code, kDone) << ran.err;
  for (const char* part :
       {"k\\x1b[2J", "bad\\nFAKE", "250ms", "no answer", "ann", "again", "Content-Type: x\\u202ey", "\"amount\": 1.10",
        "dlo replay 7", "dlo hold 7 --link", "dlo resolve 7 --code", "secrets[0]"}) {
    EXPECT_THAT(ran.out, HasSubstr(part));
  }
  EXPECT_LT(ran.out.find("m2"), ran.out.find("no answer"));  // newest first
  EXPECT_THAT(ran.out, Not(HasSubstr("\x1b")));
}

TEST_F(Commands, ShowStandsWithoutTheBody) {
  server.On("GET /v1/events/7", 200, kLetter);
  server.On("GET /v1/events/7/payload", 500, Problem("corrupt", "The bytes fail their digest."));
  Ran ran = runner.Run({"show", "7"});
  EXPECT_EQ(ran.code, kDone);
  EXPECT_THAT(ran.out, HasSubstr("cannot be read: The bytes fail their digest."));
}

TEST_F(Commands, PayloadIsExactInAPipeAndHarmlessOnATerminal) {
  const std::string bytes("{\"a\":1}\x1b[2J\xff\0", 13);
  server.On("GET /v1/events/7/payload", 200, bytes);
  EXPECT_EQ(runner.Run({"payload", "7"}).out, bytes);
  runner.terminal.out = true;
  EXPECT_EQ(runner.Run({"payload", "7"}).out, "{\"a\":1}\\x1b[2J\\xff\\x00\n");
  EXPECT_EQ(runner.Run({"payload", "7", "--raw"}).out, bytes);
}

TEST_F(Commands, SeveralIdsAreEachTriedAndPartIsExit4) {
  server.On("POST /v1/dead-letters/7/replay", 202, R"({"requeued":1})");
  server.On("POST /v1/dead-letters/8/replay", 409, Problem("already_replayed", "Event 8 was replayed."));
  server.On("POST /v1/dead-letters/9/replay", 202, R"({"requeued":1})");
  Ran ran = runner.Run({"replay", "7", "8", "9", "--reason", "fixed"});
  EXPECT_EQ(ran.code, kPartly);
  EXPECT_EQ(ran.out, "7: requeued\n9: requeued\n");
  EXPECT_THAT(ran.err, HasSubstr("8: Event 8 was replayed."));
  EXPECT_THAT(server.calls(), ElementsAre(R"(POST /v1/dead-letters/7/replay {"reason":"fixed"})",
                                          R"(POST /v1/dead-letters/8/replay {"reason":"fixed"})",
                                          R"(POST /v1/dead-letters/9/replay {"reason":"fixed"})"));
  EXPECT_EQ(runner.Run({"replay", "7", "9"}).code, kDone);
  EXPECT_EQ(runner.Run({"requeue", "8"}).code, kRefused);
  EXPECT_THAT(runner.Run({"replay", "8", "--json"}).err, StartsWith(R"({"error":{"code":"already_replayed")"));
}

TEST_F(Commands, ARefusedRoleIsSaidOnce) {
  server.On("POST /v1/dead-letters/7/replay", 403, Problem("forbidden", "no"));
  EXPECT_EQ(runner.Run({"replay", "7", "8"}).code, kRefused);
  EXPECT_EQ(server.calls().size(), 1U);
}

TEST_F(Commands, ActsSendTheirWords) {
  for (const char* act : {"hold", "release", "resolve", "reopen"}) {
    server.On(std::string("POST /v1/dead-letters/7/") + act, 200, kLetter);
  }
  EXPECT_EQ(
      runner.Run({"hold", "7", "--link", "http://x/1", "--owner", "ann", "--until", "1d", "--wake-on-handler", "2"})
          .out,
      "7: dead (permanent)\n");
  EXPECT_EQ(runner.Run({"release", "7"}).code, kDone);
  EXPECT_EQ(runner.Run({"resolve", "7", "--code", "test_event", "--reason", "a test"}).code, kDone);
  EXPECT_EQ(runner.Run({"reopen", "7", "--reason", "no"}).code, kDone);
  EXPECT_THAT(
      server.calls(),
      ElementsAre(R"(POST /v1/dead-letters/7/hold {"link":"http://x/1","owner":"ann","until":"2026-12-01T00:53:20Z",)"
                  R"("wake_on_handler":"2"})",
                  "POST /v1/dead-letters/7/release {}",
                  R"(POST /v1/dead-letters/7/resolve {"code":"test_event","reason":"a test"})",
                  R"(POST /v1/dead-letters/7/reopen {"reason":"no"})"));
}

constexpr char kPlan[] =
    R"({"would_requeue":3,"over_cap":false,"by_class":{"permanent":3},"by_type":{"invoice.paid":3},"oldest":null,"estimated_seconds":0})";

std::string Progress(const std::string& state, int committed, int dead_again) {
  return R"({"id":5,"state":")" + state + R"(","count":3,"requeued":3,"skipped":0,"committed":)" +
         std::to_string(committed) + R"(,"dead_again":)" + std::to_string(dead_again) + R"(,"remaining":0})";
}

TEST_F(Commands, ABulkReplayIsPlannedCreatedAndFollowed) {
  server.On("POST /v1/replays", 200, kPlan);
  server.On("POST /v1/replays", 202, R"({"id":5,"count":3,"digest":"d"})");
  server.On("GET /v1/replays/5", 200, Progress("running", 0, 0));
  server.On("GET /v1/replays/5", 200, Progress("done", 3, 0));
  Ran ran = runner.Run({"replay", "--class", "permanent", "--livemode", "true", "--yes", "--reason", "fixed"});
  EXPECT_EQ(ran.code, kDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("Would replay 3 dead letters"));
  EXPECT_THAT(ran.out, HasSubstr("3 permanent"));
  EXPECT_THAT(ran.out, HasSubstr("3 committed, 0 dead again"));
  EXPECT_EQ(ran.err, "");  // no progress in a pipe
  const std::string body = R"({"filter":{"class":["permanent"],"livemode":true},"batch_size":100,"stagger_ms":1000,)"
                           R"("max":10000,"force":false,"reason":"fixed","dry_run":)";
  EXPECT_THAT(server.calls(), ElementsAre("POST /v1/replays " + body + "true}", "POST /v1/replays " + body + "false}",
                                          "GET /v1/replays/5", "GET /v1/replays/5"));
}

TEST_F(Commands, WhatFailedAgainIsInTheExitCode) {
  for (auto [committed, code] : {std::pair{3, int{kDone}}, {2, int{kPartly}}, {0, int{kRefused}}}) {
    ScriptedServer one;
    one.On("POST /v1/replays", 200, kPlan);
    one.On("POST /v1/replays", 202, R"({"id":5,"count":3})");
    one.On("GET /v1/replays/5", 200, Progress("done", committed, 3 - committed));
    EXPECT_EQ(runner.Run({"replay", "--all", "--yes", "--server", one.address()}).code, code) << committed;
  }
}

TEST_F(Commands, ADryRunOnlyPlans) {
  server.On("POST /v1/replays", 200, kPlan);
  EXPECT_EQ(runner.Run({"replay", "--all", "--dry-run"}).code, kDone);
  EXPECT_EQ(runner.Run({"replay", "--all", "--dry-run", "--json"}).out, std::string(kPlan) + "\n");
  EXPECT_EQ(server.calls().size(), 2U);
}

TEST_F(Commands, APersonIsAskedWithTheExactCount) {
  server.On("POST /v1/replays", 200, kPlan);
  runner.terminal.in = true;
  for (const char* input : {"", "n\n", "no\n", "N\n", "yep\n"}) {
    runner.input = input;
    Ran ran = runner.Run({"replay", "--all"});
    EXPECT_EQ(ran.code, kRefused) << input;
    EXPECT_THAT(ran.err, HasSubstr("Replay 3 dead letters? [y/N]"));
    EXPECT_THAT(ran.err, HasSubstr("Nothing was done."));
  }
  for (const std::string& call : server.calls()) EXPECT_THAT(call, HasSubstr(R"("dry_run":true)"));
  for (const char* input : {"y\n", "Y\n", "yes\n", "y\r\n"}) {
    ScriptedServer one;
    one.On("POST /v1/replays", 200, kPlan);
    one.On("POST /v1/replays", 202, R"({"id":5,"count":3})");
    runner.input = input;
    EXPECT_EQ(runner.Run({"replay", "--all", "--no-wait", "--server", one.address()}).code, kDone) << input;
    EXPECT_EQ(one.calls().size(), 2U);
  }
}

TEST_F(Commands, OverTheCapNothingIsCreated) {
  server.On("POST /v1/replays", 200, R"({"would_requeue":20000,"over_cap":true,"by_class":{},"by_type":{}})");
  Ran ran = runner.Run({"replay", "--all", "--yes"});
  EXPECT_EQ(ran.code, kRefused);
  EXPECT_THAT(ran.err, HasSubstr("--force"));
  EXPECT_EQ(runner.Run({"replay", "--all", "--dry-run"}).code, kDone);
  EXPECT_EQ(server.calls().size(), 2U);
}

TEST_F(Commands, StoppingToWatchLeavesTheReplayAndSaysSo) {
  server.On("POST /v1/replays", 200, kPlan);
  server.On("POST /v1/replays", 202, R"({"id":5,"count":3})");
  server.On("GET /v1/replays/5", 200, Progress("running", 1, 0));
  runner.waits = 1;
  Ran ran = runner.Run({"replay", "--all", "--yes"});
  EXPECT_EQ(ran.code, kPartly);
  EXPECT_THAT(ran.err, HasSubstr("dlo replays 5"));
}

TEST_F(Commands, AReplayThatHaltedEndsTheWatchAndSaysWhatToDo) {
  server.On("POST /v1/replays", 200, kPlan);
  server.On("POST /v1/replays", 202, R"({"id":5,"count":3})");
  server.On(
      "GET /v1/replays/5", 200,
      R"({"id":5,"state":"stopped","word":"11 of 20 are dead again","count":3,"requeued":3,"skipped":0,"committed":1,)"
      R"("dead_again":2,"remaining":0})");
  Ran ran = runner.Run({"replay", "--all", "--yes", "--canary", "2", "--rate", "5", "--stagger-ms", "70"});
  EXPECT_EQ(ran.code, kPartly);
  EXPECT_THAT(ran.err, HasSubstr("11 of 20 are dead again"));
  EXPECT_THAT(ran.err, HasSubstr("dlo replays resume 5"));
  EXPECT_THAT(server.calls()[1], HasSubstr(R"("canary":2)"));
  EXPECT_THAT(server.calls()[1], HasSubstr(R"("stagger_ms":70)"));
}

TEST_F(Commands, ReplaysAreListedShownAndSteered) {
  const std::string progress =
      R"({"id":5,"state":"paused","word":"lunch","word_of":"ann","kind":"replay","count":3,"requeued":1,"queued":2,)"
      R"("running":0,"skipped":0,"committed":1,"already_applied":0,"dead_again":0,"remaining":2,"stop_percent":50})";
  server.On("GET /v1/replays", 200, R"({"items":[)" + progress + R"(],"next":null})");
  server.On("GET /v1/replays/5", 200, progress);
  server.On("GET /v1/replays/5/items?limit=50&result=dead_again", 200,
            R"({"items":[{"id":7,"state":"ended","result":"dead_again","reason":"permanent: gone"}],"next":"7"})");
  for (const char* act : {"pause", "resume", "cancel"})
    server.On("POST /v1/replays/5/" + std::string(act), 200, progress);
  for (const auto& words : {std::vector<std::string>{"replays"}, {"replays", "list"}}) {
    EXPECT_THAT(runner.Run(words).out, HasSubstr("paused"));
  }
  for (const auto& words : {std::vector<std::string>{"replays", "5"}, {"replays", "show", "5"}}) {
    EXPECT_THAT(runner.Run(words).out, HasSubstr("said ann: lunch"));
  }
  const Ran items = runner.Run({"replays", "items", "5", "--result", "dead_again"});
  EXPECT_THAT(items.out, HasSubstr("permanent: gone"));
  EXPECT_THAT(items.err, HasSubstr("--cursor 7"));
  for (const char* act : {"pause", "resume", "cancel"}) {
    EXPECT_THAT(runner.Run({"replays", act, "5", "--reason", "why"}).out, HasSubstr("paused: replay 5: 1 of 3"));
    EXPECT_EQ(server.calls().back(), "POST /v1/replays/5/" + std::string(act) + R"( {"reason":"why"})");
  }
  EXPECT_EQ(runner.Run({"replays", "5", "--json"}).out, progress + "\n");
  EXPECT_EQ(runner.Run({"replays", "pause"}).code, kUsage);
  EXPECT_EQ(runner.Run({"replays", "show", "x"}).code, kUsage);
}

TEST_F(Commands, DrainCountsAsksAndReports) {
  server.On("GET /v1/dead-letters/count?state=dead&class=exhausted&source=stripe", 200, R"({"count":3})");
  server.On("POST /v1/drain", 200, R"({"committed":3,"requeued":0,"parked":0})");
  server.On("POST /v1/drain", 200, R"({"committed":2,"requeued":0,"parked":1})");
  server.On("POST /v1/drain", 202, R"({"committed":0,"requeued":3,"parked":0,"id":9})");
  Ran ran = runner.Run({"drain", "--source", "stripe", "--yes"});
  EXPECT_EQ(ran.code, kDone) << ran.err;
  EXPECT_EQ(ran.out, "committed 3, requeued 0, parked 0\n");
  EXPECT_EQ(server.calls().back(), R"(POST /v1/drain {"wait":"30s","source":"stripe"})");
  EXPECT_EQ(runner.Run({"drain", "--source", "stripe", "--yes"}).code, kPartly);
  ran = runner.Run({"drain", "--source", "stripe", "--yes"});
  EXPECT_EQ(ran.code, kPartly);
  EXPECT_THAT(ran.out, HasSubstr("dlo replays 9"));
}

TEST_F(Commands, GroupsStatsSourcesRejectedAndAuditAreTables) {
  server.On(
      "GET /v1/dead-letters/groups?by=fingerprint", 200,
      PageOf(R"({"value":"00112233aabbccdd","count":12,"class":"permanent","kind":"invoice.paid","code":"c",)"
             R"("message":"m","first_seen":"2026-11-30T00:00:00Z","last_seen":"2026-11-30T00:40:00Z","sample_id":7})"));
  EXPECT_THAT(runner.Run({"groups"}).out, HasSubstr("12  00112233aabbccdd  permanent  invoice.paid"));
  server.On("GET /v1/stats", 200,
            R"({"counts":[{"source":"stripe","state":"dead","class":"permanent","count":2},)"
            R"({"source":"stripe","state":"dead","class":"exhausted","count":1}],)"
            R"("oldest":[{"source":"stripe","id":7,"parked_at":"2026-11-30T00:00:00Z"}],)"
            R"("paused_sources":[{"source":"stripe","since":"2026-11-30T00:00:00Z","message":"m","fingerprint":"f"}],)"
            R"("breakers":[{"target":"billing","state":"open","retry_at":null},{"target":"ok","state":"closed"}],)"
            R"("accounting":{"receipts":3,"duplicates":0,"pruned":0,"difference":1}})");
  Ran stats = runner.Run({"stats"});
  for (const char* part : {"stripe     3", "(event 7)", "dlo source resume stripe", "Breaker of target billing is open",
                           "accounting difference 1: events were lost"}) {
    EXPECT_THAT(stats.out, HasSubstr(part));
  }
  EXPECT_THAT(stats.out, Not(HasSubstr("target ok")));
  server.On("GET /v1/sources", 200,
            PageOf(R"({"name":"stripe","scheme":"stripe","target":"billing","state":"paused",)"
                   R"("paused":{"source":"stripe","since":"2026-11-30T00:00:00Z","message":"m"}},)"
                   R"({"name":"github","scheme":"github","target":"ci","paused":null})"));
  Ran sources = runner.Run({"source", "list"});
  EXPECT_THAT(sources.out, HasSubstr("paused"));
  EXPECT_THAT(sources.out, HasSubstr("github  github  ci       running"));
  server.On("POST /v1/sources/stripe/resume", 200, R"({"source":"stripe","state":"running"})");
  EXPECT_EQ(runner.Run({"source", "resume", "stripe"}).code, kDone);
  server.On(
      "GET /v1/rejected?limit=50", 200,
      PageOf(
          R"({"id":3,"at":"2026-11-30T00:00:00Z","source":"stripe","reason":"no_match","remote":"::1","body_bytes":9})"));
  EXPECT_THAT(runner.Run({"rejected"}).out, HasSubstr("no_match"));
  server.On("GET /v1/audit?limit=50", 200,
            PageOf(R"({"seq":4,"at":"2026-11-30T00:00:00Z","actor":"ann","role":"admin","action":"hold","event_id":7,)"
                   R"("reason":"r","details":{"link":"u"}})"));
  EXPECT_THAT(runner.Run({"audit"}).out, HasSubstr(R"({"link":"u"})"));
}

TEST_F(Commands, ATokenIsPrintedAloneOnStdout) {
  server.On("POST /v1/tokens", 200, R"({"name":"ci","role":"viewer","token":"dlo_abc"})");
  Ran ran = runner.Run({"token", "create", "ci", "--role", "viewer"});
  EXPECT_EQ(ran.out, "dlo_abc\n");
  EXPECT_THAT(ran.err, HasSubstr("shown this once"));
  EXPECT_EQ(server.calls().back(), R"(POST /v1/tokens {"name":"ci","role":"viewer"})");
  server.On("POST /v1/tokens/ci%2F1/revoke", 200, "{}");
  EXPECT_EQ(runner.Run({"token", "revoke", "ci/1"}).code, kDone);
}

TEST_F(Commands, TailPrintsArrivalsOnceAndOutlivesARestart) {
  const std::string path = "GET /v1/dead-letters?limit=500&since=2026-11-01T00%3A00%3A00Z";
  const std::string again =
      R"({"id":7,"state":"dead","class":"poison","parked_at":"2026-11-30T00:30:00Z","message":"m2"})";
  const std::string other =
      R"({"id":3,"state":"dead","class":"exhausted","parked_at":"2026-11-30T00:20:00Z","message":"m3"})";
  server.On(path, 200, PageOf(kLetter));
  server.On(path, 200, PageOf(kLetter));
  server.On(path, 200, PageOf(again + "," + other));
  runner.waits = 4;
  Ran ran = runner.Run({"tail", "--since", "2026-11-01T00:00:00Z"});
  EXPECT_EQ(ran.code, kDone);
  EXPECT_THAT(ran.err, HasSubstr("1 there already"));
  EXPECT_EQ(std::count(ran.out.begin(), ran.out.end(), '\n'), 2) << ran.out;
  EXPECT_LT(ran.out.find("m3"), ran.out.find("m2"));  // in the order of their parking
}

TEST_F(Commands, ServeAndConfigCheckAreHandedOver) {
  EXPECT_EQ(runner.Run({"serve", "--config", "a.toml"}).code, 0);
  EXPECT_EQ(runner.served, "a.toml");
  EXPECT_EQ(runner.Run({"config", "check", "b.toml"}).code, 1);
  EXPECT_EQ(runner.checked, "b.toml");
  EXPECT_EQ(runner.Run({"config", "check", "--config", "c.toml"}).code, 1);
  EXPECT_EQ(runner.checked, "c.toml");
  EXPECT_EQ(runner.Run({"serve", "--nonsense"}).code, kUsage);
}

}  // namespace
}  // namespace dlo::cli
