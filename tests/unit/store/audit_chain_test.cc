#include "store/embedded/audit_chain.h"

#include "store/embedded/access.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

class AuditChain : public LettersFixture {
 protected:
  void Write(const std::string& action, EventId event = 0) {
    OrThrow(WriteAudit(*db_, actor_, kStart, action, event, "{}"));
  }
  std::string Hash(std::int64_t seq) {
    auto rows = OrThrow(db_->PrepareOnce("SELECT hash FROM audit WHERE seq = " + std::to_string(seq)));
    OrThrow(rows.Step());
    return rows.String(0);
  }
};

TEST_F(AuditChain, EachRecordGoesOnWithTheOneBeforeAndTheHeadIsTheNewest) {
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).seq, 0);
  const EventId event = Add();
  Write("replay", event);
  Write("hold");
  AuditRecord first{.seq = 1,
                    .at = kStart,
                    .actor = "jane",
                    .role = "operator",
                    .action = "replay",
                    .event_id = event,
                    .reason = "because",
                    .details = "{}"};
  const Sha256Digest one = AuditHash(first, std::string(32, '\x11'), {});
  EXPECT_EQ(DigestOf(Hash(1)), one);
  AuditRecord second = first;
  second.seq = 2;
  second.action = "hold";
  second.event_id = 0;
  const AuditHead head = OrThrow(ReadAuditHead(*db_));
  EXPECT_EQ(head.seq, 2);
  EXPECT_EQ(head.hash, AuditHash(second, {}, one));
}

TEST_F(AuditChain, EveryFieldIsInTheHashAndNoneRunsIntoTheNext) {
  const AuditRecord plain{
      .seq = 1, .at = kStart, .actor = "ab", .role = "c", .action = "d", .event_id = 7, .reason = "e", .details = "f"};
  const Sha256Digest hash = AuditHash(plain, "g", {});
  const auto changed = [&](auto change) {
    AuditRecord other = plain;
    change(other);
    return AuditHash(other, "g", {}) != hash;
  };
  EXPECT_TRUE(changed([](AuditRecord& r) { r.seq = 2; }));
  EXPECT_TRUE(changed([](AuditRecord& r) { r.at += Duration(1); }));
  EXPECT_TRUE(changed([](AuditRecord& r) { r.event_id = 8; }));
  EXPECT_TRUE(changed([](AuditRecord& r) { r.actor = "a", r.role = "bc"; }));
  EXPECT_TRUE(changed([](AuditRecord& r) { r.action = "D"; }));
  EXPECT_TRUE(changed([](AuditRecord& r) { r.reason = "", r.details = "ef"; }));
  EXPECT_NE(AuditHash(plain, "h", {}), hash);
  EXPECT_NE(AuditHash(plain, "g", hash), hash);
}

TEST_F(AuditChain, AnActThatIsUndoneLeavesNoLink) {
  Write("first");
  OrThrow(db_->Exec("BEGIN"));
  Write("undone");
  OrThrow(db_->Exec("ROLLBACK"));
  Write("second");
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).seq, 2);
  EXPECT_EQ(DigestOf(Hash(2)), OrThrow(ReadAuditHead(*db_)).hash);
}

TEST_F(AuditChain, NobodyWritesBesideItOrTurnsItBack) {
  Write("first");
  const std::string fields = "(seq, at, actor, role, action, reason, details, hash) VALUES ";
  EXPECT_FALSE(db_->Exec("INSERT INTO audit " + fields + "(2, 0, 'a', 'b', 'c', '', '', NULL)"));
  EXPECT_FALSE(db_->Exec("INSERT INTO audit " + fields + "(4, 0, 'a', 'b', 'c', '', '', zeroblob(32))"));
  EXPECT_FALSE(db_->Exec("UPDATE audit_chain SET head_seq = 0"));
  EXPECT_FALSE(db_->Exec("UPDATE audit_chain SET base_hash = zeroblob(31), head_seq = 2"));
  EXPECT_FALSE(db_->Exec("DELETE FROM audit_chain"));
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).seq, 1);
}

/// A store whose audit log began before there was a chain.
class OlderAuditLog : public AuditChain {
 protected:
  OlderAuditLog() {
    for (const char* trigger : {"audit_chained", "audit_chain_no_delete"}) Drop(trigger);
    OrThrow(db_->Exec("DELETE FROM audit_chain"));
    for (int i = 1; i <= 3; ++i) {
      OrThrow(db_->Exec("INSERT INTO audit (at, actor, role, action, reason, details) VALUES (" + std::to_string(i) +
                        ", 'ana', 'admin', 'hold', 'r', '{}')"));
    }
  }
  void Drop(const std::string& trigger) { OrThrow(db_->Exec("DROP TRIGGER " + trigger)); }
};

TEST_F(OlderAuditLog, IsCoveredByTheFirstLink) {
  OrThrow(StartAuditChain(*db_));
  Sha256Digest hash{};
  for (const std::int64_t seq : {1, 2, 3}) {
    hash = AuditHash({.seq = seq,
                      .at = FromMicros(seq),
                      .actor = "ana",
                      .role = "admin",
                      .action = "hold",
                      .reason = "r",
                      .details = "{}"},
                     {}, hash);
  }
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).seq, 3);
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).hash, hash);
  Write("release");
  OrThrow(StartAuditChain(*db_));  // once is enough
  EXPECT_EQ(OrThrow(ReadAuditHead(*db_)).seq, 4);
  EXPECT_EQ(Number("SELECT base_seq FROM audit_chain"), 3);
}

}  // namespace
}  // namespace dlo::store
