#include "observe/alarm_rules.h"

#include <gtest/gtest.h>

#include "base/time_text.h"
#include "observe/alert_formats.h"
#include "observe/alert_sender.h"
#include "observe/business_hours.h"
#include "unit/deadletter/fake_store.h"

namespace dlo::observe {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

// A receiver and the state it is in, driven by hand.
class AlarmRules : public ::testing::Test {
 protected:
  AlarmRules() {
    receiver.name = "r";
    receiver.url = "http://h/x";
    facts.now = *ParseTime("2026-03-02T10:00:00Z");  // a Monday
  }

  /// One pass; returns what it told.
  std::vector<store::Alert> Pass(Duration later = Duration(0)) {
    facts.now += later;
    const store::AlarmPass pass = Judge({receiver}, facts, store.alarms);
    changed = ChangesAnything(pass);
    const std::size_t before = store.alerts.size();
    (void)store.CommitAlarms(pass);
    return {store.alerts.begin() + static_cast<std::ptrdiff_t>(before), store.alerts.end()};
  }
  std::vector<std::string> Told(Duration later = Duration(0)) {
    std::vector<std::string> words;
    for (const store::Alert& a : Pass(later)) words.push_back(a.rule + " " + a.status + " " + a.route);
    return words;
  }
  void Arrive(std::int64_t n, const std::string& cause = "00000000000000aa", const std::string& source = "stripe") {
    store.alarms.arrivals.push_back({.source = source,
                                     .fingerprint = cause,
                                     .failure_class = FailureClass::permanent,
                                     .n = n,
                                     .last_at = facts.now,
                                     .sample = 7,
                                     .kind = "invoice.paid",
                                     .code = "bad"});
  }
  void Depth(std::int64_t n, const std::string& source = "stripe") {
    facts.figures.counts = {{source, State::dead, FailureClass::permanent, n}};
  }

  using Words = std::vector<std::string>;
  AlertConfig receiver;
  AlarmFacts facts;
  dlo::testing::FakeStore store;
  bool changed = false;
};

TEST_F(AlarmRules, AQuietOfficeTellsAndWritesNothing) {
  EXPECT_EQ(Told(), Words{});
  EXPECT_FALSE(changed);
}

TEST_F(AlarmRules, ArrivalsAreToldAtOnceThenOnceAMinuteWithTheirNumber) {
  Arrive(3);
  const auto first = Pass();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].n, 3);
  Arrive(400);
  EXPECT_EQ(Told(seconds(1)), Words{});
  Arrive(597);
  EXPECT_EQ(Told(seconds(58)), Words{});
  const auto second = Pass(seconds(1));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].n, 997);
  EXPECT_EQ(second[0].total, 1000);
  EXPECT_EQ(Told(minutes(4)), Words{});
  EXPECT_EQ(Told(minutes(1)), Words{"arrivals resolved page"});
  EXPECT_TRUE(store.alarms.conditions.empty());
}

TEST_F(AlarmRules, CausesAreToldApartUpToALimitAndTheRestTogether) {
  for (std::size_t i = 0; i < kMaxCauses + 30; ++i) Arrive(1, "cause" + std::to_string(i));
  const auto told = Pass();
  EXPECT_EQ(told.size(), kMaxCauses + 1);
  std::int64_t letters = 0;
  for (const store::Alert& a : told) letters += a.n;
  EXPECT_EQ(letters, static_cast<std::int64_t>(kMaxCauses) + 30);
}

TEST_F(AlarmRules, AReceiverHearsOfItsSourcesOnlyAndNeverOfTheProbe) {
  receiver.sources = {"stripe"};
  Arrive(1, "aa", "github");
  Arrive(1, "bb", kProbeName);
  Depth(1000, "github");
  EXPECT_EQ(Told(), Words{});
  receiver.sources.clear();
  Arrive(1, "cc", kProbeName);
  Depth(1000, kProbeName);
  EXPECT_EQ(Told(), Words{});
}

