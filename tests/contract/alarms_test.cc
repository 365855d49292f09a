#include <map>

#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractAlarms : public LetterTest {
 protected:
  static Alert MakeAlert(const std::string& id, const std::string& name = "cause", const std::string& receiver = "r") {
    return {.alert = id,
            .receiver = receiver,
            .rule = "arrivals",
            .name = name,
            .source = "stripe",
            .route = "page",
            .status = "firing",
            .since = kStart,
            .created_at = kStart,
            .n = 1,
            .next_at = kStart};
  }
  AlarmPass PassNow() {
    const AlarmsNow now = OrThrow(store_->ReadAlarms());
    return {.pass = now.pass, .taken = now.arrivals};
  }
  static std::int64_t Sum(const std::vector<Arrival>& arrivals) {
    std::int64_t n = 0;
    for (const Arrival& a : arrivals) n += a.n;
    return n;
  }
};

TEST_P(ContractAlarms, EachLetterArrivesOnceGroupedByCause) {
  for (int i = 0; i < 5; ++i) Dead("evt_" + std::to_string(i), "sub_" + std::to_string(i));
  Receipt invalid = MakeReceipt("evt_invalid");
  invalid.disposition = Disposition::invalid;
  Accept(std::move(invalid));
  Accept(MakeReceipt("evt_fine"));
  Succeed(ClaimOne());
  Settle();
  const AlarmsNow now = OrThrow(store_->ReadAlarms());
  std::map<FailureClass, std::int64_t> n;
  for (const Arrival& a : now.arrivals) n[a.failure_class] += a.n;
  EXPECT_EQ(Sum(now.arrivals), 6);
  EXPECT_EQ(n[FailureClass::invalid], 1);
  EXPECT_LT(now.arrivals.size(), 6U);
}

TEST_P(ContractAlarms, AreTakenInTheTransactionThatTellsOfThem) {
  Dead("evt_1", "sub_1");
  AlarmPass pass = PassNow();
  Dead("evt_2", "sub_2");  // comes between the look and the write
  pass.alerts = {MakeAlert("alert_1")};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  EXPECT_EQ(Sum(OrThrow(store_->ReadAlarms()).arrivals), 1) << "what came meanwhile is not lost";
  pass.alerts = {MakeAlert("alert_again")};
  EXPECT_FALSE(OrThrow(store_->CommitAlarms(pass))) << "another pass came first";
  EXPECT_EQ(OrThrow(store_->Alerts(false, 0, 10)).size(), 1U);
  Reopen();
  EXPECT_EQ(Sum(OrThrow(store_->ReadAlarms()).arrivals), 1);
  EXPECT_EQ(OrThrow(store_->Alerts(true, 0, 10)).size(), 1U);
}

TEST_P(ContractAlarms, ConditionsAreKeptAsWritten) {
  AlarmPass pass = PassNow();
  AlarmCondition c{.receiver = "r", .rule = "depth", .route = "ticket", .since = kStart, .pending = 3, .what = "w"};
  pass.changed = {c};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  Reopen();
  EXPECT_EQ(OrThrow(store_->ReadAlarms()).conditions, std::vector{c});
  c.clear_since = kStart;
  c.told_at = kStart;
  pass = PassNow();
  pass.changed = {c};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  EXPECT_EQ(OrThrow(store_->ReadAlarms()).conditions, std::vector{c});
  pass = PassNow();
  pass.ended = {c};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  EXPECT_TRUE(OrThrow(store_->ReadAlarms()).conditions.empty());
}

TEST_P(ContractAlarms, ALaterAlertTakesThePlaceOfAnUnsentOneAndItsCount) {
  for (int i = 0; i < 100; ++i) {
    AlarmPass pass = PassNow();
    pass.alerts = {MakeAlert("alert_" + std::to_string(i)), MakeAlert("other_" + std::to_string(i), "cause", "other")};
    EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  }
  EXPECT_EQ(OrThrow(store_->PendingAlerts()), 2);
  const auto due = OrThrow(store_->DueAlert("r", kStart));
  ASSERT_TRUE(due);
  EXPECT_EQ(due->alert, "alert_99");
  EXPECT_EQ(due->n, 100);
  OrThrow(store_->AlertAttempted(due->id, "HTTP 200", kStart, {}));
  AlarmPass pass = PassNow();
  pass.alerts = {MakeAlert("after")};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  EXPECT_EQ(OrThrow(store_->DueAlert("r", kStart))->n, 1) << "what was sent is not told again";
}

