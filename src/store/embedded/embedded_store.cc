#include "store/embedded/embedded_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

#include "base/encoding.h"
#include "base/log.h"
#include "store/embedded/accept_thread.h"
#include "store/embedded/access.h"
#include "store/embedded/alarms.h"
#include "store/embedded/archive_manifest.h"
#include "store/embedded/archived_events.h"
#include "store/embedded/archiver.h"
#include "store/embedded/audit_chain.h"
#include "store/embedded/bulk_decisions.h"
#include "store/embedded/claimed_bodies.h"
#include "store/embedded/diagnosis.h"
#include "store/embedded/figures.h"
#include "store/embedded/hot_cache.h"
#include "store/embedded/index_intake.h"
#include "store/embedded/index_queue.h"
#include "store/embedded/index_recover.h"
#include "store/embedded/index_thread.h"
#include "store/embedded/journal.h"
#include "store/embedded/journal_segment.h"
#include "store/embedded/lane_release.h"
#include "store/embedded/legal_holds.h"
#include "store/embedded/notes.h"
#include "store/embedded/prune.h"
#include "store/embedded/quarantine.h"
#include "store/embedded/reader_pool.h"
#include "store/embedded/reads.h"
#include "store/embedded/replay_acts.h"
#include "store/embedded/replay_items.h"
#include "store/embedded/replay_plan.h"
#include "store/embedded/replay_planner.h"
#include "store/embedded/revisions.h"
#include "store/embedded/rules.h"
#include "store/embedded/schema.h"
#include "store/embedded/sources.h"
#include "store/embedded/sqlite.h"
#include "store/embedded/triage.h"
#include "store/pace.h"

namespace dlo::store {
namespace {

/// events_behind stops counting here: more is "more than 10,000" to a person.
constexpr std::int64_t kMaxBehindCounted = 10'001;
constexpr int kReaders = 3;
/// Whoever was answered finds his event in the lists, though the index is some milliseconds behind; under overload he
/// waits no longer than this.
constexpr Duration kReadYourWrites = std::chrono::seconds(1);
/// After "disk_full" the store is ready again when so much is free: some groups of the journal.
constexpr std::uint64_t kEnoughFree = std::uint64_t{32} << 20;

class EmbeddedStore final : public SteppedStore {
 public:
  EmbeddedStore(EmbeddedOptions options, bool threads, Files& files, Clock& clock)
      : options_(std::move(options)), threads_(threads), files_(files), clock_(clock), hot_(options_.hot_bytes) {}
  ~EmbeddedStore() override { Close(); }

  Result<void> Open(CrashPoints& crash_points, Metrics& metrics);
  void Close() override;

  // Inbox
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, AcceptDone done) override {
    accept_->Accept(std::move(batch), std::move(done));
  }

