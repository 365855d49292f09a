#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <latch>
#include <set>
#include <thread>

#include "contract/fixture.h"

namespace dlo::store::contract {
namespace {

using testing::ElementsAre;

class InboxTest : public StoreTest {};
DLO_FOR_EACH_STORE(InboxTest);

Receipt WithBody(Receipt receipt, std::string body) {
  receipt.body = std::move(body);
  return receipt;
}

TEST_P(InboxTest, KeepsEveryByteAndHeader) {
  Receipt receipt = MakeReceipt("evt_1", "sub_1");
  receipt.body = std::string("\0\xff\xfe{not json\r\n", 14);
  receipt.headers = {{"X-A", "1"}, {"x-a", "2"}, {"X-Empty", ""}};
  receipt.livemode = false;
  receipt.occurred_at = kStart - std::chrono::hours(1);
  const Receipt sent = receipt;
  const Accepted accepted = Accept(receipt);
  EXPECT_EQ(accepted.status, AcceptStatus::stored);
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round == 0 ? "before reopening" : "after reopening");
    const Result<LetterDetail> detail = store_->Show(accepted.id);
    ASSERT_TRUE(detail) << detail.error().message;
    EXPECT_EQ(detail->headers, sent.headers);
    EXPECT_EQ(detail->verdict.scheme, "stripe");
    EXPECT_EQ(detail->verdict.signed_at, kStart);
    EXPECT_EQ(detail->letter.livemode, false);
    EXPECT_EQ(detail->letter.occurred_at, sent.occurred_at);
    EXPECT_EQ(detail->letter.subject, "sub_1");
    EXPECT_EQ(detail->letter.state, State::waiting);
    EXPECT_EQ(store_->Payload(accepted.id), sent.body);
    Reopen();
  }
  EXPECT_EQ(ClaimOne().receipt->body, sent.body);
}

TEST_P(InboxTest, AcceptsAnEmptyBodyAndAKeyOfAnyBytes) {
  Receipt receipt = MakeReceipt(std::string("k\0\xff'\"", 5));
  receipt.body.clear();
  const Accepted first = Accept(receipt);
  EXPECT_EQ(store_->Payload(first.id), "");
  EXPECT_EQ(Get(first.id).key, receipt.key);
  EXPECT_EQ(Accept(receipt).status, AcceptStatus::duplicate);
}

TEST_P(InboxTest, ARedeliveryIsADuplicateOfTheFirst) {
  const Accepted first = Accept(MakeReceipt("evt_1"));
  clock_.Advance(std::chrono::seconds(9));
  Receipt again = MakeReceipt("evt_1");
  again.received_at = Now();
  again.headers.push_back({"X-Retry", "1"});
  const Accepted second = Accept(again);
  EXPECT_EQ(second.status, AcceptStatus::duplicate);
  EXPECT_EQ(second.id, first.id);
  EXPECT_EQ(Get(first.id).deliveries, 2);
  EXPECT_EQ(Get(first.id).last_seen_at, Now());
  EXPECT_EQ(Get(first.id).received_at, kStart);
  Reopen();
  EXPECT_EQ(Accept(again).status, AcceptStatus::duplicate);
  EXPECT_EQ(Get(first.id).deliveries, 3);
  EXPECT_EQ(Claim().size(), 1U);
  EXPECT_EQ(store_->Read()->duplicates, 2);
}

