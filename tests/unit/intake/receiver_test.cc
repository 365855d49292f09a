#include "intake/receiver.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "intake/sign.h"

namespace dlo::intake {
namespace {

const Time kNow = Time(std::chrono::seconds(1'700'000'000));
const std::string kNew = "whsec_new_0123456789", kOld = "whsec_old_0123456789";
const std::string kBody = R"({"id":"evt_1","type":"invoice.paid","livemode":false,"pending_webhooks":1,)"
                          R"("data":{"object":{"id":"in_1","subscription":"sub_1"}}})";

// Keeps what it is given; answers when told to.
class FakeInbox final : public store::Inbox {
 public:
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, store::AcceptDone done) override {
    for (auto& receipt : batch) receipts.push_back(std::move(receipt));
    pending.push_back(std::move(done));
  }
  void Answer(Result<std::vector<Accepted>> with) {
    auto done = std::move(pending.front());
    pending.erase(pending.begin());
    done(std::move(with));
  }
  std::vector<std::shared_ptr<Receipt>> receipts;
  std::vector<store::AcceptDone> pending;
};

class FakeQuarantine final : public store::Quarantine {
 public:
  void Keep(store::Rejected rejected) override { kept.push_back(std::move(rejected)); }
  Result<std::vector<store::Rejected>> RejectedList(const std::string&, std::int64_t, int) override { return kept; }
  Result<store::Rejected> RejectedOne(std::int64_t) override { return kept.at(0); }
  std::vector<store::Rejected> kept;
};

class ReceiverTest : public testing::Test {
 protected:
  ReceiverTest() {
    SourceConfig stripe;
    stripe.name = "stripe";
    stripe.scheme = "stripe";
    stripe.secrets = {{"secrets[0]", kNew}, {"secrets[1]", kOld}};
    stripe.max_body = 4096;
    SourceConfig open;
    open.name = "open";
    open.scheme = "none";
    receiver_ = std::make_unique<Receiver>(std::vector{stripe, open}, inbox_, quarantine_, clock_, metrics_);
  }

  static std::vector<Header> Signed(const std::string& body, const std::string& secret = kNew) {
    auto headers = OrThrow(Signer::Compile("stripe", {}, secret)).Sign(body, kNow, "");
    headers.insert(headers.begin(), Header{"Content-Type", "application/json"});
    return headers;
  }
  // Once `done` was called, its answer is in answers_.
  void Receive(const std::string& source, std::vector<Header> headers, std::string body) {
    receiver_->Receive(*receiver_->Find(source), {std::move(headers), std::move(body), "192.0.2.7"},
                       [this](Result<std::vector<Accepted>> answer) { answers_.push_back(std::move(answer)); });
  }
  [[nodiscard]] bool HasMetric(const std::string& line) const {
    return metrics_.Render().find(line + "\n") != std::string::npos;
  }

  FakeInbox inbox_;
  FakeQuarantine quarantine_;
  ManualClock clock_{kNow};
  Metrics metrics_;
  std::unique_ptr<Receiver> receiver_;
  std::vector<Result<std::vector<Accepted>>> answers_;
};

TEST_F(ReceiverTest, AGenuineDeliveryIsStoredByteForByteAndAnsweredOnlyThen) {
  const auto headers = Signed(kBody);
  Receive("stripe", headers, kBody);
  ASSERT_EQ(inbox_.receipts.size(), 1U);
  EXPECT_TRUE(answers_.empty()) << "answered before the commit";
  const auto& receipt = *inbox_.receipts[0];
  EXPECT_EQ(receipt.source, "stripe");
  EXPECT_EQ(receipt.key, "evt_1");
  EXPECT_EQ(receipt.kind, "invoice.paid");
  EXPECT_EQ(receipt.subject, "sub_1");
  EXPECT_EQ(receipt.livemode, std::optional(false));
  EXPECT_EQ(receipt.received_at, kNow);
  EXPECT_TRUE(receipt.verdict.verified);
  EXPECT_EQ(receipt.verdict.secret_id, "secrets[0]");
  EXPECT_EQ(receipt.disposition, Disposition::dispatch);
  EXPECT_EQ(receipt.headers, headers);
  EXPECT_EQ(receipt.body, kBody);
  clock_.Advance(std::chrono::milliseconds(3));
  inbox_.Answer(std::vector<Accepted>{{AcceptStatus::stored, 7, 0}});
  ASSERT_EQ(answers_.size(), 1U);
  ASSERT_TRUE(answers_[0]);
  EXPECT_EQ(answers_[0]->at(0).id, 7);
  EXPECT_TRUE(HasMetric(R"(dlo_received_total{source="stripe"} 1)"));
  EXPECT_TRUE(HasMetric(R"(dlo_accept_seconds_bucket{le="0.0025"} 0)"));
  EXPECT_TRUE(HasMetric(R"(dlo_accept_seconds_bucket{le="0.005"} 1)"));
  EXPECT_TRUE(HasMetric(R"(dlo_secret_used_total{secret="secrets[1]",source="stripe"} 0)") ||
              HasMetric(R"(dlo_secret_used_total{source="stripe",secret="secrets[1]"} 0)"));
  EXPECT_TRUE(quarantine_.kept.empty());
}

TEST_F(ReceiverTest, ARejectedDeliveryIsQuarantinedAndNeverReachesTheInbox) {
  auto headers = Signed(kBody, "some_other_secret_012345");
  Receive("stripe", headers, kBody);
  ASSERT_EQ(answers_.size(), 1U);
  ASSERT_FALSE(answers_[0]);
  EXPECT_EQ(answers_[0].error().kind, ErrorKind::forbidden);
  EXPECT_EQ(answers_[0].error().code, "rejected");
  EXPECT_EQ(answers_[0].error().message, "rejected");
  EXPECT_TRUE(inbox_.receipts.empty());
  ASSERT_EQ(quarantine_.kept.size(), 1U);
  const auto& kept = quarantine_.kept[0];
  EXPECT_EQ(kept.source, "stripe");
  EXPECT_EQ(kept.reason, "no_match");
  EXPECT_EQ(kept.remote, "192.0.2.7");
  EXPECT_EQ(kept.at, kNow);
  EXPECT_EQ(kept.headers, headers);
  EXPECT_EQ(kept.body, kBody);
  EXPECT_EQ(kept.body_bytes, static_cast<std::int64_t>(kBody.size()));
  EXPECT_TRUE(HasMetric(R"(dlo_rejected_total{source="stripe",reason="no_match"} 1)") ||
              HasMetric(R"(dlo_rejected_total{reason="no_match",source="stripe"} 1)"));
  EXPECT_TRUE(HasMetric(R"(dlo_received_total{source="stripe"} 0)"));
}

// A property of the source: between a delivery's arrival and the verdict on its signature nothing looks into its body.
TEST(ReceiverOrder, NothingIsReadFromABodyBeforeItsSignatureIsRight) {
  std::ifstream file(DLO_SOURCE_DIR "/src/intake/receiver.cc");
  std::string text((std::istreambuf_iterator<char>(file)), {});
  text.erase(0, text.find("void Receiver::Receive("));
  const auto verified = text.find("verifier.Verify(incoming.headers, incoming.body, now)");
  const auto refused = text.find("if (!verdict)");
  ASSERT_NE(verified, std::string::npos);
  ASSERT_NE(refused, std::string::npos);
  for (const char* reader : {"Extract", "MakeReceipt", "json", "Accept("}) {
    EXPECT_GT(text.find(reader), refused) << reader;
  }
  for (auto at = text.find("incoming.body"); at < verified; at = text.find("incoming.body", at + 1)) {
    const bool harmless =
        text.compare(at, 20, "incoming.body.size()") == 0 || text.compare(at, 19, "incoming.body, now)") == 0;
    EXPECT_TRUE(harmless) << text.substr(at, 40);
  }
}

TEST_F(ReceiverTest, SizeAndCodingAreJudgedBeforeTheSignature) {
  struct Row {
    std::vector<Header> headers;
    std::size_t size;
    std::string code;
  };
  const std::vector<Row> rows = {
      {{}, 4096, "rejected"},
      {{}, 4097, "too_large"},
      {{{"Content-Encoding", "gzip"}}, 10, "content_encoding"},
      {{{"content-encoding", "identity, br"}}, 10, "content_encoding"},
      {{{"Content-Encoding", "identity"}, {"Content-Encoding", "gzip"}}, 10, "content_encoding"},
      {{{"Content-Encoding", " Identity "}}, 10, "rejected"},
      {{{"Content-Encoding", ""}}, 10, "rejected"}};
  for (const auto& row : rows) {
    answers_.clear();
    Receive("stripe", row.headers, std::string(row.size, 'x'));
    ASSERT_EQ(answers_.size(), 1U);
    ASSERT_FALSE(answers_[0]);
    EXPECT_EQ(answers_[0].error().code, row.code);
  }
  EXPECT_EQ(quarantine_.kept.size(), 3U) << "only what failed its signature";
}

TEST_F(ReceiverTest, StoreErrorsReachTheEdgeAsTheyAre) {
  Receive("stripe", Signed(kBody), kBody);
  inbox_.Answer(Fail(ErrorKind::unavailable, "disk_full", "no space"));
  ASSERT_EQ(answers_.size(), 1U);
  ASSERT_FALSE(answers_[0]);
  EXPECT_EQ(answers_[0].error().code, "disk_full");
  EXPECT_TRUE(HasMetric(R"(dlo_received_total{source="stripe"} 0)"));
}

TEST_F(ReceiverTest, DuplicatesAndConflictsAreCounted) {
  for (const auto status :
       {AcceptStatus::stored, AcceptStatus::duplicate, AcceptStatus::conflict, AcceptStatus::conflict}) {
    Receive("stripe", Signed(kBody), kBody);
    inbox_.Answer(std::vector<Accepted>{{status, 2, 1}});
  }
  EXPECT_EQ(answers_.size(), 4U);
  EXPECT_TRUE(HasMetric(R"(dlo_received_total{source="stripe"} 4)"));
  EXPECT_TRUE(HasMetric(R"(dlo_duplicates_total{source="stripe"} 1)"));
  EXPECT_TRUE(HasMetric(R"(dlo_conflicts_total{source="stripe"} 2)"));
}

TEST_F(ReceiverTest, ConflictsAreWarnedOfOnceASecondWithoutBodies) {
  const auto conflict = [&] {
    Receive("stripe", Signed(kBody), kBody);
    inbox_.Answer(std::vector<Accepted>{{AcceptStatus::conflict, 2, 1}});
  };
  testing::internal::CaptureStderr();
  conflict();
  conflict();
  clock_.Advance(std::chrono::milliseconds(999));
  conflict();
  clock_.Advance(std::chrono::milliseconds(1));
  conflict();
  const auto log = testing::internal::GetCapturedStderr();
  int lines = 0;
  for (auto at = log.find("event_conflict"); at != std::string::npos; at = log.find("event_conflict", at + 1)) ++lines;
  EXPECT_EQ(lines, 2) << log;
  EXPECT_EQ(log.find("pending_webhooks"), std::string::npos);
  EXPECT_EQ(log.find("v1="), std::string::npos);
  EXPECT_EQ(log.find("whsec_"), std::string::npos);
}

TEST_F(ReceiverTest, UseOfAnOldSecretIsAFigure) {
  Receive("stripe", Signed(kBody, kOld), kBody);
  ASSERT_EQ(inbox_.receipts.size(), 1U);
  EXPECT_EQ(inbox_.receipts[0]->verdict.secret_id, "secrets[1]");
  EXPECT_TRUE(HasMetric(R"(dlo_secret_used_total{secret="secrets[1]",source="stripe"} 1)") ||
              HasMetric(R"(dlo_secret_used_total{source="stripe",secret="secrets[1]"} 1)"));
}

TEST_F(ReceiverTest, AGenuineBodyThatCannotBeReadIsStoredAsInvalid) {
  for (const std::string& body :
       {std::string(), std::string("\0\xff", 2), std::string("{"), std::string(R"({"id":1.5})")}) {
    Receive("stripe", Signed(body), body);
    ASSERT_FALSE(inbox_.receipts.empty());
    const auto& receipt = *inbox_.receipts.back();
    EXPECT_EQ(receipt.disposition, Disposition::invalid);
    EXPECT_TRUE(receipt.key.starts_with("sha256:"));
    EXPECT_FALSE(receipt.disposition_reason.empty());
    EXPECT_EQ(receipt.body, body);
  }
  EXPECT_EQ(inbox_.receipts.size(), 4U);
}

TEST_F(ReceiverTest, UnknownSources) {
  EXPECT_EQ(receiver_->Find("nobody"), nullptr);
  EXPECT_EQ(receiver_->Find(""), nullptr);
  SourceConfig foreign;
  foreign.name = "nobody";
  receiver_->Receive(foreign, {},
                     [this](Result<std::vector<Accepted>> answer) { answers_.push_back(std::move(answer)); });
  ASSERT_EQ(answers_.size(), 1U);
  EXPECT_EQ(answers_[0].error().kind, ErrorKind::not_found);
}

TEST_F(ReceiverTest, AnUnsignedSourceStoresAndSaysUnverified) {
  Receive("open", {}, "hello");
  ASSERT_EQ(inbox_.receipts.size(), 1U);
  EXPECT_FALSE(inbox_.receipts[0]->verdict.verified);
  EXPECT_EQ(inbox_.receipts[0]->verdict.scheme, "none");
  EXPECT_EQ(inbox_.receipts[0]->disposition, Disposition::dispatch);
}

TEST(ReceiverStart, ASourceThatCannotBeCompiledStopsTheStart) {
  FakeInbox inbox;
  FakeQuarantine quarantine;
  ManualClock clock(kNow);
  Metrics metrics;
  SourceConfig source;
  source.name = "stripe";
  source.scheme = "stripe";
  EXPECT_THROW(Receiver(std::vector{source}, inbox, quarantine, clock, metrics), Failure);
}

}  // namespace
}  // namespace dlo::intake