  // Queue
  Result<ExchangeResult> Exchange(const ExchangeRequest& request) override;
  void StartExchange(const ExchangeRequest& request, ExchangeDone done) override {
    index_->Start(
        Flush::normal, [this, request](IndexContext& c) { return ExchangeWork(c, hot_, request); }, std::move(done));
  }
  void Load(std::vector<Claimed>& claimed) override { LoadClaimed(*journal_, readers_, claimed); }
  Result<std::vector<LeaseRef>> Renew(std::span<const LeaseRef> leases, Time until) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return RenewLeases(c.db, leases, until); });
  }
  Result<std::vector<RunContext>> ExpiredLeases(Time now, int max) override {
    return readers_.Read([&](Db& db) { return ReadExpiredLeases(db, now, max); });
  }
  Result<int> HandBack(std::span<const LeaseRef> leases, Time due) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return HandBackLeases(c, leases, due); });
  }
  Result<int> ExpireAllLeases(Time now) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return ExpireLeases(c.db, now); });
  }
  bool StepJournal() override { return accept_->Step(); }
  bool StepIndex() override { return index_->Step(); }
  void OnWork(std::function<void()> ring) override { index_->OnWork(std::move(ring)); }

  // Letters
  Result<Page> List(const Filter& filter, int limit, const std::string& cursor) override {
    Result<Page> page = Read([&](Db& db) { return ListLetters(db, filter, limit, cursor); });
    if (page) {
      for (Letter& letter : page->items) CountBehind(letter);
    }
    return page;
  }
  Result<std::int64_t> Count(const Filter& filter) override {
    return Read([&](Db& db) { return CountLetters(db, filter); });
  }
  Result<std::vector<Group>> Groups(const Filter& filter, const std::string& by) override {
    return Read([&](Db& db) { return GroupLetters(db, filter, by); });
  }
  Result<LetterDetail> Show(EventId id) override;
  Result<std::vector<Attempt>> Attempts(EventId id) override {
    return Read([&](Db& db) { return ReadAttempts(db, id); });
  }
  Result<std::string> Payload(EventId id) override;
  Result<std::vector<Result<Letter>>> Triage(std::span<const TriageAct> acts, const Actor& actor, Time now) override;
  Result<std::vector<EventId>> ReleaseLanes(const std::string& source, std::int64_t max_behind, Time older_than,
                                            const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) {
      c.NotifyWork();
      return store::ReleaseLanes(c.db, c.lanes, source, max_behind, older_than, actor, now);
    });
  }

  // Replays
  Result<ReplayPlan> Plan(const Filter& filter) override {
    return Read([&](Db& db) { return PlanReplay(db, filter); });
  }
  Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                            const Actor& actor, Time now) override;
  // The pacer reads many times a second: it must not make the index take in early what gathers.
  Result<std::vector<RunningReplay>> Running() override {
    return readers_.Read([](Db& db) { return RunningReplays(db); });
  }
  Result<std::map<std::string, std::int64_t>> LiveDue(std::span<const std::string> sources, Time now,
                                                      int at_most) override {
    return readers_.Read([&](Db& db) { return CountLiveDue(db, sources, now, at_most); });
  }
  Result<std::int64_t> Release(const ReleaseOrder& order) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) {
      c.NotifyWork();
      return ReleaseItems(c.db, c.counts, c.lanes, order);
    });
  }
  Result<ReplayProgress> Act(std::int64_t replay_id, ReplayAct act, const Actor& actor, Time now) override {
    return index_->Run(Flush::full, [&](IndexContext& c) { return ApplyReplayAct(c.db, replay_id, act, actor, now); });
  }
  Result<ReplayProgress> Get(std::int64_t replay_id) override {
    return Read([&](Db& db) { return GetReplay(db, replay_id, clock_.Now()); });
  }
  Result<std::vector<ReplayProgress>> Recent(int limit) override {
    return Read([&](Db& db) { return RecentReplays(db, limit, clock_.Now()); });
  }
  Result<ReplayItems> Items(std::int64_t replay_id, const ReplayItemFilter& filter, int limit,
                            const std::string& cursor) override {
    return Read([&](Db& db) { return ReadReplayItems(db, replay_id, filter, limit, cursor); });
  }

  // Decisions
  Result<Decision> PlanDecision(const Filter& filter, dlo::Act act) override;
  Result<Decision> CreateDecision(const Filter& filter, const BulkAct& act, const DecisionOptions& options,
                                  const Actor& actor, Time now) override;
  Result<std::vector<std::int64_t>> OpenDecisions() override {
    return Read([](Db& db) { return ReadOpenDecisions(db); });
  }
  Result<Decision> StepDecision(std::int64_t decision_id, int n, Time now) override {
    return Write(Flush::full,
                 [&](IndexContext& c) { return store::StepDecision(c, options_.holds_lane, decision_id, n, now); });
  }
  Result<Decision> GetDecision(std::int64_t decision_id) override {
    return Read([&](Db& db) { return ReadDecision(db, decision_id); });
  }
  Result<std::vector<Decision>> RecentDecisions(int limit) override {
    return Read([&](Db& db) { return ReadDecisions(db, limit); });
  }

  // RuleBook
  Result<Rule> AddRule(const Rule& rule, const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return InsertRule(c.db, rule, actor, now); });
  }
  Result<RuleTrial> TryRule(const Rule& rule) override {
    return Read([&](Db& db) { return store::TryRule(db, rule); });
  }
  Result<Rule> EndRule(std::int64_t rule_id, const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return store::EndRule(c.db, rule_id, actor, now); });
  }
  Result<std::vector<Rule>> ListRules(int limit) override {
    return Read([&](Db& db) { return ReadRules(db, limit); });
  }
  Result<RuleStep> ApplyRules(int n, Time now) override;

  // NoteBook
  Result<Note> AddNote(const Note& note, const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return InsertNote(c.db, note, actor, now); });
  }
  Result<std::vector<Note>> ReadNotes(EventId event_id, const std::string& fingerprint, std::int64_t before,
                                      int limit) override {
    return Read([&](Db& db) -> Result<std::vector<Note>> {
      if (auto known = CheckNoted(db, event_id, fingerprint); !known) return std::unexpected(known.error());
      return store::ReadNotes(db, event_id, fingerprint, before, limit);
    });
  }

  // Revisions
  Result<Revision> Revise(const RevisionRequest& request, const Actor& actor, Time now) override;
  Result<std::vector<Revision>> ListRevisions(EventId id) override {
    return Read([&](Db& db) -> Result<std::vector<Revision>> {
      if (auto place = PlaceOf(db, id); !place) return std::unexpected(place.error());
      return ReadRevisions(db, id);
    });
  }
  Result<std::string> RevisionPayload(EventId id, int number) override;

  // Access
  Result<Token> CreateToken(const std::string& name, const std::string& role, const std::string& hash,
                            const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return store::CreateToken(c.db, name, role, hash, actor, now); });
  }
  Result<Token> RevokeToken(const std::string& name, const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return store::RevokeToken(c.db, name, actor, now); });
  }
  Result<std::vector<Token>> Tokens() override {
    return Read([](Db& db) { return ReadTokens(db); });
  }
  using Access::Audit;
  Result<std::vector<AuditRecord>> Audit(const AuditFilter& filter, std::int64_t before, int limit) override {
    return Read([&](Db& db) { return ReadAudit(db, filter, before, limit); });
  }
  Result<EvidenceHead> Head() override;

  // Quarantine
  void Keep(Rejected rejected) override;
  Result<std::vector<Rejected>> RejectedList(const std::string& source, std::int64_t before, int limit) override {
    return Read([&](Db& db) { return ListRejected(db, source, before, limit); });
  }
  Result<Rejected> RejectedOne(std::int64_t id) override {
    return Read([&](Db& db) { return ReadRejected(db, id); });
  }

  // Sources
  Result<void> Pause(const SourcePause& pause, const Actor& actor) override {
    return Write(Flush::full, [&](IndexContext& c) { return PauseSource(c.db, pause, actor); });
  }
  Result<void> Resume(const std::string& source, const Actor& actor, Time now) override {
    return Write(Flush::full, [&](IndexContext& c) {
      c.NotifyWork();
      return ResumeSource(c.db, source, actor, now);
    });
  }
  Result<std::vector<SourcePause>> Pauses() override {
    return Read([](Db& db) { return ReadPauses(db); });
  }

  // Retention
  Result<ArchiveWork> ArchiveNext(const RetentionCutoffs& cutoffs, Time now, const GoOn& go_on,
                                  Duration wait) override {
    return archiver_->Next(cutoffs, now, go_on, wait);
  }
  Result<void> AuditRetention(const std::string& action, const std::string& details, const Actor& actor,
                              Time now) override {
    return Write(Flush::full, [&](IndexContext& c) { return WriteAudit(c.db, actor, now, action, 0, details); });
  }
  Result<std::vector<LegalHold>> LegalHolds() override {
    return Read([](Db& db) { return ReadLegalHolds(db); });
  }
  Result<LegalHold> AddLegalHold(const Filter& filter, const Actor& actor, Time now) override {
    auto hold = Write(Flush::full, [&](IndexContext& c) { return store::AddLegalHold(c.db, filter, actor, now); });
    archiver_->HoldsChanged();
    return hold;
  }
  Result<LegalHold> EndLegalHold(std::int64_t id, const Actor& actor, Time now) override {
    auto hold = Write(Flush::full, [&](IndexContext& c) { return store::EndLegalHold(c.db, id, actor, now); });
    archiver_->HoldsChanged();
    return hold;
  }
  Result<std::vector<ArchivedSegment>> Archive(std::int64_t after, int limit) override {
    return ListArchive(*manifest_, after, limit);
  }
  Result<std::vector<std::string>> ArchivedRecords(EventId id) override { return RecordsOf(files_, *manifest_, id); }
  // Alarms. Their readers do not wait for the index: what it has not yet is there at the next pass.
  Result<AlarmsNow> ReadAlarms() override {
    return readers_.Read([](Db& db) { return store::ReadAlarms(db); });
  }
  Result<bool> CommitAlarms(const AlarmPass& pass) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return store::CommitAlarms(c.db, pass); });
  }
  Result<std::optional<Alert>> DueAlert(const std::string& receiver, Time now) override {
    return readers_.Read([&](Db& db) { return store::DueAlert(db, receiver, now); });
  }
  Result<void> AlertAttempted(std::int64_t id, const std::string& answer, Time now,
                              std::optional<Time> retry_at) override {
    return index_->Run(Flush::normal,
                       [&](IndexContext& c) { return store::AlertAttempted(c.db, id, answer, now, retry_at); });
  }
  Result<std::int64_t> QueueTestAlert(const Alert& alert, const Actor& actor, Time now) override {
    return index_->Run(Flush::full, [&](IndexContext& c) { return store::QueueTestAlert(c.db, alert, actor, now); });
  }
  Result<Alert> GetAlert(std::int64_t id) override {
    return readers_.Read([&](Db& db) { return store::GetAlert(db, id); });
  }
  Result<std::vector<Alert>> Alerts(bool pending_only, std::int64_t before, int limit) override {
    return readers_.Read([&](Db& db) { return ListAlerts(db, pending_only, before, limit); });
  }
  Result<std::int64_t> PendingAlerts() override {
    return readers_.Read([](Db& db) { return store::PendingAlerts(db); });
  }
  Result<std::int64_t> KeepReceivers(const std::vector<std::string>& names) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return store::KeepReceivers(c.db, names); });
  }
  Result<std::vector<OverdueHold>> OverdueHolds(Time now) override {
    return readers_.Read([&](Db& db) { return store::OverdueHolds(db, now); });
  }
  Result<std::vector<LastReceipt>> LastReceipts() override {
    return Read([](Db& db) { return store::LastReceipts(db); });
  }
  Result<void> NoteProbe(Time at, const std::string& failed) override {
    return index_->Run(Flush::normal, [&](IndexContext& c) { return store::NoteProbe(c.db, at, failed); });
  }

  // Diagnosis
  Result<std::vector<LetterBrief>> NewestLetters(Time since, int limit) override {
    return Read([&](Db& db) { return store::NewestLetters(db, since, limit); });
  }
  Result<std::vector<TrafficBrief>> NewestTraffic(int limit) override {
    return readers_.Read([&](Db& db) { return store::NewestTraffic(db, limit); });
  }
  Result<std::vector<std::string>> VersionsBefore(EventId id, int events) override {
    return readers_.Read([&](Db& db) { return store::VersionsBefore(db, id, events); });
  }

  // FigureSource
  Result<Figures> Read() override {
    return ReadFiguresWith([](Db& db, const FigureFacts& facts) { return ReadFigures(db, facts); });
  }
  Result<Figures> Recount() override {
    return ReadFiguresWith([](Db& db, const FigureFacts& facts) { return RecountFigures(db, facts); });
  }
  Result<void> Ready() override;

 private:
  void WaitForIndex();
  void CountBehind(Letter& letter) const;
  /// A read that finds whatever was answered before it began.
  template <typename F>
  auto Read(F&& fn) -> std::invoke_result_t<F&, Db&> {
    WaitForIndex();
    return readers_.Read(std::forward<F>(fn));
  }
  template <typename F>
  auto Write(Flush flush, F&& fn) -> std::invoke_result_t<F&, IndexContext&> {
    WaitForIndex();
    return index_->Run(flush, std::forward<F>(fn));
  }
  Result<JournalRecord> ReadReceipt(EventId id);
  Result<Figures> ReadFiguresWith(Result<Figures> (*read)(Db&, const FigureFacts&));

  EmbeddedOptions options_;
  const bool threads_;
  Files& files_;
  Clock& clock_;
  HotCache hot_;
  Lag lag_;
  Counter* quarantine_dropped_ = nullptr;
  // Destroyed from the last to the first: the lock is released when nobody touches the files any more.
  std::unique_ptr<File> lock_;
  std::unique_ptr<ArchiveManifest> manifest_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Db> writer_;
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<IndexThread> index_;
  std::unique_ptr<AcceptThread> accept_;
  ReaderPool readers_;
  std::unique_ptr<Archiver> archiver_;
  std::once_flag closed_;
  std::unique_ptr<ReplayPlanner> planner_;
};