TEST_P(InboxTest, OfAHundredConcurrentDeliveriesOfOneKeyOneIsStored) {
  constexpr int kThreads = 100;
  std::latch together(kThreads);
  std::vector<std::thread> threads;
  std::vector<Accepted> answers(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      together.arrive_and_wait();
      const Result<std::vector<Accepted>> answer = TryAccept({MakeReceipt("evt_1")});
      if (answer) answers[static_cast<std::size_t>(i)] = answer->at(0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<EventId> ids;
  int stored = 0;
  for (const Accepted& answer : answers) {
    ids.insert(answer.id);
    if (answer.status == AcceptStatus::stored) ++stored;
  }
  EXPECT_EQ(stored, 1);
  ASSERT_EQ(ids.size(), 1U);
  Settle();
  EXPECT_EQ(Get(*ids.begin()).deliveries, kThreads);
  EXPECT_EQ(Claim().size(), 1U);
}

TEST_P(InboxTest, TheSameKeyAtTwoSourcesIsTwoEvents) {
  const Accepted one = Accept(MakeReceipt("evt_1", "", "stripe"));
  const Accepted other = Accept(WithBody(MakeReceipt("evt_1", "", "github"), "other"));
  EXPECT_EQ(other.status, AcceptStatus::stored);
  EXPECT_NE(one.id, other.id);
  // The parts of the pair do not run into each other.
  EXPECT_EQ(Accept(WithBody(MakeReceipt("b", "", "a"), "1")).status, AcceptStatus::stored);
  EXPECT_EQ(Accept(WithBody(MakeReceipt("", "", "ab"), "2")).status, AcceptStatus::stored);
}

TEST_P(InboxTest, OtherContentUnderAKnownKeyIsKeptAsAConflict) {
  const Accepted first = Accept(WithBody(MakeReceipt("evt_1"), "one"));
  const Accepted second = Accept(WithBody(MakeReceipt("evt_1"), "two"));
  EXPECT_EQ(second.status, AcceptStatus::conflict);
  EXPECT_EQ(second.first_id, first.id);
  EXPECT_NE(second.id, first.id);
  const Letter letter = Get(second.id);
  EXPECT_EQ(letter.state, State::dead);
  EXPECT_EQ(letter.failure_class, FailureClass::conflict);
  EXPECT_EQ(letter.conflict_of, first.id);
  EXPECT_EQ(letter.code, "conflict");
  EXPECT_EQ(letter.message, "same key as event " + std::to_string(first.id) + ", with another body");
  EXPECT_EQ(letter.attempts, 0);
  EXPECT_EQ(letter.fingerprint.size(), 16U);
  EXPECT_EQ(store_->Payload(second.id), "two");

  const Accepted repeated = Accept(WithBody(MakeReceipt("evt_1"), "two"));
  EXPECT_EQ(repeated.status, AcceptStatus::duplicate);
  EXPECT_EQ(repeated.id, second.id);
  const Accepted third = Accept(WithBody(MakeReceipt("evt_1"), "three"));
  EXPECT_EQ(third.status, AcceptStatus::conflict);
  EXPECT_EQ(third.first_id, first.id);
  EXPECT_EQ(Accept(WithBody(MakeReceipt("evt_1"), "one")).id, first.id);
  EXPECT_THAT(Ids(Claim()), ElementsAre(first.id)) << "a conflict is never dispatched by itself";
  EXPECT_EQ(CountIn(State::dead), 2);
}

TEST_P(InboxTest, FieldsThatChangePerDeliveryMakeNoConflict) {
  options_.same_event = [](const std::string& source, std::string_view first, std::string_view second) {
    return source == "stripe" && first.substr(0, 3) == second.substr(0, 3);
  };
  Reopen();
  const Accepted first = Accept(WithBody(MakeReceipt("evt_1"), "one/pending=2"));
  EXPECT_EQ(Accept(WithBody(MakeReceipt("evt_1"), "one/pending=1")).id, first.id);
  const Accepted conflict = Accept(WithBody(MakeReceipt("evt_1"), "two/pending=1"));
  EXPECT_EQ(conflict.status, AcceptStatus::conflict);
  const Accepted repeated = Accept(WithBody(MakeReceipt("evt_1"), "two/pending=0"));
  EXPECT_EQ(repeated.status, AcceptStatus::duplicate);
  EXPECT_EQ(repeated.id, conflict.id);
  EXPECT_EQ(store_->Payload(first.id), "one/pending=2") << "the first bytes stay";
}

TEST_P(InboxTest, KeysThatShareADigestAreToldApart) {
  options_.key_digest = [](std::string_view) { return std::int64_t{-7}; };
  Reopen();
  const Accepted a = Accept(MakeReceipt("a"));
  const Accepted b = Accept(MakeReceipt("b"));
  const Accepted other_source = Accept(MakeReceipt("a", "", "github"));
  const Accepted conflict = Accept(WithBody(MakeReceipt("b"), "other"));
  const Accepted c = Accept(MakeReceipt("c"));
  for (const Accepted& one : {a, b, other_source, c}) EXPECT_EQ(one.status, AcceptStatus::stored);
  EXPECT_EQ(conflict.status, AcceptStatus::conflict);
  EXPECT_EQ(conflict.first_id, b.id);
  EXPECT_EQ(Accept(MakeReceipt("a")).id, a.id);
  EXPECT_EQ(Accept(MakeReceipt("b")).id, b.id);
  EXPECT_EQ(Accept(MakeReceipt("a", "", "github")).id, other_source.id);
  EXPECT_EQ(Accept(MakeReceipt("c")).id, c.id);
}

TEST_P(InboxTest, ABatchIsAnsweredInOrderAndKnowsItsOwnMembers) {
  std::vector<Receipt> batch = {MakeReceipt("a"), MakeReceipt("b"), MakeReceipt("a"), WithBody(MakeReceipt("b"), "x")};
  const std::vector<Accepted> accepted = Accept(batch);
  ASSERT_EQ(accepted.size(), 4U);
  EXPECT_EQ(accepted[0].status, AcceptStatus::stored);
  EXPECT_EQ(accepted[1].status, AcceptStatus::stored);
  EXPECT_EQ(accepted[2].status, AcceptStatus::duplicate);
  EXPECT_EQ(accepted[2].id, accepted[0].id);
  EXPECT_EQ(accepted[3].status, AcceptStatus::conflict);
  EXPECT_EQ(accepted[3].first_id, accepted[1].id);
  EXPECT_LT(accepted[0].id, accepted[1].id);
}

TEST_P(InboxTest, AnEmptyBatchIsAnsweredEmpty) {
  EXPECT_TRUE(Accept(std::vector<Receipt>()).empty());
}

TEST_P(InboxTest, ReceiptsNumberThemselvesInOrderAndGoOnAfterReopening) {
  const Accepted first = Accept(MakeReceipt("a"));
  const Accepted second = Accept(MakeReceipt("b"));
  Reopen();
  const Accepted third = Accept(MakeReceipt("c"));
  EXPECT_EQ(first.id, 1);
  EXPECT_EQ(second.id, 2);
  EXPECT_EQ(third.id, 3);
}

TEST_P(InboxTest, ATestEventIsResolvedAtOnceAndNeverDispatched) {
  Receipt receipt = MakeReceipt("evt_1", "sub_1");
  receipt.livemode = false;
  receipt.disposition = Disposition::test_event;
  receipt.disposition_reason = "test mode event on a live source";
  const Accepted accepted = Accept(receipt);
  EXPECT_EQ(accepted.status, AcceptStatus::stored);
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::resolved);
  EXPECT_EQ(letter.resolve_code, ResolveCode::test_event);
  EXPECT_EQ(letter.resolve_reason, "test mode event on a live source");
  EXPECT_EQ(letter.finished_at, kStart);
  EXPECT_EQ(letter.first_failed_at, std::nullopt);
  EXPECT_TRUE(Claim().empty());
  EXPECT_EQ(Accept(receipt).status, AcceptStatus::duplicate);
}

TEST_P(InboxTest, WhatCannotBeReadIsADeadLetterOfClassInvalid) {
  Receipt receipt = MakeReceipt("evt_1");
  receipt.disposition = Disposition::invalid;
  receipt.disposition_reason = "the body is not JSON";
  const Accepted accepted = Accept(receipt);
  EXPECT_EQ(accepted.status, AcceptStatus::stored);
  const Letter letter = Get(accepted.id);
  EXPECT_EQ(letter.state, State::dead);
  EXPECT_EQ(letter.failure_class, FailureClass::invalid);
  EXPECT_EQ(letter.code, "invalid");
  EXPECT_EQ(letter.message, "the body is not JSON");
  EXPECT_EQ(letter.parked_at, kStart);
  EXPECT_EQ(letter.first_failed_at, kStart);
  EXPECT_TRUE(Claim().empty());
}

TEST_P(InboxTest, FiguresAddUp) {
  Accept(MakeReceipt("a"));
  Accept(MakeReceipt("a"));
  Accept(WithBody(MakeReceipt("a"), "other"));
  Accept(MakeReceipt("b"));
  const Result<Figures> figures = store_->Read();
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->receipts, 4);
  EXPECT_EQ(figures->indexed, 4);
  EXPECT_EQ(figures->duplicates, 1);
  EXPECT_EQ(figures->accounting_difference, 0);
  EXPECT_TRUE(store_->Ready());
}

