#include "store/embedded/access.h"

#include "store/embedded/quarantine.h"
#include "store/embedded/sources.h"
#include "unit/store/letters_fixture.h"

namespace dlo::store {
namespace {

class Tokens : public LettersFixture {
 protected:
  Result<Token> Create(const std::string& name, const std::string& role = "viewer", const std::string& hash = "") {
    return CreateToken(*db_, name, role, hash.empty() ? "hash of " + name + std::to_string(++made_) : hash, actor_,
                       kStart);
  }
  int made_ = 0;
};

TEST_F(Tokens, LiveNamesAreUniqueAndRevokedOnesStayListed) {
  const Token first = OrThrow(Create("ci", "operator"));
  EXPECT_EQ(first.role, "operator");
  EXPECT_EQ(first.created_at, kStart);
  EXPECT_EQ(Create("ci").error().code, "name_taken");
  EXPECT_EQ(Create("ci").error().kind, ErrorKind::conflict);
  const Token revoked = OrThrow(RevokeToken(*db_, "ci", actor_, kStart + std::chrono::seconds(5)));
  EXPECT_EQ(revoked.id, first.id);
  EXPECT_EQ(RevokeToken(*db_, "ci", actor_, kStart).error().code, "no_such_token");
  OrThrow(Create("ci", "admin"));
  const auto tokens = OrThrow(ReadTokens(*db_));
  ASSERT_EQ(tokens.size(), 2U);
  EXPECT_EQ(tokens[0].revoked_at, kStart + std::chrono::seconds(5));
  EXPECT_EQ(tokens[1].revoked_at, std::nullopt);
  EXPECT_EQ(tokens[1].role, "admin");
}

TEST_F(Tokens, EachActIsRecordedAndARefusedOneIsNot) {
  OrThrow(Create("ci", "viewer", "secret-hash"));
  (void)Create("ci");
  (void)RevokeToken(*db_, "other", actor_, kStart);
  OrThrow(RevokeToken(*db_, "ci", actor_, kStart));
  const auto records = OrThrow(ReadAudit(*db_, 0, 0, 10));
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0].action, "token_revoke");
  EXPECT_EQ(records[1].action, "token_create");
  EXPECT_NE(records[1].details.find("\"name\":\"ci\",\"role\":\"viewer\""), std::string::npos);
  EXPECT_EQ(records[1].details.find("secret-hash"), std::string::npos);
}

TEST_F(Tokens, RefuseNamesRolesAndActors) {
  for (const std::string& name : {std::string(), std::string(65, 'x'), std::string("a\nb\x01"), std::string("\xFF")}) {
    EXPECT_EQ(Create(name).error().code, "bad_token_name");
  }
  EXPECT_TRUE(Create(std::string(64, 'x')));
  for (const char* role : {"", "root", "Admin"}) EXPECT_EQ(Create("n", role).error().code, "bad_role");
  actor_.name = "";
  EXPECT_EQ(Create("n").error().code, "actor_missing");
  EXPECT_EQ(RevokeToken(*db_, "n", actor_, kStart).error().code, "actor_missing");
}

class Audit : public LettersFixture {};

TEST_F(Audit, IsAppendOnly) {
  OrThrow(WriteAudit(*db_, actor_, kStart, "replay", 1, "{}"));
  EXPECT_FALSE(db_->Exec("UPDATE audit SET actor = 'x'"));
  EXPECT_FALSE(db_->Exec("DELETE FROM audit"));
  EXPECT_EQ(Number("SELECT count(*) FROM audit WHERE actor = 'jane'"), 1);
}