Result<void> EmbeddedStore::Open(CrashPoints& crash_points, Metrics& metrics) {
  const std::filesystem::path parent = std::filesystem::path(options_.database).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (Result<void> made = files_.MakeFolders(folder); !made) return made;
  Result<std::unique_ptr<File>> lock = files_.Lock(options_.database + ".lock");
  if (!lock) return std::unexpected(std::move(lock.error()));
  lock_ = std::move(*lock);

  if (options_.archive.empty()) options_.archive = ArchiveFolder(options_.database);
  Result<std::unique_ptr<ArchiveManifest>> manifest = ArchiveManifest::Open(files_, options_.archive);
  if (!manifest) return std::unexpected(std::move(manifest.error()));
  manifest_ = std::move(*manifest);
  Result<std::unique_ptr<Journal>> journal = Journal::Open(files_, clock_, crash_points,
                                                           {.folder = JournalFolder(options_.database),
                                                            .segment_bytes = options_.segment_bytes,
                                                            .work_ahead = threads_,
                                                            .archive = manifest_.get()});
  if (!journal) return std::unexpected(std::move(journal.error()));
  journal_ = std::move(*journal);

  Result<std::unique_ptr<Db>> writer = Db::Open(options_.database, Db::Mode::writer, options_.vfs);
  if (!writer) return std::unexpected(std::move(writer.error()));
  writer_ = std::move(*writer);
  if (Result<void> migrated = Migrate(*writer_, clock_.Now()); !migrated) return migrated;
  // The database's name: SQLite syncs what is in it.
  if (Result<void> synced = files_.SyncFolder(folder); !synced) return synced;

  intake_ = std::make_unique<Intake>(
      *journal_, hot_, Intake::Options{options_.same_event, options_.holds_lane, options_.keys_in_memory});
  index_ = std::make_unique<IndexThread>(IndexThreadDeps{*writer_, *intake_, clock_, crash_points, metrics, lag_});
  if (Result<void> loaded = index_->Load(); !loaded) return loaded;
  const Result<Mark> mark = CatchUp(*journal_, files_, *manifest_, *writer_, *index_, options_.key_digest);
  if (Result<void> dropped = DropUnsealed(*writer_); !dropped) return dropped;
  if (!mark) return std::unexpected(mark.error());
  Result<KeyFilter> known = LoadKeyFilter(*writer_);
  if (!known) return std::unexpected(known.error());
  if (Result<void> opened = readers_.Open(options_.database, options_.vfs, kReaders); !opened) return opened;

  quarantine_dropped_ = &metrics.counter("dlo_quarantine_dropped_total",
                                         "Rejected deliveries that were not kept because the store was busy");
  index_->Start(*mark, threads_);
  accept_ = std::make_unique<AcceptThread>(
      AcceptThread::Deps{*journal_, *index_, lag_, clock_, metrics, options_.key_digest, threads_}, std::move(*known));
  archiver_ =
      std::make_unique<Archiver>(Archiver::Deps{files_, clock_, crash_points, *journal_, *manifest_, *index_, readers_,
                                                [this](Time begun_before) { return accept_->Seal(begun_before); }});
  planner_ = std::make_unique<ReplayPlanner>(*index_, readers_, threads_);
  planner_->DropUnfinished();
  return {};
}

