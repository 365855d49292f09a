// A whole store, made by the store itself, then changed behind its back.
#include "store/embedded/verify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>

#include "base/time_text.h"
#include "env/clock.h"
#include "env/crash_points.h"
#include "store/embedded/audit_chain.h"
#include "store/embedded/embedded_store.h"
#include "store/embedded/journal_segment.h"

namespace dlo::store {
namespace {

using ::testing::HasSubstr;

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    std::string name = (std::filesystem::temp_directory_path() / "dlo-verify-XXXXXX").string();
    folder_ = mkdtemp(name.data());
    database_ = folder_ / "dlo.db";
    Open();
    for (int i = 1; i <= 12; ++i) Dead("evt_" + std::to_string(i));
    for (const Act act : {Act::hold, Act::release, Act::resolve, Act::reopen, Act::hold}) Do(1, act);
    kept_ = OrThrow(store_->Head());
    for (const Act act : {Act::hold, Act::release, Act::resolve}) Do(2, act);
    store_.reset();
  }
  ~VerifyTest() override {
    store_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Open() {
    store_ =
        OrThrow(OpenEmbedded({.database = database_, .segment_bytes = 8'192}, files_, clock_, crash_points_, metrics_));
  }
  void Dead(const std::string& key) {
    Receipt receipt;
    receipt.source = "stripe";
    receipt.key = key;
    receipt.kind = "invoice.paid";
    receipt.received_at = clock_.Now();
    receipt.body = "{\"id\":\"" + key + "\",\"pad\":\"" + std::string(1'500, 'x') + "\"}";
    std::promise<void> stored;
    store_->Accept({std::make_shared<Receipt>(std::move(receipt))}, [&](const Result<std::vector<Accepted>>& done) {
      EXPECT_TRUE(done);
      stored.set_value();
    });
    stored.get_future().wait();
    OrThrow(store_->Tokens());  // waits for the index
    const ClaimWant want{"stripe", "billing", 1};
    auto claimed =
        OrThrow(store_->Exchange({.finished = {}, .wants = {&want, 1}, .lease = {"w"}, .now = clock_.Now()}));
    ASSERT_EQ(claimed.claimed.size(), 1U);
    const RunContext& run = claimed.claimed[0].run;
    Transition end;
    end.id = run.id;
    end.token = run.token;
    end.to = State::dead;
    end.at = clock_.Now();
    end.failure_class = FailureClass::permanent;
    end.outcome = Outcome::Permanent("no_plan", "no such plan");
    end.fingerprint = "00000000000000aa";
    OrThrow(store_->Exchange({.finished = {&end, 1}, .wants = {}, .lease = {"w"}, .now = clock_.Now()}));
  }
  void Do(EventId id, Act act) {
    TriageAct request{.id = id, .act = act};
    request.hold.link = "https://issues.example/1";
    request.resolve_code = ResolveCode::handled_manually;
    ASSERT_TRUE(OrThrow(store_->Triage(std::span(&request, 1), {.name = "ana", .reason = "because"}, clock_.Now()))[0]);
  }

  /// As somebody with the file and a shell would.
  void Sql(const std::string& sql) {
    auto db = OrThrow(Db::Open(database_, Db::Mode::writer));
    for (const char* trigger :
         {"audit_no_update", "audit_no_delete", "audit_chained", "audit_chain_no_delete", "audit_chain_goes_on"}) {
      OrThrow(db->Exec(std::string("DROP TRIGGER ") + trigger));
    }
    OrThrow(db->Exec(sql));
  }
  /// Writes the whole chain anew, so that the store agrees with itself.
  void Rechain() {
    auto db = OrThrow(Db::Open(database_, Db::Mode::writer));
    Sha256Digest hash{};
    for (std::int64_t seq = 1;; ++seq) {
      auto row = OrThrow(db->PrepareOnce(
          "SELECT seq, at, actor, role, action, event_id, reason, details, body_sha256 FROM audit WHERE seq = ?1"));
      if (!OrThrow(row.Bind(1, seq).Step())) break;
      hash = AuditHash(ReadAuditRow(row), row.Text(8), hash);
      const std::string bytes(hash.begin(), hash.end());
      OrThrow(
          OrThrow(db->PrepareOnce("UPDATE audit SET hash = ?2 WHERE seq = ?1")).Bind(1, seq).BindBlob(2, bytes).Run());
      OrThrow(OrThrow(db->PrepareOnce("UPDATE audit_chain SET head_seq = ?1, head_hash = ?2"))
                  .Bind(1, seq)
                  .BindBlob(2, bytes)
                  .Run());
    }
  }
  std::string Segment(int number) { return JournalFolder(database_) + "/" + SegmentName(number); }

  VerifyReport Verify(bool with_heads = false) {
    VerifyOptions options{.database = database_};
    if (with_heads) {
      options.heads_file = folder_ / "heads";
      std::ofstream(options.heads_file) << HeadToJson(kept_) << "\n{\"seq\":3,\"ha\n";
    }
    return OrThrow(VerifyStore(files_, options));
  }
  void ExpectFirst(const VerifyReport& report, const std::string& what, std::int64_t seq) {
    const Damage* first = report.First();
    ASSERT_NE(first, nullptr) << "nothing was found";
    EXPECT_THAT(first->what, HasSubstr(what));
    EXPECT_EQ(first->seq, seq);
    EXPECT_NE(first->advice, "");
  }

  std::filesystem::path folder_;
  std::string database_;
  RealFiles files_;
  ManualClock clock_{*ParseTime("2026-11-30T12:00:00Z")};
  NoCrashPoints crash_points_;
  Metrics metrics_;
  std::unique_ptr<Store> store_;
  EvidenceHead kept_;
};

TEST_F(VerifyTest, AStoreThatNobodyTouchedIsSoundAlsoWhileItRuns) {
  for (const bool running : {false, true}) {
    if (running) Open();
    const VerifyReport report = Verify(true);
    EXPECT_EQ(report.First(), nullptr) << report.First()->what;
    EXPECT_GT(report.journal.segments, 2);
    ASSERT_EQ(report.steps.size(), 6U);
    for (const StepReport& step : report.steps) EXPECT_GT(step.checked, 0) << step.name;
    EXPECT_THAT(report.steps[0].notes, testing::ElementsAre(HasSubstr("1 lines are no heads")));
  }
}

TEST_F(VerifyTest, AnEditedReasonIsNamed) {
  Sql("UPDATE audit SET reason = 'nobody asked' WHERE seq = 4");
  const VerifyReport report = Verify();
  ExpectFirst(report, "audit record 4 (reopen by ana)", 4);
  EXPECT_EQ(report.steps[2].damaged, 1) << "one edit is one damage";
}

TEST_F(VerifyTest, ARemovedRowInTheMiddleIsNamed) {
  Sql("DELETE FROM audit WHERE seq = 3");
  ExpectFirst(Verify(), "audit record 3: it is missing", 3);
}

TEST_F(VerifyTest, ACutTailIsNamed) {
  Sql("DELETE FROM audit WHERE seq > 6");
  ExpectFirst(Verify(), "audit record 7: it is missing, with all up to 8", 7);
}

TEST_F(VerifyTest, ACutTailWithItsHeadIsFoundByTheHeadOutside) {
  Sql("DELETE FROM audit WHERE seq > 4");
  Rechain();
  EXPECT_EQ(Verify().First(), nullptr) << "the store agrees with itself";
  ExpectFirst(Verify(true), "audit record 5: it is gone", 5);
}

TEST_F(VerifyTest, SwappedRecordsAreNamed) {
  Sql("UPDATE audit SET seq = 100 WHERE seq = 2; UPDATE audit SET seq = 2 WHERE seq = 3;"
      "UPDATE audit SET seq = 3 WHERE seq = 100");
  ExpectFirst(Verify(), "audit record 2", 2);
}

TEST_F(VerifyTest, AChainWrittenAnewIsFoundByTheHeadOutside) {
  Sql("UPDATE audit SET reason = 'nobody asked' WHERE seq = 4");
  Rechain();
  EXPECT_EQ(Verify().First(), nullptr) << "the store agrees with itself";
  ExpectFirst(Verify(true), "audit record 5: its hash is not that of the head kept on", 5);
}

TEST_F(VerifyTest, AChainThatIsBegunAnewBehindItsRecordsIsNamed) {
  Sql("DELETE FROM audit_chain; UPDATE audit SET actor = 'bob' WHERE seq = 2");
  Open();  // the start takes the records for older ones
  store_.reset();
  ExpectFirst(Verify(), "audit record 1: it has a hash and is older than the chain", 1);
}

TEST_F(VerifyTest, AnEditedPayloadByteIsNamed) {
  std::fstream file(Segment(1), std::ios::in | std::ios::out | std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  const std::size_t at = bytes.find("xxxx");
  ASSERT_NE(at, std::string::npos);
  file.clear();
  file.seekp(static_cast<std::streamoff>(at));
  file.put('y');
  file.close();
  const VerifyReport report = Verify();
  ExpectFirst(report, SegmentName(1), 0);
  EXPECT_GT(report.steps[1].damaged, 0) << "the events that cannot be read are named too";
  EXPECT_EQ(report.steps[1].damages[0].seq, 1);
}

TEST_F(VerifyTest, AnotherDigestOfABodyThatWasActedOnIsNamedByItsAuditRecord) {
  Sql("UPDATE receipts SET body_sha256 = zeroblob(32) WHERE id = 2");
  const VerifyReport report = Verify();
  ExpectFirst(report, "event 2: the digest of its body", 2);
  EXPECT_EQ(report.steps[2].damages.at(0).seq, 6);
}

TEST_F(VerifyTest, SwappedJournalSegmentsAreNamed) {
  std::filesystem::rename(Segment(1), Segment(1) + ".x");
  std::filesystem::rename(Segment(2), Segment(1));
  std::filesystem::rename(Segment(1) + ".x", Segment(2));
  ExpectFirst(Verify(), SegmentName(1), 0);
}

TEST_F(VerifyTest, ALostEndOfTheJournalIsNamed) {
  for (int number = 9; number > 2; --number) std::filesystem::remove(Segment(number));
  const VerifyReport report = Verify(true);
  ASSERT_NE(report.First(), nullptr);
  EXPECT_GT(report.steps[2].damaged, 0);
  EXPECT_THAT(report.steps[1].damages.at(0).what, HasSubstr("is not the one of the head"));
}

TEST_F(VerifyTest, AnEditedStateIsNamedByItsHistoryAndItsCounts) {
  Sql("UPDATE events SET state = 2, class = 0, letter = NULL, lane = NULL, finished_at = 1 WHERE id = 7");
  const VerifyReport report = Verify();
  ExpectFirst(report, "event 7: it is marked succeeded", 7);
  EXPECT_EQ(report.steps.back().damaged, 3) << "and the two counts";
}

TEST_F(VerifyTest, ARemovedEventIsMissedInTheAccounting) {
  Sql("DELETE FROM events WHERE id = 7; DELETE FROM receipts WHERE id = 7");
  const VerifyReport report = Verify();
  ASSERT_NE(report.First(), nullptr);
  EXPECT_THAT(report.First()->what, HasSubstr("accounting: 12 events were taken in"));
}

TEST_F(VerifyTest, ItChangesNothing) {
  const auto bytes = [&](const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(in)), {});
  };
  const std::string before = bytes(database_), segment = bytes(Segment(1));
  Verify(true);
  EXPECT_TRUE(bytes(database_) == before);
  EXPECT_TRUE(bytes(Segment(1)) == segment);
}

TEST_F(VerifyTest, AMissingHeadsFileAndAMissingIndexAreSaid) {
  EXPECT_FALSE(VerifyStore(files_, {.database = database_, .heads_file = folder_ / "none"}));
  std::ofstream(folder_ / "empty") << "not a head\n";
  const auto report = OrThrow(VerifyStore(files_, {.database = database_, .heads_file = folder_ / "empty"}));
  ASSERT_NE(report.First(), nullptr);
  EXPECT_THAT(report.First()->what, HasSubstr("no line of it is a head"));
  std::filesystem::remove(database_);
  ASSERT_NE(Verify().First(), nullptr);
  EXPECT_THAT(Verify().First()->what, HasSubstr("the index is missing"));
}

}  // namespace
}  // namespace dlo::store
