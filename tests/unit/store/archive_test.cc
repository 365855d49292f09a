// Retention over a store whose journal and archive are on a disk in memory and whose index is a real database.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <set>

#include "base/metrics.h"
#include "base/time_text.h"
#include "env/clock.h"
#include "env/memory_files.h"
#include "env/random.h"
#include "store/embedded/archive_manifest.h"
#include "store/embedded/archive_verify.h"
#include "store/embedded/embedded_store.h"
#include "store/embedded/journal_verify.h"

namespace dlo::store {
namespace {

namespace fs = std::filesystem;
using std::chrono::days;

const Actor kJane{.name = "jane", .role = "operator", .reason = "because"};

/// Ends the "process" at the Nth passing of a point, by an exception that the test catches.
struct Died {};
class DieAt final : public CrashPoints {
 public:
  void At(std::string_view name) override {
    if (name != name_ || --count_ != 0) return;
    die_();
    throw Died();
  }
  void Set(std::string name, int count, std::function<void()> die) {
    name_ = std::move(name);
    count_ = count;
    die_ = std::move(die);
  }

 private:
  std::string name_;
  int count_ = 0;
  std::function<void()> die_;
};

class ArchiveTest : public testing::Test {
 protected:
  ArchiveTest() {
    std::string name = testing::TempDir() + "dlo-archive-XXXXXX";
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
  }
  ~ArchiveTest() override {
    store_.reset();
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  Result<void> TryOpen() {
    store_.reset();
    auto opened =
        OpenStepped({.database = folder_ + "/dlo.db", .segment_bytes = 4096}, *files_, clock_, crash_points_, metrics_);
    if (!opened) return std::unexpected(opened.error());
    store_ = std::move(*opened);
    return {};
  }
  void Open() {
    auto opened = TryOpen();
    ASSERT_TRUE(opened) << opened.error().message;
  }

  /// An empty place.
  void StartAnew() {
    store_.reset();
    files_ = std::make_unique<MemoryFiles>();
    for (const auto& entry : fs::directory_iterator(folder_)) fs::remove_all(entry);
    ids_.clear();
    bodies_.clear();
    Open();
  }
  /// From now on nothing reaches the disks: the database is what it is at this moment.
  void Die(bool power_cut) {
    for (const char* suffix : {"", "-wal"}) {
      const std::string path = folder_ + "/dlo.db" + suffix;
      if (fs::exists(path)) fs::copy_file(path, folder_ + "/dead" + suffix, fs::copy_options::overwrite_existing);
    }
    power_cut ? files_->PowerCut(random_) : files_->ProcessDied();
  }
  void Resurrect() {
    store_.reset();
    for (const char* suffix : {"", "-wal", "-shm"}) {
      fs::remove(folder_ + "/dlo.db" + suffix);
      const std::string dead = folder_ + "/dead" + suffix;
      if (fs::exists(dead)) fs::rename(dead, folder_ + "/dlo.db" + suffix);
    }
    Open();
  }

  Accepted Accept(const std::string& key, const std::string& body) {
    auto receipt = std::make_shared<Receipt>();
    receipt->source = "stripe";
    receipt->key = key;
    receipt->kind = "invoice.paid";
    receipt->account = "acct_" + key;
    receipt->received_at = clock_.Now();
    receipt->headers = {{"Content-Type", "application/json"}};
    receipt->body = body;
    Accepted accepted;
    bool told = false;
    store_->Accept({receipt}, [&](Result<std::vector<Accepted>> result) {
      EXPECT_TRUE(result) << result.error().message;
      if (result) accepted = result->front();
      told = true;
    });
    store_->StepJournal();
    while (store_->StepIndex()) {
    }
    EXPECT_TRUE(told);
    return accepted;
  }
  static std::string BodyOf(const std::string& key) {
    std::string body = "{\"id\":\"" + key + "\",\"fill\":\"";
    for (int i = 0; i < 40; ++i) body += key + std::to_string(i * 7919);
    return body + "\"}";
  }
  EventId Receive(const std::string& key) {
    bodies_[key] = BodyOf(key);
    const Accepted accepted = Accept(key, bodies_[key]);
    EXPECT_EQ(accepted.status, AcceptStatus::stored);
    return ids_[key] = accepted.id;
  }
  /// Runs everything that waits: keys that begin with "bad" are refused, the others succeed.
  void Dispatch() {
    for (;;) {
      const std::vector<ClaimWant> wants{{"stripe", "billing", 100}};
      const auto got = store_->Exchange({{}, wants, {"worker"}, clock_.Now()});
      ASSERT_TRUE(got) << got.error().message;
      if (got->claimed.empty()) return;
      std::vector<Transition> ended;
      for (const Claimed& claimed : got->claimed) {
        const bool bad = claimed.receipt->key.starts_with("bad");
        Transition t;
        t.id = claimed.run.id;
        t.token = claimed.run.token;
        t.at = clock_.Now();
        t.to = bad ? State::dead : State::succeeded;
        if (claimed.run.replaying) {
          t.to = State::replayed;
          t.replay_result = ReplayResult::committed;
        }
        t.outcome = t.to == State::dead ? Outcome::Permanent("no_plan", "no such plan") : Outcome::Applied();
        if (t.to == State::dead) {
          t.failure_class = FailureClass::permanent;
          t.fingerprint = "00000000000000aa";
        }
        ended.push_back(t);
      }
      const auto applied = store_->Exchange({ended, {}, {"worker"}, clock_.Now()});
      ASSERT_TRUE(applied) << applied.error().message;
    }
  }

  RetentionCutoffs Cutoffs() const {
    const Time now = clock_.Now();
    return {.succeeded = now - days(14), .closed = now - days(90), .cold = now - days(90)};
  }
  Result<PruneReport> Archive(const RetentionCutoffs& cutoffs) {
    PruneReport all;
    for (;;) {
      const auto done = store_->ArchiveNext(cutoffs, clock_.Now(), {}, Duration(0));
      if (!done) return std::unexpected(done.error());
      all.succeeded += done->report.succeeded;
      all.closed += done->report.closed;
      all.letters += done->report.letters;
      all.segments += done->report.segments;
      all.on_hold = std::max(all.on_hold, done->report.on_hold);
      if (!done->worked) return all;
    }
  }
  PruneReport ArchiveOk() {
    auto done = Archive(Cutoffs());
    EXPECT_TRUE(done) << done.error().message;
    return done.value_or(PruneReport{});
  }

  void ExpectSound() {
    const auto figures = store_->Recount();
    ASSERT_TRUE(figures) << figures.error().message;
    EXPECT_EQ(figures->accounting_difference, 0);
    const auto journal = VerifyJournal(*files_, folder_ + "/journal", folder_ + "/archive");
    ASSERT_TRUE(journal) << journal.error().message;
    EXPECT_EQ(journal->problems, std::vector<std::string>());
    EXPECT_EQ(journal->last_seq, figures->receipts);
    const auto archive = VerifyArchive(*files_, folder_ + "/archive");
    ASSERT_TRUE(archive) << archive.error().message;
    EXPECT_EQ(archive->problems, std::vector<std::string>());
  }
  /// Whatever happened: the bytes of each event are there, and so is what is known of it.
  void ExpectAllThere() {
    for (const auto& [key, id] : ids_) {
      const auto payload = store_->Payload(id);
      ASSERT_TRUE(payload) << key << ": " << payload.error().message;
      EXPECT_EQ(*payload, bodies_[key]);
      const auto shown = store_->Show(id);
      ASSERT_TRUE(shown) << key << ": " << shown.error().message;
      EXPECT_EQ(shown->letter.key, key);
      if (shown->pruned) {
        EXPECT_FALSE(shown->archived_in.empty());
      }
    }
    ExpectSound();
  }
  std::vector<std::string> Names(const std::string& folder) { return OrThrow(files_->List(folder_ + "/" + folder)); }

  /// Some segments' worth of events, all over.
  void Fill(int events, int bad_every = 0) {
    for (int i = 0; i < events; ++i) {
      Receive((bad_every > 0 && i % bad_every == 0 ? "bad_" : "evt_") + std::to_string(i));
    }
    Dispatch();
  }
  void EveryDay(int n) { clock_.Advance(days(n)); }

  std::string folder_;
  std::unique_ptr<MemoryFiles> files_ = std::make_unique<MemoryFiles>();
  SeededRandom random_{7};
  ManualClock clock_{*ParseTime("2026-01-01T00:00:00Z")};
  DieAt crash_points_;
  Metrics metrics_;
  std::unique_ptr<SteppedStore> store_;
  std::map<std::string, EventId> ids_;
  std::map<std::string, std::string> bodies_;
};

TEST_F(ArchiveTest, WhatIsOverIsArchivedAfterItsPeriodAndThenPruned) {
  Open();
  Fill(40);
  EXPECT_EQ(ArchiveOk().segments, 0) << "nothing is old enough";
  EveryDay(13);
  EXPECT_EQ(ArchiveOk().segments, 0);
  EveryDay(2);
  const PruneReport done = ArchiveOk();
  EXPECT_GT(done.segments, 3);
  EXPECT_EQ(done.succeeded, 40);
  const auto figures = OrThrow(store_->Read());
  EXPECT_EQ(figures.pruned, 40);
  EXPECT_EQ(figures.accounting_difference, 0);
  ExpectAllThere();
  EXPECT_TRUE(store_->Show(1)->pruned);
  EXPECT_EQ(store_->Show(1)->attempts.size(), 1U);
  EXPECT_EQ(Names("journal").size(), 1U) << "only the segment that is written is left";
  EXPECT_EQ(ArchiveOk().segments, 0) << "nothing is done twice";
}

TEST_F(ArchiveTest, AResendAfterAYearIsStillADuplicateAndAnotherBodyStillAConflict) {
  Open();
  Fill(20);
  EveryDay(365);
  EXPECT_EQ(ArchiveOk().succeeded, 20);
  for (const bool again : {false, true}) {
    const Accepted same = Accept("evt_3", BodyOf("evt_3"));
    EXPECT_EQ(same.status, AcceptStatus::duplicate) << again;
    EXPECT_EQ(same.id, ids_["evt_3"]);
    const Accepted other = Accept("evt_4", "{\"run\":" + std::to_string(again) + "}");
    EXPECT_EQ(other.status, AcceptStatus::conflict) << again;
    EXPECT_EQ(other.first_id, ids_["evt_4"]);
    Open();
  }
  ExpectSound();
}

TEST_F(ArchiveTest, UnresolvedLettersKeepTheirSegmentUntilItIsCold) {
  Open();
  Fill(40, 10);
  EveryDay(60);
  const PruneReport warm = ArchiveOk();
  EXPECT_EQ(warm.letters, 0);
  EXPECT_LT(warm.succeeded, 36);
  EveryDay(31);
  const PruneReport cold = ArchiveOk();
  EXPECT_EQ(cold.letters, 4);
  EXPECT_EQ(warm.succeeded + cold.succeeded, 36);
  ExpectAllThere();

  // Listed, counted and replayable as before, from the archive's bytes.
  EXPECT_EQ(*store_->Count({}), 4);
  EXPECT_EQ(store_->List({}, 50, "")->items.size(), 4U);
  const auto shown = store_->Show(ids_["bad_10"]);
  EXPECT_FALSE(shown->pruned);
  EXPECT_FALSE(shown->archived_in.empty());
  const TriageAct replay{.id = ids_["bad_10"], .act = Act::replay};
  ASSERT_TRUE(store_->Triage(std::span(&replay, 1), kJane, clock_.Now())->front());
  Dispatch();
  EXPECT_EQ(store_->Show(ids_["bad_10"])->letter.state, State::replayed);
  EXPECT_EQ(*store_->Count({}), 3);

  // Then it is over as well: a sidecar of its own, and its rows go.
  EveryDay(91);
  const PruneReport later = ArchiveOk();
  EXPECT_EQ(later.closed, 1);
  EXPECT_EQ(later.segments, 0);
  EXPECT_EQ(store_->Show(ids_["bad_10"])->letter.state, State::replayed);
  EXPECT_TRUE(store_->Show(ids_["bad_10"])->pruned);
  EXPECT_EQ(*store_->Count({}), 3) << "no unresolved letter is ever pruned";
  ExpectAllThere();
}

TEST_F(ArchiveTest, InfinityDisables) {
  Open();
  Fill(20);
  EveryDay(1000);
  EXPECT_EQ(Archive({})->segments, 0);
  EXPECT_EQ(Archive({.closed = clock_.Now()})->segments, 0);
  EXPECT_EQ(OrThrow(store_->Read()).pruned, 0);
}

TEST_F(ArchiveTest, WhatWaitsOrRunsStaysInTheJournal) {
  Open();
  for (int i = 0; i < 20; ++i) Receive("evt_" + std::to_string(i));
  EveryDay(365);
  EXPECT_EQ(ArchiveOk().segments, 0);
  Dispatch();
  EXPECT_EQ(ArchiveOk().segments, 0);
  EveryDay(15);
  EXPECT_EQ(ArchiveOk().succeeded, 20);
}

TEST_F(ArchiveTest, ALegalHoldKeepsItsSegmentWhereItIsUntilItEnds) {
  Open();
  Fill(20);
  EveryDay(100);
  Filter filter;
  filter.accounts = {"acct_evt_3"};
  EXPECT_EQ(store_->AddLegalHold(filter, {.name = "jane"}, clock_.Now()).error().code, "reason_missing");
  const auto hold = store_->AddLegalHold(filter, kJane, clock_.Now());
  ASSERT_TRUE(hold) << hold.error().message;
  const PruneReport held = ArchiveOk();
  EXPECT_EQ(held.on_hold, 1);
  EXPECT_FALSE(store_->Show(ids_["evt_3"])->pruned);
  EXPECT_TRUE(store_->Show(ids_["evt_3"])->archived_in.empty()) << "not moved either";
  EXPECT_LT(held.succeeded, 20);
  ASSERT_TRUE(store_->EndLegalHold(hold->id, kJane, clock_.Now()));
  EXPECT_EQ(store_->EndLegalHold(hold->id, kJane, clock_.Now()).error().code, "already_ended");
  EXPECT_EQ(ArchiveOk().succeeded + held.succeeded, 20);
  const auto audit = OrThrow(store_->Audit(0, 0, 100));
  EXPECT_TRUE(std::ranges::any_of(audit, [](const AuditRecord& r) { return r.action == "legal_hold_add"; }));
  EXPECT_TRUE(std::ranges::any_of(audit, [](const AuditRecord& r) { return r.action == "legal_hold_end"; }));
  ExpectAllThere();
}

TEST_F(ArchiveTest, WhoeverAsksGetsWhatIsDueOutOfSegmentsThatAreNotOver) {
  Open();
  Fill(12, 4);
  EveryDay(2);
  RetentionCutoffs now{.succeeded = clock_.Now() - days(1), .now = true};
  const auto done = Archive(now);
  ASSERT_TRUE(done) << done.error().message;
  EXPECT_EQ(done->succeeded, 9);
  EXPECT_EQ(done->letters, 3) << "they moved along";
  EXPECT_EQ(*store_->Count({}), 3);
  ExpectAllThere();
}

TEST_F(ArchiveTest, SealedSegmentsAreCompressedAndReadAsBefore) {
  Open();
  for (int i = 0; i < 40; ++i) Receive("evt_" + std::to_string(i));
  clock_.Advance(std::chrono::hours(2));
  ASSERT_TRUE(Archive({}));
  int compressed = 0, plain = 0;
  for (const std::string& name : Names("journal")) (name.ends_with(".seg.zst") ? compressed : plain)++;
  EXPECT_GT(compressed, 3);
  EXPECT_EQ(plain, 1);
  ExpectAllThere();
  Open();
  ExpectAllThere();
  Dispatch();
  EXPECT_EQ(*store_->Count({.states = {State::succeeded}}), 40);
}

TEST_F(ArchiveTest, ALostIndexIsRebuiltFromJournalAndArchive) {
  Open();
  Fill(40, 10);
  EveryDay(100);
  EXPECT_EQ(ArchiveOk().succeeded, 36);
  Receive("evt_new");
  store_.reset();
  for (const char* suffix : {"", "-wal", "-shm"}) fs::remove(folder_ + "/dlo.db" + suffix);
  Open();
  ExpectAllThere();
  const auto waiting = store_->Count({.states = {State::waiting}});
  EXPECT_EQ(*waiting, 1) << "nothing of the archive is handed out again";
  EXPECT_EQ(*store_->Count({}), 4) << "letters are letters again";
  EXPECT_EQ(OrThrow(store_->Read()).pruned, 36);
  EXPECT_EQ(store_->Show(ids_["bad_20"])->letter.code, "no_plan");
  EXPECT_EQ(Accept("evt_3", BodyOf("evt_3")).status, AcceptStatus::duplicate);
  EXPECT_EQ(Accept("evt_3", "{}").status, AcceptStatus::conflict);
  EXPECT_EQ(ArchiveOk().segments, 0);
  ExpectSound();
}

/// What a death at any moment leaves is finished by the next process, and no event is in neither place.
TEST_F(ArchiveTest, DeathAtAnyNamedMomentEndsInTheJournalOrInTheArchive) {
  for (const char* point : {"archive.after_compress", "archive.before_copy", "archive.after_copy",
                            "archive.after_manifest", "prune.before_commit", "prune.after_commit"}) {
    for (const int nth : {1, 2, 3}) {
      for (const bool power_cut : {false, true}) {
        SCOPED_TRACE(fmt::format("{} {} {}", point, nth, power_cut ? "power cut" : "kill"));
        StartAnew();
        Fill(30, 8);
        EveryDay(100);
        crash_points_.Set(point, nth, [&] { Die(power_cut); });
        EXPECT_THROW(static_cast<void>(Archive(Cutoffs())), Died);
        crash_points_.Set({}, 0, {});
        Resurrect();
        if (HasFatalFailure()) return;
        ExpectAllThere();
        ArchiveOk();
        ExpectAllThere();
        EXPECT_EQ(OrThrow(store_->Read()).pruned, 26);
        EXPECT_EQ(*store_->Count({}), 4);
      }
    }
  }
}

/// The same after any single change of the disk, of which there are some hundreds.
TEST_F(ArchiveTest, APowerCutAfterAnyChangeOfTheDiskLosesNothing) {
  for (int change = 1;; change += 3) {
    SCOPED_TRACE(fmt::format("change {}", change));
    StartAnew();
    Fill(12, 5);
    EveryDay(100);
    files_->DieAtChange(change);
    const bool whole = Archive(Cutoffs()).has_value();
    Die(true);
    Resurrect();
    if (HasFatalFailure()) return;
    ExpectAllThere();
    ArchiveOk();
    ExpectAllThere();
    EXPECT_EQ(OrThrow(store_->Read()).pruned, 9);
    if (whole) return;
  }
}

TEST_F(ArchiveTest, DamageIsNamed) {
  const auto damage = [&](const std::string& name, const std::function<void(std::string&)>& how) {
    StartAnew();
    Fill(20);
    EveryDay(100);
    ArchiveOk();
    const std::string path = folder_ + "/archive/" + name;
    std::string bytes = files_->Contents(path);
    how(bytes);
    files_->SetContents(path, bytes);
    std::string told;
    const auto archive = VerifyArchive(*files_, folder_ + "/archive");
    if (!archive) return archive.error().message;
    for (const std::string& problem : archive->problems) told += problem + "\n";
    EXPECT_FALSE(VerifyArchive(*files_, folder_ + "/archive")->problems.empty());
    return told;
  };
  const auto edit = [](std::string& bytes) { bytes[bytes.size() / 2] ^= 1; };
  const auto cut = [](std::string& bytes) { bytes.resize(bytes.size() - 20); };
  const std::string data = "0000000002.seg.zst", sidecar = "0000000002.1.ndjson.zst";
  for (const std::string& name : {data, sidecar}) {
    EXPECT_THAT(damage(name, edit), testing::HasSubstr(name));
    EXPECT_THAT(damage(name, cut), testing::HasSubstr(name));
    EXPECT_THAT(damage(name,
                       [&](std::string& bytes) {
                         bytes = files_->Contents(folder_ + "/archive/0000000001" + name.substr(10));
                       }),
                testing::HasSubstr(name));
  }
  EXPECT_THAT(damage("manifest.ndjson", edit), testing::HasSubstr("manifest.ndjson"));
  EXPECT_THAT(damage("manifest.ndjson",
                     [](std::string& bytes) {
                       bytes.erase(bytes.find('\n') + 1, bytes.find('\n', bytes.find('\n') + 1) - bytes.find('\n'));
                     }),
              testing::HasSubstr("manifest.ndjson"));

  // A file that is gone is told by whoever needs it, and stops nobody else.
  StartAnew();
  Fill(20);
  EveryDay(100);
  ArchiveOk();
  ASSERT_TRUE(files_->Remove(folder_ + "/archive/" + data));
  Open();
  const auto payload = store_->Payload(10);
  ASSERT_FALSE(payload);
  EXPECT_EQ(payload.error().code, "archive_missing");
  EXPECT_TRUE(store_->Payload(1)) << "the others are read";
  EXPECT_EQ(Accept("evt_10", BodyOf("evt_10")).status, AcceptStatus::duplicate);
  EXPECT_THAT(VerifyArchive(*files_, folder_ + "/archive")->problems, testing::Contains(testing::HasSubstr(data)));
}

TEST_F(ArchiveTest, NothingIsPrunedThatCannotBeReadBack) {
  Open();
  Fill(20);
  EveryDay(100);
  // The process dies after the line, and somebody alters the copy before the next one prunes.
  crash_points_.Set("archive.after_manifest", 1, [&] { Die(false); });
  EXPECT_THROW(static_cast<void>(Archive(Cutoffs())), Died);
  crash_points_.Set({}, 0, {});
  const std::string path = folder_ + "/archive/0000000001.seg.zst";
  std::string bytes = files_->Contents(path);
  bytes[bytes.size() / 2] ^= 1;
  files_->SetContents(path, bytes);
  Resurrect();
  const auto done = Archive(Cutoffs());
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, "archive_damaged");
  EXPECT_EQ(OrThrow(store_->Read()).pruned, 0);
  for (const auto& [key, id] : ids_) EXPECT_EQ(*store_->Payload(id), bodies_[key]) << "the journal still has it";
}

}  // namespace
}  // namespace dlo::store
