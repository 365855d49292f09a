#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractAccess : public LetterTest {};

TEST_P(ContractAccess, TokensAreMadeRevokedListedAndRecorded) {
  OrThrow(store_->CreateToken("ci", "operator", "hash1", actor_, Now()));
  EXPECT_EQ(store_->CreateToken("ci", "viewer", "hash2", actor_, Now()).error().code, "name_taken");
  OrThrow(store_->RevokeToken("ci", actor_, Now()));
  EXPECT_EQ(store_->RevokeToken("ci", actor_, Now()).error().code, "no_such_token");
  OrThrow(store_->CreateToken("ci", "viewer", "hash3", actor_, Now()));
  Reopen();
  const auto tokens = OrThrow(store_->Tokens());
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_TRUE(tokens[0].revoked_at);
  EXPECT_FALSE(tokens[1].revoked_at);
  EXPECT_EQ(tokens[1].hash, "hash3");
  const auto records = Records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ(records[0].action, "token_create");
  EXPECT_EQ(records[1].action, "token_revoke");
}

TEST_P(ContractAccess, TheAuditIsReadNewestFirstInPagesAndByEvent) {
  const EventId one = Dead("evt_1"), two = Dead("evt_2");
  for (const Act act : {Act::hold, Act::release, Act::resolve}) {
    OrThrow(Do(one, act));
    OrThrow(Do(two, act));
  }
  const auto page = OrThrow(store_->Audit(0, 0, 4));
  ASSERT_EQ(page.size(), 4U);
  EXPECT_EQ(page[0].action, "resolve");
  EXPECT_EQ(OrThrow(store_->Audit(0, page[3].seq, 4)).size(), 2U);
  const auto of_one = Records(one);
  ASSERT_EQ(of_one.size(), 3U);
  for (const AuditRecord& r : of_one) EXPECT_EQ(r.event_id, one);
  EXPECT_GT(of_one[0].seq, of_one[1].seq);
}

TEST_P(ContractAccess, RejectedDeliveriesAreKeptWithTheirBytes) {
  const std::string body("\0\xFF{", 3);
  store_->Keep({.at = Now(),
                .source = "stripe",
                .reason = "no_match",
                .remote = "10.0.0.1",
                .headers = {{"A", "b"}},
                .body = body});
  std::vector<Rejected> list;
  // Kept in the background, in the order of the store's work.
  for (int i = 0; i < 10'000 && list.empty(); ++i) {
    Exchange({}, {});
    list = OrThrow(store_->RejectedList("stripe", 0, 10));
  }
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].body, "");
  EXPECT_EQ(list[0].body_bytes, 3);
  EXPECT_EQ(OrThrow(store_->RejectedOne(list[0].id)).body, body);
  EXPECT_TRUE(OrThrow(store_->RejectedList("github", 0, 10)).empty());
  EXPECT_EQ(store_->RejectedOne(99).error().code, "not_found");
}

TEST_P(ContractAccess, APausedSourceStaysPausedOverARestart) {
  const Actor system{.name = "system", .role = "system", .reason = "contract change"};
  OrThrow(store_->Pause({.source = "stripe", .fingerprint = "00000000000000aa", .message = "schema", .since = Now()},
                        system));
  OrThrow(store_->Pause({.source = "stripe", .fingerprint = "00000000000000bb", .message = "other", .since = Now()},
                        system));
  Reopen();
  const auto pauses = OrThrow(store_->Pauses());
  ASSERT_EQ(pauses.size(), 1U);
  EXPECT_EQ(pauses[0].message, "schema");
  OrThrow(store_->Resume("stripe", actor_, Now()));
  EXPECT_EQ(store_->Resume("stripe", actor_, Now()).error().code, "not_paused");
  EXPECT_EQ(Records().size(), 2U);
}

DLO_FOR_EACH_STORE(ContractAccess);

}  // namespace
}  // namespace dlo::store::contract