void EmbeddedStore::Close() {
  std::call_once(closed_, [this] {
    if (accept_) accept_->Stop();
    readers_.Close();
    if (index_) index_->Stop();
    writer_.reset();
    lock_.reset();
  });
}

Result<ExchangeResult> EmbeddedStore::Exchange(const ExchangeRequest& request) {
  Result<ExchangeResult> result =
      index_->Run(Flush::normal, [&](IndexContext& c) { return ExchangeWork(c, hot_, request); });
  if (!result) return result;
  Load(result->claimed);
  std::vector<LeaseRef> unreadable;
  for (const Claimed& claimed : result->claimed) {
    if (!claimed.receipt) unreadable.push_back({claimed.run.id, claimed.run.token});
  }
  if (unreadable.empty()) return result;
  // If that fails the leases run out, and the events are rescued.
  (void)HandBack(unreadable, request.now + kUnreadableWait);
  std::erase_if(result->claimed, [](const Claimed& claimed) { return claimed.receipt == nullptr; });
  return result;
}

void EmbeddedStore::CountBehind(Letter& letter) const {
  const bool parked = letter.state == State::dead || letter.state == State::held;
  const auto lane = parked ? LaneOf(letter.source, letter.subject) : std::nullopt;
  if (lane) letter.events_behind = index_->lanes().Behind(*lane, letter.id, kMaxBehindCounted);
}