TEST_P(ContractAlarms, AnUnsentAlertIsDueAgainAfterItsFailureAndAfterAKill) {
  AlarmPass pass = PassNow();
  pass.alerts = {MakeAlert("alert_1")};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  const auto due = OrThrow(store_->DueAlert("r", kStart));
  ASSERT_TRUE(due);
  OrThrow(store_->AlertAttempted(due->id, "HTTP 500", kStart, kStart + std::chrono::seconds(2)));
  EXPECT_FALSE(OrThrow(store_->DueAlert("r", kStart)));
  const auto later = kStart + std::chrono::seconds(2);
  store_.reset();
  place_ = place_->AsIfKilledNow();
  Open();
  const auto again = OrThrow(store_->DueAlert("r", later));
  ASSERT_TRUE(again);
  EXPECT_EQ(std::make_tuple(again->alert, again->attempts, again->answer), std::make_tuple("alert_1", 1, "HTTP 500"));
  OrThrow(store_->AlertAttempted(again->id, "HTTP 200", later, {}));
  OrThrow(store_->AlertAttempted(again->id, "HTTP 500", later, later));  // a late answer changes nothing
  EXPECT_EQ(OrThrow(store_->GetAlert(again->id)).sent_at, later);
  OrThrow(store_->AlertAttempted(12'345, "HTTP 200", later, {}));  // gone: no error
}

TEST_P(ContractAlarms, SentOnesAreKeptToALimitAndUnsentOnesAlways) {
  AlarmPass pass = PassNow();
  pass.alerts = {MakeAlert("unsent", "unsent")};
  for (int i = 0; i < 1'100; ++i) {
    pass.alerts.push_back(MakeAlert("alert_" + std::to_string(i), "cause" + std::to_string(i), "other"));
  }
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  while (const auto due = OrThrow(store_->DueAlert("other", kStart))) {
    OrThrow(store_->AlertAttempted(due->id, "HTTP 200", kStart, {}));
  }
  EXPECT_TRUE(OrThrow(store_->DueAlert("r", kStart)));
  std::int64_t n = 0;
  for (std::int64_t before = 0;;) {
    const auto page = OrThrow(store_->Alerts(false, before, 500));
    if (page.empty()) break;
    n += std::ssize(page);
    before = page.back().id;
  }
  EXPECT_LE(n, 1'001);
  EXPECT_GE(n, 1'000);
}

TEST_P(ContractAlarms, ReceiversThatAreGoneLeaveNothingUnsent) {
  AlarmPass pass = PassNow();
  pass.alerts = {MakeAlert("a"), MakeAlert("b", "cause", "gone")};
  pass.changed = {{.receiver = "gone", .rule = "depth", .route = "page", .since = kStart}};
  EXPECT_TRUE(OrThrow(store_->CommitAlarms(pass)));
  EXPECT_EQ(OrThrow(store_->KeepReceivers({"r"})), 1);
  EXPECT_EQ(OrThrow(store_->PendingAlerts()), 1);
  EXPECT_TRUE(OrThrow(store_->ReadAlarms()).conditions.empty());
}

TEST_P(ContractAlarms, ATestAlertLeavesAnAuditRecord) {
  Alert test = MakeAlert("alert_test");
  test.status = "test";
  EXPECT_FALSE(store_->QueueTestAlert(test, Actor{}, kStart)) << "without a name nothing is done";
  EXPECT_EQ(OrThrow(store_->PendingAlerts()), 0);
  const std::int64_t id = OrThrow(store_->QueueTestAlert(test, Actor{.name = "ada"}, kStart));
  EXPECT_EQ(OrThrow(store_->GetAlert(id)).status, "test");
  EXPECT_EQ(OrThrow(store_->Audit(0, 0, 1)).at(0).action, "alert_test");
  EXPECT_EQ(store_->GetAlert(id + 1).error().code, "not_found");
}

TEST_P(ContractAlarms, OverdueHoldsAndNewestLettersAreFound) {
  const EventId held = Dead("evt_1", "sub_1");
  const EventId dead = Dead("evt_2", "sub_2");
  TriageAct act{.id = held, .act = Act::hold};
  act.hold = {.link = "https://x/1", .until = kStart + std::chrono::hours(1)};
  OrThrow(OrThrow(store_->Triage(std::span(&act, 1), Actor{.name = "ada"}, kStart)).front());
  EXPECT_TRUE(OrThrow(store_->OverdueHolds(kStart + std::chrono::hours(1))).empty());
  const auto holds = OrThrow(store_->OverdueHolds(kStart + std::chrono::hours(1) + Duration(1)));
  ASSERT_EQ(holds.size(), 1U);
  EXPECT_EQ(std::make_tuple(holds[0].source, holds[0].n, holds[0].sample), std::make_tuple("stripe", 1, held));
  const auto letters = OrThrow(store_->NewestLetters(kStart - std::chrono::hours(1), 10));
  ASSERT_EQ(letters.size(), 2U);
  EXPECT_EQ(letters[0].id, dead);
  EXPECT_EQ(OrThrow(store_->NewestLetters(kStart - std::chrono::hours(1), 1)).size(), 1U);
  EXPECT_TRUE(OrThrow(store_->NewestLetters(kStart + std::chrono::hours(9), 10)).empty());
  EXPECT_EQ(OrThrow(store_->NewestTraffic(10)).size(), 2U);
  const auto last = OrThrow(store_->LastReceipts());
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].source, "stripe");
}

DLO_FOR_EACH_STORE(ContractAlarms);

}  // namespace
}  // namespace dlo::store::contract
