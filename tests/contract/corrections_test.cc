// Notes, which are only ever added, and corrected payloads beside originals that never change.
#include "base/encoding.h"
#include "contract/letter_steps.h"

namespace dlo::store::contract {
namespace {

class ContractNotes : public LetterTest {
 protected:
  Result<Note> Add(EventId id, const std::string& text) {
    return store_->AddNote({.event_id = id, .text = text}, actor_, Now());
  }
};

TEST_P(ContractNotes, StayThroughReplaysWithWhoAndWhen) {
  const EventId id = Dead("evt_1");
  const std::string fingerprint = Get(id).fingerprint;
  OrThrow(Add(id, "asked the customer"));
  clock_.Advance(std::chrono::seconds(5));
  const Note second = OrThrow(Add(id, "they agreed"));
  EXPECT_EQ(std::make_tuple(second.actor, second.role, second.at, second.event_id),
            std::make_tuple("jane", "operator", Now(), id));
  OrThrow(store_->AddNote({.fingerprint = fingerprint, .text = "known: BILL-7"}, actor_, Now()));
  OrThrow(Do(id, Act::replay));
  Succeed(ClaimOne());
  Reopen();
  const LetterDetail shown = OrThrow(store_->Show(id));
  ASSERT_EQ(shown.notes.size(), 2U);
  EXPECT_EQ(shown.notes[0].text, "they agreed");
  ASSERT_EQ(shown.group_notes.size(), 1U);
  EXPECT_EQ(shown.group_notes[0].text, "known: BILL-7");
  // The group has no letters now; what was said about it stays readable.
  EXPECT_EQ(OrThrow(store_->ReadNotes(0, fingerprint, 0, 10)).size(), 1U);
  EXPECT_EQ(OrThrow(store_->ReadNotes(id, "", second.id, 10)).size(), 1U);
  EXPECT_EQ(Records()[0].action, "replay");
  EXPECT_EQ(Records()[1].action, "note");
}

TEST_P(ContractNotes, AreToldWithTheirGroup) {
  const EventId id = Dead("evt_1");
  OrThrow(store_->AddNote({.fingerprint = Get(id).fingerprint, .text = "one"}, actor_, Now()));
  OrThrow(store_->AddNote({.fingerprint = Get(id).fingerprint, .text = "two"}, actor_, Now()));
  const auto groups = OrThrow(store_->Groups({}, "fingerprint"));
  EXPECT_EQ(std::make_tuple(groups[0].notes, groups[0].last_note), std::make_tuple(2, "two"));
}

TEST_P(ContractNotes, OnWhatDoesNotExistAreRefused) {
  EXPECT_EQ(Add(99, "x").error().code, "not_found");
  for (const char* fingerprint : {"0123456789abcdef", "xyz", ""}) {
    EXPECT_EQ(store_->AddNote({.fingerprint = fingerprint, .text = "x"}, actor_, Now()).error().code, "no_such_group");
    EXPECT_EQ(store_->ReadNotes(0, fingerprint, 0, 10).error().code, "no_such_group");
  }
  EXPECT_TRUE(Records().empty());
}

TEST_P(ContractNotes, HostileTextIsCleanedAndAThreadHasAnEnd) {
  const EventId id = Dead("evt_1");
  EXPECT_EQ(OrThrow(Add(id, std::string("a\0b\x1b[2J\xff", 8))).text.find('\x1b'), std::string::npos);
  for (int i = 1; i < kMaxNotes; ++i) ASSERT_TRUE(Add(id, "x"));
  EXPECT_EQ(Add(id, "one more").error().code, "too_many_notes");
}

class ContractRevisions : public LetterTest {
 protected:
  Result<Revision> Revise(EventId id, std::optional<std::string> body, std::optional<int> after = {}) {
    return store_->Revise({.id = id, .body = std::move(body), .after = after}, actor_, Now());
  }
  Claimed Replayed(EventId id) {
    OrThrow(Do(id, Act::replay));
    return ClaimOne();
  }
};

TEST_P(ContractRevisions, AReplaySendsTheNewestUnderTheSameKeyAndTheAttemptSaysWhich) {
  const EventId id = Dead("evt_1");
  const std::string original = OrThrow(store_->Payload(id));
  const Revision first = OrThrow(Revise(id, "{\"a\":1}"));
  EXPECT_EQ(std::make_tuple(first.number, first.body_bytes, first.body_sha256),
            std::make_tuple(1, 7, HexEncode(Sha256("{\"a\":1}"))));
  EXPECT_EQ(OrThrow(Revise(id, "{\"a\":2}")).number, 2);
  EXPECT_EQ(Get(id).revision, 2);
  Claimed claimed = Replayed(id);
  EXPECT_EQ(claimed.receipt->body, "{\"a\":2}");
  EXPECT_EQ(claimed.receipt->key, "evt_1");
  EXPECT_EQ(claimed.receipt->headers, MakeReceipt("evt_1").headers);
  EXPECT_EQ(claimed.run.revision, 2);
  EXPECT_TRUE(claimed.receipt->verdict.verified) << "the verdict is the original's";
  Fail(claimed, FailureClass::permanent);
  const LetterDetail shown = OrThrow(store_->Show(id));
  EXPECT_EQ(shown.attempts[0].revision, 2);
  EXPECT_EQ(shown.attempts[1].revision, 0);
  ASSERT_EQ(shown.revisions.size(), 2U);
  EXPECT_EQ(shown.revisions[0].reason, "fixed");
  EXPECT_EQ(OrThrow(store_->Payload(id)), original);
  EXPECT_EQ(OrThrow(store_->RevisionPayload(id, 0)), original);
  EXPECT_EQ(OrThrow(store_->RevisionPayload(id, 1)), "{\"a\":1}");
  EXPECT_EQ(shown.body_sha256, HexEncode(Sha256(original)));
}

TEST_P(ContractRevisions, AWithdrawalSendsTheOriginalAgain) {
  const EventId id = Dead("evt_1");
  EXPECT_EQ(Revise(id, std::nullopt).error().code, "no_revision");
  OrThrow(Revise(id, "new"));
  const Revision back = OrThrow(Revise(id, std::nullopt));
  EXPECT_EQ(std::make_tuple(back.number, back.original), std::make_tuple(2, true));
  EXPECT_EQ(Revise(id, std::nullopt).error().code, "no_revision");
  const Claimed claimed = Replayed(id);
  EXPECT_EQ(claimed.receipt->body, MakeReceipt("evt_1").body);
  EXPECT_EQ(claimed.run.revision, 0);
  EXPECT_EQ(OrThrow(store_->RevisionPayload(id, 2)), MakeReceipt("evt_1").body);
  EXPECT_EQ(OrThrow(store_->RevisionPayload(id, 1)), "new");
}

TEST_P(ContractRevisions, AreForLettersOnly) {
  const EventId id = Accept(MakeReceipt("evt_1")).id;
  EXPECT_EQ(Revise(id, "x").error().code, "not_dead_lettered");
  Claimed claimed = ClaimOne();
  EXPECT_EQ(Revise(id, "x").error().code, "not_dead_lettered");
  Fail(claimed, FailureClass::permanent);
  OrThrow(Do(id, Act::hold));
  EXPECT_TRUE(Revise(id, "x"));
  OrThrow(Do(id, Act::replay));
  EXPECT_EQ(Revise(id, "y").error().code, "in_replay");
  Succeed(ClaimOne());
  EXPECT_EQ(Revise(id, "y").error().code, "not_dead_lettered");
  EXPECT_EQ(Revise(99, "y").error().code, "not_found");
  EXPECT_EQ(store_->RevisionPayload(id, 9).error().code, "no_such_revision");
  EXPECT_EQ(store_->ListRevisions(99).error().code, "not_found");
}

TEST_P(ContractRevisions, OfTwoWhoCorrectAtOnceTheSecondIsTold) {
  const EventId id = Dead("evt_1");
  EXPECT_TRUE(Revise(id, "mine", 0));
  EXPECT_EQ(Revise(id, "theirs", 0).error().code, "revised_meanwhile");
  EXPECT_TRUE(Revise(id, "theirs", 1));
}

TEST_P(ContractRevisions, AnyBytesComeBackAsTheyWereAlsoAfterAKill) {
  const EventId id = Dead("evt_1");
  std::string bytes(100'000, '\0');
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 31);
  OrThrow(Revise(id, bytes));
  const auto copy = place_->AsIfKilledNow();
  store_ = OrThrow(copy->Open(clock_, options_));
  EXPECT_EQ(OrThrow(store_->RevisionPayload(id, 1)), bytes);
  EXPECT_EQ(Replayed(id).receipt->body, bytes);
  store_.reset();
}

TEST_P(ContractRevisions, ThereIsAnEndOfThem) {
  const EventId id = Dead("evt_1");
  for (int i = 0; i < kMaxRevisions; ++i) ASSERT_TRUE(Revise(id, "x"));
  EXPECT_EQ(Revise(id, "x").error().code, "too_many_revisions");
}

DLO_FOR_EACH_STORE(ContractNotes);
DLO_FOR_EACH_STORE(ContractRevisions);

}  // namespace
}  // namespace dlo::store::contract