void EmbeddedStore::WaitForIndex() {
  // While the disk refuses the index stands still; reading goes on with what it has.
  if (index_->Health()) index_->WaitForSeq(accept_->durable_seq(), kReadYourWrites);
}

Result<JournalRecord> EmbeddedStore::ReadReceipt(EventId id) {
  const Result<Place> place = Read([&](Db& db) -> Result<Place> {
    auto found = PlaceOf(db, id);
    if (found || found.error().kind != ErrorKind::not_found) return found;
    const auto pruned = FindPruned(db, id, nullptr, nullptr);
    if (pruned && *pruned) return (*pruned)->place;
    return found;
  });
  if (!place) return std::unexpected(place.error());
  Result<JournalRecord> record = journal_->ReadAt(*place);
  if (record && record->receipt->id != id) {
    return Fail(ErrorKind::corrupt, "corrupt", "the journal has another receipt at the place of this one");
  }
  return record;
}

Result<LetterDetail> EmbeddedStore::Show(EventId id) {
  const Result<JournalRecord> record = ReadReceipt(id);
  if (!record && record.error().kind == ErrorKind::not_found) return std::unexpected(record.error());
  if (!record) log::Warn("receipt_unreadable", {{"event", id}, {"reason", record.error().message}});
  // A letter whose bytes are gone must be seen all the same.
  const Receipt* receipt = record ? record->receipt.get() : nullptr;
  Result<LetterDetail> shown = Read([&](Db& db) { return ShowLetter(db, id, receipt); });
  if (!shown && shown.error().kind == ErrorKind::not_found) shown = ShowArchived(files_, *manifest_, id, receipt);
  if (!shown) return shown;
  if (!shown->pruned) CountBehind(shown->letter);
  if (const auto line = ArchivedWith(*manifest_, id)) shown->archived_in = manifest_->Path(ArchivedName(line->segment));
  return shown;
}

