#include "deadletter/diagnosis.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/time_text.h"
#include "deadletter/probe.h"

namespace dlo::deadletter {
namespace {

using std::chrono::hours;
using std::chrono::minutes;

const Time kNow = *ParseTime("2026-03-09T12:00:00Z");

/// `n` letters, `apart` from each other, the newest `ago`.
struct Batch {
  int n = 1;
  Duration ago{}, apart{};
  std::vector<std::string> kinds = {"invoice.paid"};
  std::string code = "schema_mismatch", message = "unexpected field";
  int accounts = 1'000;
  FailureClass failure_class = FailureClass::permanent;
  std::string version = "7";
};

struct Case {
  const char* name;
  std::vector<Batch> batches;
  std::vector<Shape> want;
  int traffic_accounts = 1'000;
  bool breaker_open = false;
  std::vector<std::string> versions_before = {"7"};
};

DiagnosisReport ReportOf(const Case& c) {
  DiagnosisSummary summary;
  summary.now = kNow;
  EventId id = 100'000;
  for (const Batch& batch : c.batches) {
    for (int i = 0; i < batch.n; ++i) {
      const std::string& kind = batch.kinds[static_cast<std::size_t>(i) % batch.kinds.size()];
      summary.letters.push_back({.id = id--,
                                 .source = "stripe",
                                 .kind = kind,
                                 .account = batch.accounts == 0 ? "" : fmt::format("acct_{}", i % batch.accounts),
                                 .failure_class = batch.failure_class,
                                 .fingerprint = batch.code + "/" + kind,
                                 .code = batch.code,
                                 .message = batch.message,
                                 .handler_version = batch.version,
                                 .parked_at = kNow - batch.ago - i * batch.apart});
    }
  }
  for (int i = 0; i < 1'000 && c.traffic_accounts > 0; ++i) {
    summary.traffic.push_back({.source = "stripe", .account = fmt::format("acct_{}", i % c.traffic_accounts)});
  }
  if (c.breaker_open) summary.breaker_open = {"stripe"};
  return Diagnose(summary, [&](EventId) { return c.versions_before; });
}

const std::vector<std::string> kFourKinds = {"a", "b", "c", "d"};
const Batch kBurst{.n = 60, .ago = minutes(10), .apart = std::chrono::seconds(20)};
const Batch kTrickle{.n = 40,
                     .ago = minutes(10),
                     .apart = hours(3),
                     .kinds = kFourKinds,
                     .code = "not_found",
                     .message = "No such customer"};

Batch With(Batch batch, const std::function<void(Batch&)>& change) {
  change(batch);
  return batch;
}

TEST(Diagnosis, TellsTheShapesApartAndTheirNearMisses) {
  const Case cases[] = {
      {"a burst of one kind", {kBurst}, {Shape::contract_change}},
      {"with a new handler", {With(kBurst, [](Batch& b) { b.version = "8"; })}, {Shape::bad_deploy}},
      {"a handler that tells no version", {With(kBurst, [](Batch& b) { b.version = ""; })}, {Shape::contract_change}},
      {"accounts unknown", {With(kBurst, [](Batch& b) { b.accounts = 0; })}, {Shape::contract_change}},
      {"ten is a burst", {With(kBurst, [](Batch& b) { b.n = 10; })}, {Shape::contract_change}},
      {"nine is none", {With(kBurst, [](Batch& b) { b.n = 9; })}, {Shape::none}},
      {"the same over a week is none",
       {With(kBurst, [](Batch& b) { b.n = 500, b.apart = minutes(20); })},
       {Shape::none}},
      {"steady for a week, ten an hour, is no burst",
       {With(kBurst, [](Batch& b) { b.n = 1'600, b.apart = minutes(6); })},
       {Shape::none}},
      {"begun two days ago and going on",
       {With(kBurst, [](Batch& b) { b.n = 480, b.apart = minutes(6); })},
       {Shape::contract_change}},
      {"many messages of one kind",
       {With(kBurst, [](Batch& b) { b.n = 30; }), With(kBurst, [](Batch& b) { b.n = 30, b.code = "other"; })},
       {Shape::none}},
      {"few accounts", {With(kBurst, [](Batch& b) { b.accounts = 2; })}, {Shape::accounts}},
      {"few accounts, many kinds, slowly",
       {With(kTrickle, [](Batch& b) { b.accounts = 3, b.code = "null_field", b.message = "was null"; })},
       {Shape::accounts}},
      {"four accounts are not few",
       {With(kTrickle,
             [](Batch& b) { b.accounts = 4, b.n = 400, b.apart = minutes(20), b.code = "x", b.message = "y"; })},
       {Shape::none}},
      {"few accounts send at all", {With(kBurst, [](Batch& b) { b.accounts = 2; })}, {Shape::contract_change}, 2},
      {"traffic unknown", {With(kBurst, [](Batch& b) { b.accounts = 2; })}, {Shape::contract_change}, 0},
      {"four letters of one account", {With(kBurst, [](Batch& b) { b.n = 4, b.accounts = 1; })}, {Shape::none}},
      {"a steady trickle over many kinds", {kTrickle}, {Shape::lifecycle}},
      {"many kinds burst at once",
       {With(kTrickle, [](Batch& b) { b.n = 60, b.apart = std::chrono::seconds(20); })},
       {Shape::none}},
      {"many kinds burst with a new handler",
       {With(kTrickle, [](Batch& b) { b.n = 60, b.apart = std::chrono::seconds(20), b.version = "8"; })},
       {Shape::bad_deploy}},
      {"over two kinds", {With(kTrickle, [](Batch& b) { b.kinds = {"a", "b"}; })}, {Shape::none}},
      {"naming nothing missing", {With(kTrickle, [](Batch& b) { b.code = "bad", b.message = "bad"; })}, {Shape::none}},
      {"all in one hour", {With(kTrickle, [](Batch& b) { b.apart = minutes(1); })}, {Shape::none}},
      {"an outage that goes on",
       {With(kBurst, [](Batch& b) { b.failure_class = FailureClass::exhausted; })},
       {Shape::outage},
       1'000,
       true},
      {"an outage that is over",
       {With(kBurst, [](Batch& b) { b.failure_class = FailureClass::exhausted, b.kinds = kFourKinds; })},
       {Shape::outage}},
      {"four exhausted",
       {With(kBurst, [](Batch& b) { b.failure_class = FailureClass::exhausted, b.n = 4; })},
       {Shape::none},
       1'000,
       true},
      {"two shapes at once", {kBurst, kTrickle}, {Shape::contract_change, Shape::lifecycle}},
      {"a shape and a rest",
       {kBurst, With(kBurst, [](Batch& b) { b.n = 3, b.kinds = {"z"}, b.code = "odd"; })},
       {Shape::contract_change, Shape::none}},
  };
  for (const Case& c : cases) {
    std::vector<Shape> got;
    std::int64_t letters = 0;
    const DiagnosisReport report = ReportOf(c);
    for (const Finding& finding : report.findings) {
      got.push_back(finding.shape);
      letters += finding.evidence.letters;
      EXPECT_FALSE(finding.says.empty() || finding.next.empty()) << c.name;
    }
    EXPECT_EQ(got, c.want) << c.name << ": " << report.findings[0].says;
    EXPECT_EQ(letters, report.looked_at) << c.name << ": each letter is in one finding";
  }
}

TEST(Diagnosis, GivesItsEvidence) {
  const DiagnosisReport report = ReportOf({"", {With(kBurst, [](Batch& b) { b.version = "8"; })}, {}});
  const Evidence& e = report.findings[0].evidence;
  EXPECT_EQ(e.letters, 60);
  EXPECT_EQ(e.one_message, 60);
  EXPECT_EQ(e.last_seen, kNow - minutes(10));
  EXPECT_EQ(e.sample, 100'000);
  EXPECT_EQ(e.accounts_in_all, 60U);
  EXPECT_EQ(e.accounts.size(), 5U);
  EXPECT_EQ(e.versions, std::vector<std::string>{"8"});
  EXPECT_EQ(e.versions_before, std::vector<std::string>{"7"});
  std::int64_t drawn = 0;
  for (const std::int64_t part : e.curve) drawn += part;
  EXPECT_EQ(drawn, 60);
}

TEST(Diagnosis, AStoreThatIsAlwaysEmptyIsSuspiciousOnceEnoughWentThrough) {
  const struct {
    std::int64_t events, letters_ever;
    bool arrived;
    Shape want;
  } rows[] = {{0, 0, false, Shape::none},
              {kEnoughEvents - 1, 0, false, Shape::none},
              {kEnoughEvents, 0, false, Shape::always_empty},
              {kEnoughEvents, 1, false, Shape::none},
              {kEnoughEvents, 0, true, Shape::none}};
  for (const auto& row : rows) {
    DiagnosisSummary s;
    s.now = kNow;
    s.events = row.events;
    s.letters_ever = row.letters_ever;
    if (row.arrived) s.last_arrival_at = kNow - hours(300);
    const DiagnosisReport report = Diagnose(s, nullptr);
    ASSERT_EQ(report.findings.size(), 1U);
    EXPECT_EQ(report.findings[0].shape, row.want) << row.events;
  }
}

TEST(ProbeDue, IsAfterQuietAndSoonerAfterAFailure) {
  const auto ago = [](Duration d) { return std::optional<Time>(kNow - d); };
  const Duration day = hours(24);
  EXPECT_FALSE(Probe::Due(Duration(0), {}, {}, false, kNow)) << "off";
  EXPECT_TRUE(Probe::Due(day, {}, {}, false, kNow));
  EXPECT_FALSE(Probe::Due(day, ago(hours(23)), ago(hours(90)), false, kNow));
  EXPECT_FALSE(Probe::Due(day, ago(hours(90)), ago(hours(23)), false, kNow));
  EXPECT_TRUE(Probe::Due(day, ago(day), ago(hours(90)), false, kNow));
  EXPECT_FALSE(Probe::Due(day, {}, ago(minutes(9)), true, kNow));
  EXPECT_TRUE(Probe::Due(day, {}, ago(minutes(10)), true, kNow));
}

}  // namespace
}  // namespace dlo::deadletter