TEST_F(AlarmRules, EachStateFiresPastItsLimitAndNotAtIt) {
  const struct {
    std::string rule;
    std::function<void(AlarmFacts&, bool past)> set;
  } rows[] = {
      {"depth",
       [](AlarmFacts& f, bool past) {
         f.figures.counts = {{"stripe", State::dead, FailureClass::permanent, past ? 101 : 100}};
       }},
      {"oldest", [](AlarmFacts& f,
                    bool past) { f.figures.oldest = {{"stripe", f.now - hours(24) - Duration(past ? 1 : 0), 5}}; }},
      {"overdue_holds",
       [](AlarmFacts& f, bool past) {
         if (past) f.holds = {{"stripe", 2, 5}};
       }},
      {"silent_source",
       [](AlarmFacts& f, bool past) { f.sources = {{"stripe", f.now - hours(1) - Duration(past ? 1 : 0), hours(1)}}; }},
      {"accounting", [](AlarmFacts& f, bool past) { f.figures.accounting_difference = past ? -1 : 0; }},
      {"disk", [](AlarmFacts& f, bool past) { f.disk_level = past ? 1 : 0; }},
      {"probe", [](AlarmFacts& f, bool past) { f.probe_failed = past ? "dispatch: no answer" : ""; }},
  };
  for (const auto& row : rows) {
    store.alarms = {};
    AlarmFacts fresh;
    fresh.now = facts.now;
    facts = fresh;
    row.set(facts, false);
    EXPECT_EQ(Told(), Words{}) << row.rule;
    row.set(facts, true);
    EXPECT_EQ(Told(), Words{row.rule + " firing page"}) << row.rule;
    EXPECT_EQ(Told(seconds(1)), Words{}) << row.rule << " is told once";
    facts = fresh;
    facts.now += seconds(2);
    EXPECT_EQ(Told(), Words{}) << row.rule << " may come back within resolve_after";
    EXPECT_EQ(Told(minutes(5)), Words{row.rule + " resolved page"}) << row.rule;
    receiver.on = {row.rule == "disk" ? "depth" : "disk"};
    row.set(facts, true);
    EXPECT_EQ(Told(), Words{}) << row.rule << " is not wanted";
    receiver.on.clear();
  }
}

TEST_F(AlarmRules, WhatLastsIsRepeatedAfterItsTimeAndNotBefore) {
  Depth(500);
  EXPECT_EQ(Told().size(), 1U);
  EXPECT_EQ(Told(hours(4) - seconds(1)), Words{});
  EXPECT_FALSE(changed) << "a condition that goes on costs no write";
  EXPECT_EQ(Told(seconds(1)), Words{"depth firing page"});
}

TEST_F(AlarmRules, ToAndFroAcrossALimitIsOneAlert) {
  Depth(101);
  EXPECT_EQ(Told().size(), 1U);
  for (int i = 0; i < 20; ++i) {
    Depth(i % 2 == 0 ? 80 : 101);
    EXPECT_EQ(Told(minutes(1)), Words{}) << i;
  }
}

TEST_F(AlarmRules, OutsideBusinessHoursItIsATicketAndWhatLastsIsAPageWhenTheyBegin) {
  receiver.business_hours = BusinessHours{.zone = "Europe/Berlin"};  // 9 to 17: 8 to 16 UTC in March
  receiver.format = "alertmanager";
  facts.now = *ParseTime("2026-03-02T05:00:00Z");
  Depth(500);
  EXPECT_EQ(Told(), Words{"depth firing ticket"});
  EXPECT_EQ(Told(hours(2) + minutes(59)), Words{});
  EXPECT_EQ(Told(minutes(1)), (Words{"depth resolved ticket", "depth firing page"}));
  Depth(0);
  Pass(minutes(1));
  EXPECT_EQ(Told(minutes(5)), Words{"depth resolved page"}) << "ended where it was told";
}