Result<std::string> EmbeddedStore::Payload(EventId id) {
  const Result<JournalRecord> record = ReadReceipt(id);
  if (!record) return std::unexpected(record.error());
  return record->receipt->body;
}

Result<std::vector<Result<Letter>>> EmbeddedStore::Triage(std::span<const TriageAct> acts, const Actor& actor,
                                                          Time now) {
  return Write(Flush::full, [&](IndexContext& c) -> Result<std::vector<Result<Letter>>> {
    std::vector<Result<Letter>> letters;
    letters.reserve(acts.size());
    for (const TriageAct& act : acts) {
      letters.push_back(ApplyTriage(c.db, c.counts, c.lanes, act, actor, now));
      if (letters.back()) CountBehind(*letters.back());
      if (!letters.back() && !IsRefusal(letters.back().error())) return std::unexpected(letters.back().error());
    }
    c.NotifyWork();
    return letters;
  });
}

Result<Decision> EmbeddedStore::PlanDecision(const Filter& filter, dlo::Act act) {
  const auto selection = Read([&](Db& db) { return SelectLetters(db, filter, act, 0); });
  if (!selection) return std::unexpected(selection.error());
  return selection->plan;
}

Result<Decision> EmbeddedStore::CreateDecision(const Filter& filter, const BulkAct& act, const DecisionOptions& options,
                                               const Actor& actor, Time now) {
  const std::int64_t most = options.force ? INT64_MAX : options.max;
  const auto selection = Read([&](Db& db) { return SelectLetters(db, filter, act.act, most); });
  if (!selection) return std::unexpected(selection.error());
  const std::span<const FrozenLetter> letters = selection->letters;
  if (selection->too_many) {
    return Fail(
        ErrorKind::too_large, "too_many",
        fmt::format("The filter selects {} letters and the cap is {}. Narrow the filter, raise max, or set force.",
                    selection->plan.count, options.max));
  }
  std::int64_t id = 0;
  std::size_t written = 0;
  const auto piece = [&](IndexContext& c) -> Result<void> {
    if (id == 0) {
      const auto begun = BeginDecision(c.db, filter, act, actor, now);
      if (!begun) return std::unexpected(begun.error());
      id = *begun;
    }
    const auto part = letters.subspan(written, std::min(kFreezePiece, letters.size() - written));
    return AddToDecision(c.db, id, part);
  };
  for (; letters.size() - written > kFreezePiece; written += kFreezePiece) {
    if (auto done = Write(Flush::normal, piece); !done) return std::unexpected(done.error());
  }
  return Write(Flush::full, [&](IndexContext& c) -> Result<Decision> {
    if (auto done = piece(c); !done) return std::unexpected(done.error());
    return SealDecision(c.db, id, *selection, options, actor, now);
  });
}

