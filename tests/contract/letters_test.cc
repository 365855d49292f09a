#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractLetters : public LetterTest {};

TEST_P(ContractLetters, ADeadLetterIsListedCountedGroupedAndShownWhole) {
  const EventId id = Dead("evt_1", "sub_1");
  Accept(MakeReceipt("evt_2"));  // waiting: no letter
  EXPECT_EQ(Listed(), std::vector<EventId>{id});
  EXPECT_EQ(OrThrow(store_->Count({})), 1);
  const auto groups = OrThrow(store_->Groups({}, "fingerprint"));
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].count, 1);
  EXPECT_EQ(groups[0].sample_id, id);
  const LetterDetail detail = OrThrow(store_->Show(id));
  EXPECT_EQ(detail.letter.fingerprint, groups[0].value);
  EXPECT_EQ(detail.letter.attempts, 1);
  EXPECT_EQ(detail.letter.first_failed_at, Now());
  EXPECT_EQ(detail.letter.parked_at, Now());
  EXPECT_EQ(detail.headers, MakeReceipt("evt_1").headers);
  EXPECT_EQ(detail.verdict.secret_id, "secrets[0]");
  ASSERT_EQ(detail.attempts.size(), 1U);
  EXPECT_EQ(detail.attempts[0].outcome, OutcomeKind::permanent);
  EXPECT_EQ(detail.attempts[0].code, "http_422");
  EXPECT_EQ(detail.attempts[0].target, "billing");
  EXPECT_EQ(OrThrow(store_->Attempts(id)).size(), 1U);
  EXPECT_EQ(OrThrow(store_->Payload(id)), MakeReceipt("evt_1").body);
}

TEST_P(ContractLetters, AnUnknownEventIsNotFound) {
  EXPECT_EQ(store_->Show(9).error().code, "not_found");
  EXPECT_EQ(store_->Attempts(9).error().code, "not_found");
  EXPECT_EQ(store_->Payload(9).error().code, "not_found");
}

TEST_P(ContractLetters, PagesGoFromNewestToOldestWithoutGapOrRepeat) {
  std::vector<EventId> all;
  for (int i = 0; i < 7; ++i) all.insert(all.begin(), Dead("evt_" + std::to_string(i)));
  for (int limit = 1; limit <= 8; ++limit) {
    std::vector<EventId> seen;
    std::string cursor;
    do {
      const Page page = OrThrow(store_->List({}, limit, cursor));
      for (const Letter& l : page.items) seen.push_back(l.id);
      cursor = page.next.value_or("");
    } while (!cursor.empty() && seen.size() < 50);
    EXPECT_EQ(seen, all) << limit;
  }
  EXPECT_EQ(store_->List({}, 10, "x").error().code, "bad_cursor");
  EXPECT_EQ(store_->List({}, 501, "").error().code, "bad_limit");
}

TEST_P(ContractLetters, FiltersSelectAndHostileTextSelectsNothing) {
  Receipt push = MakeReceipt("evt_1", "sub_1");
  push.kind = "push";
  push.livemode = false;
  const EventId first = Dead(push, FailureClass::exhausted, "Timeout 100%");
  const EventId second = Dead("evt_2");
  struct Row {
    const char* name;
    std::function<void(Filter&)> set;
    std::vector<EventId> expected;
  };
  const Row rows[] = {{"type", [](Filter& f) { f.types = {"push"}; }, {first}},
                      {"class", [](Filter& f) { f.classes = {FailureClass::permanent}; }, {second}},
                      {"livemode", [](Filter& f) { f.livemode = false; }, {first}},
                      {"text", [](Filter& f) { f.q = "TIMEOUT 100%"; }, {first}},
                      {"wildcard", [](Filter& f) { f.q = "evt%"; }, {}},
                      {"quote", [](Filter& f) { f.types = {"x') OR 1=1 --"}; }, {}},
                      {"nul", [](Filter& f) { f.subjects = {std::string("sub_1\0", 6)}; }, {}},
                      {"state", [](Filter& f) { f.states = {State::held}; }, {}}};
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    Filter filter;
    row.set(filter);
    EXPECT_EQ(Listed(filter), row.expected);
    EXPECT_EQ(OrThrow(store_->Count(filter)), static_cast<std::int64_t>(row.expected.size()));
  }
}

TEST_P(ContractLetters, ALetterWhoseBytesAreDamagedIsSeenAndItsPayloadIsNot) {
  const EventId id = Dead("evt_damaged");
  place_->DamageBody("evt_damaged");
  EXPECT_EQ(store_->Payload(id).error().kind, ErrorKind::corrupt);
  EXPECT_EQ(OrThrow(store_->Show(id)).letter.key, "evt_damaged");
  EXPECT_EQ(Listed(), std::vector<EventId>{id});
}

TEST_P(ContractLetters, ALetterThatHoldsItsSubjectSaysHowManyWaitBehindIt) {
  Accept(MakeReceipt("evt_1", "sub_1"));
  const Claimed claimed = ClaimOne();
  Accept(MakeReceipt("evt_2", "sub_1"));
  Accept(MakeReceipt("evt_3", "sub_1"));
  Fail(claimed, FailureClass::permanent, "no", true);
  EXPECT_EQ(Get(claimed.run.id).events_behind, 2);
  EXPECT_EQ(OrThrow(store_->List({}, 10, "")).items.at(0).events_behind, 2);
  EXPECT_TRUE(Claim().empty());
}

DLO_FOR_EACH_STORE(ContractLetters);

}  // namespace
}  // namespace dlo::store::contract