TEST_F(Audit, ReadsNewestFirstInPagesAndByEvent) {
  for (int i = 1; i <= 6; ++i) OrThrow(WriteAudit(*db_, actor_, kStart, "act" + std::to_string(i), i % 2, "{}"));
  const auto seqs = [&](EventId event, std::int64_t before, int limit) {
    std::vector<std::int64_t> out;
    for (const AuditRecord& r : OrThrow(ReadAudit(*db_, event, before, limit))) out.push_back(r.seq);
    return out;
  };
  EXPECT_EQ(seqs(0, 0, 4), (std::vector<std::int64_t>{6, 5, 4, 3}));
  EXPECT_EQ(seqs(0, 3, 4), (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(seqs(0, 1, 4), (std::vector<std::int64_t>{}));
  EXPECT_EQ(seqs(1, 0, 10), (std::vector<std::int64_t>{5, 3, 1}));
  EXPECT_EQ(seqs(1, 5, 1), (std::vector<std::int64_t>{3}));
  EXPECT_EQ(seqs(9, 0, 10), (std::vector<std::int64_t>{}));
}

class QuarantineTest : public LettersFixture {
 protected:
  static Rejected Make(const std::string& source, std::string body) {
    return {.at = kStart,
            .source = source,
            .reason = "no_match",
            .remote = "10.0.0.1",
            .headers = {{"A", "b"}, {"A", std::string("c\0\xFF", 3)}},
            .body = std::move(body)};
  }
  void Keep(const Rejected& rejected) { OrThrow(KeepRejected(*db_, std::span(&rejected, 1))); }
};

TEST_F(QuarantineTest, KeepsBytesAndHeadersAsTheyWere) {
  const std::string body("\0\xFF' \"", 5);
  Keep(Make("stripe", body));
  const auto list = OrThrow(ListRejected(*db_, "", 0, 10));
  ASSERT_EQ(list.size(), 1U);
  EXPECT_EQ(list[0].body, "");
  EXPECT_EQ(list[0].body_bytes, 5);
  const Rejected one = OrThrow(ReadRejected(*db_, list[0].id));
  EXPECT_EQ(one.body, body);
  EXPECT_EQ(one.headers, Make("", "").headers);
  EXPECT_EQ(std::tie(one.source, one.reason, one.remote), std::make_tuple("stripe", "no_match", "10.0.0.1"));
  EXPECT_EQ(one.at, kStart);
  EXPECT_EQ(ReadRejected(*db_, 99).error().code, "not_found");
}

TEST_F(QuarantineTest, ListsBySourceInPages) {
  for (int i = 0; i < 6; ++i) Keep(Make(i % 2 == 0 ? "a" : "b", ""));
  const auto ids = [&](const std::string& source, std::int64_t before, int limit) {
    std::vector<std::int64_t> out;
    for (const Rejected& r : OrThrow(ListRejected(*db_, source, before, limit))) out.push_back(r.id);
    return out;
  };
  EXPECT_EQ(ids("", 0, 3), (std::vector<std::int64_t>{6, 5, 4}));
  EXPECT_EQ(ids("", 4, 3), (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_EQ(ids("b", 0, 10), (std::vector<std::int64_t>{6, 4, 2}));
  EXPECT_EQ(ids("c", 0, 10), (std::vector<std::int64_t>{}));
}

TEST_F(QuarantineTest, KeepsTheNewestThousand) {
  std::vector<Rejected> flood(static_cast<std::size_t>(kMaxRejected), Make("s", "x"));
  OrThrow(KeepRejected(*db_, flood));
  EXPECT_EQ(Number("SELECT min(id) FROM rejected"), 1);
  Keep(Make("s", "x"));
  EXPECT_EQ(Number("SELECT count(*) FROM rejected"), kMaxRejected);
  EXPECT_EQ(Number("SELECT min(id) FROM rejected"), 2);
}

TEST_F(QuarantineTest, KeepsAtMost64MiBAndAlwaysTheNewest) {
  const std::int64_t headers = [&] {
    Keep(Make("s", ""));
    return Number("SELECT length(headers) FROM rejected");
  }();
  OrThrow(db_->Exec("DELETE FROM rejected"));
  const std::size_t quarter = static_cast<std::size_t>(kMaxRejectedBytes / 4 - headers);
  for (int i = 0; i < 4; ++i) Keep(Make("s", std::string(quarter, 'x')));
  EXPECT_EQ(Number("SELECT count(*) FROM rejected"), 4);  // exactly at the cap
  Keep(Make("s", ""));
  EXPECT_EQ(Number("SELECT count(*) FROM rejected"), 4);
  EXPECT_EQ(Number("SELECT min(id) FROM rejected"), 3);
  Keep(Make("s", std::string(static_cast<std::size_t>(kMaxRejectedBytes), 'x')));
  EXPECT_EQ(Number("SELECT count(*) FROM rejected"), 1);
}

class SourcesTest : public LettersFixture {};

TEST_F(SourcesTest, PauseOnceResumeOnceEachRecorded) {
  const SourcePause pause{.source = "stripe", .fingerprint = "00000000000000aa", .message = "schema", .since = kStart};
  const Actor system{.name = "system", .role = "system", .reason = "contract change"};
  OrThrow(PauseSource(*db_, pause, system));
  SourcePause again = pause;
  again.message = "other";
  OrThrow(PauseSource(*db_, again, system));
  const auto pauses = OrThrow(ReadPauses(*db_));
  ASSERT_EQ(pauses.size(), 1U);
  EXPECT_EQ(pauses[0].message, "schema");
  EXPECT_EQ(pauses[0].since, kStart);
  OrThrow(ResumeSource(*db_, "stripe", actor_, kStart));
  EXPECT_EQ(ResumeSource(*db_, "stripe", actor_, kStart).error().code, "not_paused");
  EXPECT_TRUE(OrThrow(ReadPauses(*db_)).empty());
  const auto records = OrThrow(ReadAudit(*db_, 0, 0, 10));
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(std::tie(records[1].actor, records[1].action), std::make_tuple("system", "source_pause"));
  EXPECT_EQ(std::tie(records[0].actor, records[0].action), std::make_tuple("jane", "source_resume"));
}

}  // namespace
}  // namespace dlo::store