Result<RuleStep> EmbeddedStore::ApplyRules(int n, Time now) {
  const auto wait = Read([&](Db& db) { return RulesWait(db, now); });
  if (!wait) return std::unexpected(wait.error());
  if (!*wait) return RuleStep{};
  return Write(Flush::full, [&](IndexContext& c) { return store::ApplyRules(c, options_.holds_lane, n, now); });
}

Result<Revision> EmbeddedStore::Revise(const RevisionRequest& request, const Actor& actor, Time now) {
  const Result<std::string> original = Payload(request.id);
  if (!original && original.error().kind == ErrorKind::not_found) return std::unexpected(original.error());
  return Write(Flush::full, [&](IndexContext& c) {
    return InsertRevision(c.db, c.counts, request, original.has_value(), actor, now);
  });
}

Result<std::string> EmbeddedStore::RevisionPayload(EventId id, int number) {
  if (number == 0) return Payload(id);
  const auto revisions = ListRevisions(id);
  if (!revisions) return std::unexpected(revisions.error());
  for (const Revision& revision : *revisions) {
    if (revision.number == number && revision.original) return Payload(id);
  }
  return Read([&](Db& db) { return ReadRevisionBody(db, id, number); });
}

Result<EvidenceHead> EmbeddedStore::Head() {
  const Result<AuditHead> audit = Read([](Db& db) { return ReadAuditHead(db); });
  if (!audit) return std::unexpected(audit.error());
  const Result<SegmentLink> link = NewestLink(files_, journal_->folder());
  if (!link) return std::unexpected(link.error());
  EvidenceHead head{.seq = audit->seq, .hash = HexEncode(audit->hash), .at = clock_.Now()};
  if (link->segment == 0) return head;
  head.segment = link->segment;
  head.segment_bytes = link->bytes;
  head.segment_sha256 = HexEncode(link->sha256);
  return head;
}