TEST_F(AlarmRules, HeldAlertsAreDueWhenBusinessHoursBegin) {
  receiver.business_hours = BusinessHours{.zone = "UTC"};
  receiver.outside = "hold";
  facts.now = *ParseTime("2026-03-06T18:00:00Z");  // a Friday
  Depth(500);
  const auto told = Pass();
  ASSERT_EQ(told.size(), 1U);
  EXPECT_EQ(FormatTime(told[0].next_at), "2026-03-09T09:00:00Z");
  EXPECT_EQ(told[0].route, "page");
}

TEST(BusinessHoursTest, FollowTheClocksOfTheirZone) {
  const BusinessHours berlin{.zone = "Europe/Berlin"};
  const BusinessHours night{.days = {0}, .from = minutes(150), .to = hours(5), .zone = "Europe/Berlin"};  // Sun 02:30
  const struct {
    BusinessHours hours;
    const char* at;
    bool open;
    const char* next;
  } rows[] = {
      {berlin, "2026-03-27T07:59:59Z", false, "2026-03-27T08:00:00Z"},  // Friday, winter: 8 UTC is 9
      {berlin, "2026-03-27T08:00:00Z", true, "2026-03-27T08:00:00Z"},
      {berlin, "2026-03-27T15:59:59Z", true, "2026-03-27T15:59:59Z"},
      {berlin, "2026-03-27T16:00:00Z", false, "2026-03-30T07:00:00Z"},  // over the change: Monday 9 is 7 UTC
      {berlin, "2026-03-30T07:00:00Z", true, "2026-03-30T07:00:00Z"},
      {berlin, "2026-10-24T12:00:00Z", false, "2026-10-26T08:00:00Z"},  // Saturday before the change back
      {night, "2026-03-29T00:59:59Z", false, "2026-03-29T01:00:00Z"},   // 02:30 does not exist: at the jump to 03:00
      {night, "2026-03-29T01:00:00Z", true, "2026-03-29T01:00:00Z"},
      {night, "2026-10-25T00:29:59Z", false, "2026-10-25T00:30:00Z"},  // 02:30 comes twice: the first
      {night, "2026-10-25T00:30:00Z", true, "2026-10-25T00:30:00Z"},
      {night, "2026-10-25T01:30:00Z", true, "2026-10-25T01:30:00Z"},
  };
  for (const auto& row : rows) {
    const Time at = *ParseTime(row.at);
    EXPECT_EQ(IsOpen(row.hours, at), row.open) << row.at;
    EXPECT_EQ(FormatTime(NextOpening(row.hours, at)), row.next) << row.at;
  }
  EXPECT_TRUE(CheckZone("Europe/Berlin"));
  EXPECT_FALSE(CheckZone("Mars/Olympus"));
  EXPECT_FALSE(CheckZone(""));
}

TEST(AlertFormats, SlackReadsNoMarkupThatAHandlerWrote) {
  AlertConfig receiver{.url = "https://hooks.slack.com/services/T/B/x", .format = "slack"};
  const store::Alert alert{.alert = "alert_1",
                           .rule = "arrivals",
                           .source = "stripe",
                           .route = "page",
                           .status = "firing",
                           .n = 2,
                           .what = "<!channel> & \"x\"",
                           .sample = 7};
  const Outgoing out = Format(receiver, std::nullopt, alert, Time());
  EXPECT_EQ(out.body, R"({"text":"[page] 2 new letters of stripe: &lt;!channel&gt; &amp; \"x\"\ndlo show 7"})");
  EXPECT_EQ(ReceiverName(receiver), "hooks.slack.com") << "the secret is in the path";
}

TEST(AlertFormats, AlertmanagersPathIsAddedWhereItIsLeftOut) {
  for (const auto& [url, want] : {std::pair("http://am:9093", "http://am:9093/api/v2/alerts"),
                                  std::pair("http://am:9093/", "http://am:9093/api/v2/alerts"),
                                  std::pair("http://am/x/api/v2/alerts", "http://am/x/api/v2/alerts")}) {
    EXPECT_EQ(Format({.url = url, .format = "alertmanager"}, std::nullopt, {}, Time()).url, want);
  }
}

