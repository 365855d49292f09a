#include "contract/fixture.h"

#include <future>

#include "contract/embedded_place.h"
#include "model/fingerprint.h"

namespace dlo::store::contract {

std::vector<StoreFactory> Factories() {
  return {{"Embedded", [] { return std::make_unique<EmbeddedPlace>(); }}};
}

Receipt MakeReceipt(const std::string& key, const std::string& subject, const std::string& source) {
  Receipt receipt;
  receipt.source = source;
  receipt.key = key;
  receipt.kind = "invoice.paid";
  receipt.subject = subject;
  receipt.account = "acct_1";
  receipt.received_at = kStart;
  receipt.verdict = {.verified = true, .scheme = "stripe", .secret_id = "secrets[0]", .signed_at = kStart};
  receipt.headers = {{"Content-Type", "application/json"}, {"Stripe-Signature", "t=1,v1=00"}};
  receipt.body = R"({"id":")" + key + R"("})";
  return receipt;
}

Transition Ended(const Claimed& claimed, State to, Time at) {
  Transition t;
  t.id = claimed.run.id;
  t.token = claimed.run.token;
  t.to = to;
  t.crashes = claimed.run.crashes;
  t.replays_failed = claimed.run.replays_failed;
  t.at = at;
  t.outcome = Outcome::Applied("row 7");
  if (to == State::waiting) {
    t.outcome = Outcome::Retryable("http_503", "try later");
    t.due_at = at + std::chrono::seconds(5);
    t.fingerprint = Fingerprint(FailureClass::exhausted, t.outcome.code, t.outcome.message, claimed.run.kind);
  }
  if (to == State::dead) {
    t.outcome = Outcome::Permanent("http_422", "No such subscription");
    t.failure_class = FailureClass::permanent;
    t.fingerprint = Fingerprint(t.failure_class, t.outcome.code, t.outcome.message, claimed.run.kind);
  }
  if (to == State::resolved) {
    t.outcome = Outcome::NotApplicable("not ours");
    t.resolve_code = ResolveCode::other;
  }
  if (claimed.run.replaying && to != State::waiting) {
    t.replay_result = to == State::dead       ? ReplayResult::dead_again
                      : to == State::resolved ? ReplayResult::resolved
                                              : ReplayResult::committed;
    if (to == State::dead) ++t.replays_failed;
  }
  return t;
}

std::vector<EventId> Ids(const std::vector<Claimed>& claimed) {
  std::vector<EventId> ids;
  for (const Claimed& one : claimed) ids.push_back(one.run.id);
  return ids;
}

void StoreTest::SetUp() {
  place_ = GetParam().make();
  Open();
}

void StoreTest::TearDown() {
  if (store_) ExpectLawful();
}

void StoreTest::Open() {
  Result<std::unique_ptr<Store>> store = place_->Open(clock_, options_);
  ASSERT_TRUE(store) << store.error().message;
  store_ = std::move(*store);
}

void StoreTest::Reopen() {
  store_.reset();
  Open();
}

Result<std::vector<Accepted>> StoreTest::TryAccept(std::vector<Receipt> receipts) {
  std::vector<std::shared_ptr<Receipt>> batch;
  for (Receipt& receipt : receipts) batch.push_back(std::make_shared<Receipt>(std::move(receipt)));
  std::promise<Result<std::vector<Accepted>>> answer;
  auto answered = answer.get_future();
  store_->Accept(std::move(batch),
                 [&answer](Result<std::vector<Accepted>> result) { answer.set_value(std::move(result)); });
  return answered.get();
}

std::vector<Accepted> StoreTest::Accept(std::vector<Receipt> receipts) {
  Result<std::vector<Accepted>> accepted = TryAccept(std::move(receipts));
  EXPECT_TRUE(accepted) << accepted.error().message;
  Settle();
  return accepted.value_or(std::vector<Accepted>(1));
}

Accepted StoreTest::Accept(Receipt receipt) {
  std::vector<Receipt> batch;
  batch.push_back(std::move(receipt));
  return Accept(std::move(batch)).at(0);
}

void StoreTest::Settle() {
  for (bool settled = false; !settled;) {
    const Result<Figures> figures = store_->Read();
    ASSERT_TRUE(figures) << figures.error().message;
    settled = figures->indexed == figures->receipts;
    // Waits its turn behind the store's work, so that nothing is under way, or read from the clock, when it returns.
    ASSERT_TRUE(store_->Exchange({.finished = {}, .wants = {}, .lease = lease_, .now = Now()}));
  }
}

ExchangeResult StoreTest::Exchange(std::vector<Transition> finished, std::vector<ClaimWant> wants) {
  Result<ExchangeResult> result =
      store_->Exchange({.finished = finished, .wants = wants, .lease = lease_, .now = Now()});
  EXPECT_TRUE(result) << result.error().message;
  return result.value_or(ExchangeResult{});
}

std::vector<Claimed> StoreTest::Claim(int max, const std::string& source) {
  return Exchange({}, {{source, "billing", max}}).claimed;
}

Claimed StoreTest::ClaimOne() {
  std::vector<Claimed> claimed = Claim(1);
  EXPECT_EQ(claimed.size(), 1U) << "nothing is due";
  return claimed.empty() ? Claimed{} : std::move(claimed[0]);
}

ApplyStatus StoreTest::Apply(const Transition& transition) {
  const ExchangeResult result = Exchange({transition}, {});
  EXPECT_EQ(result.applied.size(), 1U);
  return result.applied.empty() ? ApplyStatus::late : result.applied[0];
}

Letter StoreTest::Get(EventId id) {
  Result<LetterDetail> detail = store_->Show(id);
  EXPECT_TRUE(detail) << detail.error().message;
  return detail ? detail->letter : Letter{};
}

std::int64_t StoreTest::CountIn(State state) {
  Filter filter;
  filter.states = {state};
  const Result<std::int64_t> count = store_->Count(filter);
  EXPECT_TRUE(count) << count.error().message;
  return count.value_or(-1);
}

void StoreTest::ExpectLawful() {
  Settle();
  EXPECT_EQ(place_->BrokenLaws(), std::vector<std::string>());
  const Result<Figures> kept = store_->Read();
  const Result<Figures> counted = store_->Recount();
  ASSERT_TRUE(kept && counted);
  EXPECT_EQ(kept->accounting_difference, 0);
  EXPECT_EQ(counted->accounting_difference, 0);
}

}  // namespace dlo::store::contract