Result<ReplayPlan> EmbeddedStore::Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                         const Actor& actor, Time now) {
  WaitForIndex();
  return planner_->Create(filter, options, kind, actor, now);
}

void EmbeddedStore::Keep(Rejected rejected) {
  const bool taken =
      index_->Post([kept = std::move(rejected)](IndexContext& c) { return KeepRejected(c.db, std::span(&kept, 1)); });
  if (!taken) quarantine_dropped_->Add();
}

Result<Figures> EmbeddedStore::ReadFiguresWith(Result<Figures> (*read)(Db&, const FigureFacts&)) {
  FigureFacts facts{.journal_seq = accept_->durable_seq(), .now = clock_.Now()};
  if (const Result<std::uint64_t> bytes = files_.FreeBytes(journal_->folder())) facts.free_bytes = *bytes;
  Result<Figures> figures = readers_.Read([&](Db& db) { return read(db, facts); });
  // The index may have gone on since; it never leads the journal.
  if (figures) figures->receipts = accept_->durable_seq();
  return figures;
}

Result<void> EmbeddedStore::Ready() {
  if (Result<void> healthy = accept_->Health(); !healthy) {
    const Result<std::uint64_t> bytes = files_.FreeBytes(journal_->folder());
    // Nothing is sent to a server that is not ready, so that space alone must end "disk_full".
    if (healthy.error().code != "disk_full" || !bytes || *bytes < kEnoughFree) return healthy;
  }
  return index_->Health();
}

}  // namespace

std::string JournalFolder(const std::string& database) {
  const std::filesystem::path parent = std::filesystem::path(database).parent_path();
  return (parent.empty() ? std::string(".") : parent.string()) + "/journal";
}

std::string ArchiveFolder(const std::string& database) {
  const std::filesystem::path parent = std::filesystem::path(database).parent_path();
  return (parent.empty() ? std::string(".") : parent.string()) + "/archive";
}

Result<std::unique_ptr<Store>> OpenEmbedded(EmbeddedOptions options, Files& files, Clock& clock,
                                            CrashPoints& crash_points, Metrics& metrics) {
  auto store = std::make_unique<EmbeddedStore>(std::move(options), true, files, clock);
  if (Result<void> opened = store->Open(crash_points, metrics); !opened) return std::unexpected(opened.error());
  return std::unique_ptr<Store>(std::move(store));
}

Result<std::unique_ptr<SteppedStore>> OpenStepped(EmbeddedOptions options, Files& files, Clock& clock,
                                                  CrashPoints& crash_points, Metrics& metrics) {
  auto store = std::make_unique<EmbeddedStore>(std::move(options), false, files, clock);
  if (Result<void> opened = store->Open(crash_points, metrics); !opened) return std::unexpected(opened.error());
  return std::unique_ptr<SteppedStore>(std::move(store));
}

}  // namespace dlo::store