TEST_P(InboxTest, WhoeverWasAnsweredFindsTheEventAtOnce) {
  for (int i = 0; i < 50; ++i) {
    const Result<std::vector<Accepted>> accepted = TryAccept({MakeReceipt("evt_" + std::to_string(i))});
    ASSERT_TRUE(accepted);
    ASSERT_TRUE(store_->Show(accepted->at(0).id)) << "event " << accepted->at(0).id;
  }
}

TEST_P(InboxTest, AClosedStoreRefuses) {
  Accept(MakeReceipt("a"));
  store_->Close();
  const Result<std::vector<Accepted>> accepted = TryAccept({MakeReceipt("b")});
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(accepted.error().code, "stopping");
  EXPECT_EQ(store_->Count({}).error().code, "stopping");
  const auto exchanged = store_->Exchange({.finished = {}, .wants = {}, .lease = lease_, .now = Now()});
  EXPECT_EQ(exchanged.error().code, "stopping");
  store_->Close();
  Reopen();
  EXPECT_EQ(Claim().size(), 1U);
}

TEST_P(InboxTest, ManySendersAreAnsweredOnceEachAndNothingIsLost) {
  constexpr int kThreads = 8, kEach = 100;
  std::atomic<int> answered{0};
  std::promise<void> all;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        // Every fifth is a duplicate of the one before it.
        const int key = i % 5 == 4 ? i - 1 : i;
        auto receipt = std::make_shared<Receipt>(MakeReceipt("t" + std::to_string(t) + "_" + std::to_string(key), "s"));
        store_->Accept({receipt}, [&](const Result<std::vector<Accepted>>& result) {
          EXPECT_TRUE(result);
          if (++answered == kThreads * kEach) all.set_value();
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  all.get_future().get();
  Settle();
  const Result<Figures> figures = store_->Read();
  ASSERT_TRUE(figures);
  EXPECT_EQ(figures->receipts, kThreads * kEach);
  EXPECT_EQ(figures->duplicates, kThreads * kEach / 5);
  EXPECT_EQ(CountIn(State::waiting), kThreads * kEach * 4 / 5);
}

}  // namespace
}  // namespace dlo::store::contract