// A client whose answers come when the test says.
class SlowClient final : public HttpClient {
 public:
  void Start(HttpRequest request, Done done) override {
    bodies.emplace_back(request.body);
    waiting.push_back(std::move(done));
  }
  void Answer(int status) {
    Done done = std::move(waiting.front());
    waiting.erase(waiting.begin());
    done({.status = status});
  }
  std::vector<std::string> bodies;
  std::vector<Done> waiting;
};

class AlertSenderTest : public ::testing::Test {
 protected:
  AlertSenderTest() { Queue(); }
  void Queue() {
    store::Alert alert{.alert = "alert_1", .receiver = "r", .rule = "depth", .route = "page", .status = "firing"};
    alert.id = ++store.last_alert;
    alert.next_at = now;
    store.alerts.push_back(alert);
  }
  Time now = *ParseTime("2026-03-02T10:00:00Z");
  dlo::testing::FakeStore store;
  SlowClient client;
  ManualClock clock{now};
  SeededRandom random{1};
  NoCrashPoints none;
  Metrics metrics;
  AlertSender sender{{{.name = "r", .url = "http://h/x"}}, {store, client, clock, random, none, metrics, {}}};
};

TEST_F(AlertSenderTest, AReceiverHasOneCallAtATime) {
  Queue();
  EXPECT_TRUE(sender.RunOnce(now));
  EXPECT_TRUE(sender.RunOnce(now));
  EXPECT_EQ(client.bodies.size(), 1U);
  client.Answer(200);
  EXPECT_TRUE(sender.RunOnce(now));
  EXPECT_EQ(client.bodies.size(), 2U);
  EXPECT_TRUE(store.alerts[0].sent_at);
}

TEST_F(AlertSenderTest, AFailureIsTriedAgainLaterWithTheSameBytes) {
  for (const int status : {500, 404, 302}) {
    EXPECT_TRUE(sender.RunOnce(now));
    client.Answer(status);
    EXPECT_TRUE(sender.RunOnce(now));
    EXPECT_FALSE(store.alerts[0].sent_at);
    EXPECT_GT(store.alerts[0].next_at, now);
    now = store.alerts[0].next_at;
  }
  EXPECT_TRUE(sender.RunOnce(now));
  client.Answer(204);
  EXPECT_TRUE(sender.RunOnce(now));
  EXPECT_TRUE(store.alerts[0].sent_at);
  EXPECT_EQ(client.bodies, std::vector<std::string>(4, client.bodies[0]));
}

TEST_F(AlertSenderTest, ADiskThatRefusesTheMarkDoesNotMakeItRepeatItself) {
  EXPECT_TRUE(sender.RunOnce(now));
  client.Answer(200);
  store.broken = Error{ErrorKind::unavailable, "disk_full", "full"};
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(sender.RunOnce(now));
  store.broken.reset();
  EXPECT_TRUE(sender.RunOnce(now));
  EXPECT_EQ(client.bodies.size(), 1U);
  EXPECT_TRUE(store.alerts[0].sent_at);
}

TEST(AlertBackoff, GrowsToFiveMinutesAndHeedsRetryAfterUpToAnHour) {
  EXPECT_EQ(AlertSender::Backoff(0, 0.5, {}), seconds(2));
  EXPECT_EQ(AlertSender::Backoff(1, 0.5, {}), seconds(4));
  EXPECT_EQ(AlertSender::Backoff(0, 0.0, {}), seconds(1));
  EXPECT_EQ(AlertSender::Backoff(1'000'000, 0.5, {}), minutes(5));
  EXPECT_EQ(AlertSender::Backoff(0, 0.5, seconds(90)), seconds(90));
  EXPECT_EQ(AlertSender::Backoff(0, 0.5, hours(48)), hours(1));
}

}  // namespace
}  // namespace dlo::observe
