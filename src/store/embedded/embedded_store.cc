#include "store/embedded/embedded_store.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "base/log.h"
#include "store/embedded/accept_thread.h"
#include "store/embedded/access.h"
#include "store/embedded/claimed_bodies.h"
#include "store/embedded/figures.h"
#include "store/embedded/hot_cache.h"
#include "store/embedded/index_intake.h"
#include "store/embedded/index_queue.h"
#include "store/embedded/index_recover.h"
#include "store/embedded/index_thread.h"
#include "store/embedded/journal.h"
#include "store/embedded/lane_release.h"
#include "store/embedded/quarantine.h"
#include "store/embedded/reader_pool.h"
#include "store/embedded/reads.h"
#include "store/embedded/replay_acts.h"
#include "store/embedded/replay_items.h"
#include "store/embedded/replay_plan.h"
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
  Result<std::vector<AuditRecord>> Audit(EventId event_id, std::int64_t before, int limit) override {
    return Read([&](Db& db) { return ReadAudit(db, event_id, before, limit); });
  }

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
  Result<ReplayPlan> MakePlan(PlanInMaking& plan, const Filter& filter, const ReplayOptions& options,
                              const std::string& kind, const Actor& actor, Time now);
  Result<void> FreezePlan(PlanInMaking& plan, const Filter& filter, std::int64_t at_most, std::atomic<EventId>& frozen);
  Result<Frozen> FreezeAndSumUp(PlanInMaking& plan, const Filter& filter, std::int64_t at_most, int canary);
  Result<void> DropPlan(std::int64_t replay_id);
  void DropUnfinishedPlans();

  EmbeddedOptions options_;
  const bool threads_;
  Files& files_;
  Clock& clock_;
  HotCache hot_;
  Lag lag_;
  Counter* quarantine_dropped_ = nullptr;
  // Destroyed from the last to the first: the lock is released when nobody touches the files any more.
  std::unique_ptr<File> lock_;
  std::unique_ptr<Journal> journal_;
  std::unique_ptr<Db> writer_;
  std::unique_ptr<Intake> intake_;
  std::unique_ptr<IndexThread> index_;
  std::unique_ptr<AcceptThread> accept_;
  ReaderPool readers_;
  std::once_flag closed_;
  std::mutex planning_mutex_;
  std::set<std::int64_t> planning_;  // plans that a call makes just now
};

Result<void> EmbeddedStore::Open(CrashPoints& crash_points, Metrics& metrics) {
  const std::filesystem::path parent = std::filesystem::path(options_.database).parent_path();
  const std::string folder = parent.empty() ? "." : parent.string();
  if (Result<void> made = files_.MakeFolders(folder); !made) return made;
  Result<std::unique_ptr<File>> lock = files_.Lock(options_.database + ".lock");
  if (!lock) return std::unexpected(std::move(lock.error()));
  lock_ = std::move(*lock);

  Result<std::unique_ptr<Journal>> journal = Journal::Open(
      files_, clock_, crash_points,
      {.folder = JournalFolder(options_.database), .segment_bytes = options_.segment_bytes, .work_ahead = threads_});
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
  const Result<Mark> mark = CatchUp(*journal_, *writer_, *index_, options_.key_digest);
  if (!mark) return std::unexpected(mark.error());
  Result<KeyFilter> known = LoadKeyFilter(*writer_);
  if (!known) return std::unexpected(known.error());
  if (Result<void> opened = readers_.Open(options_.database, options_.vfs, kReaders); !opened) return opened;

  quarantine_dropped_ = &metrics.counter("dlo_quarantine_dropped_total",
                                         "Rejected deliveries that were not kept because the store was busy");
  index_->Start(*mark, threads_);
  accept_ = std::make_unique<AcceptThread>(
      AcceptThread::Deps{*journal_, *index_, lag_, clock_, metrics, options_.key_digest, threads_}, std::move(*known));
  DropUnfinishedPlans();
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
  const Result<Place> place = Read([&](Db& db) { return PlaceOf(db, id); });
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
  if (shown) CountBehind(shown->letter);
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

/// Each step is a transaction of its own, small enough that receipts and claims between two of them hardly wait.
/// `frozen` tells how far it is.
Result<void> EmbeddedStore::FreezePlan(PlanInMaking& plan, const Filter& filter, std::int64_t at_most,
                                       std::atomic<EventId>& frozen) {
  Result<void> done;
  while (done && !plan.complete && (at_most < 0 || plan.frozen < at_most)) {
    const std::int64_t left = at_most < 0 ? -1 : at_most - plan.frozen;
    done =
        index_->Run(Flush::normal, [&](IndexContext& c) { return FreezeStep(c.db, filter, plan, kFreezeStep, left); });
    if (!done) break;
    frozen.store(plan.looked_at);
    frozen.notify_one();
  }
  frozen.store(INT64_MAX);
  frozen.notify_one();
  return done;
}

/// The index thread freezes, and this one sums up what was frozen before.
Result<Frozen> EmbeddedStore::FreezeAndSumUp(PlanInMaking& plan, const Filter& filter, std::int64_t at_most,
                                             int canary) {
  std::atomic<EventId> frozen{0};
  Result<void> done;
  std::thread freezer;
  if (threads_) {
    freezer = std::thread([&] { done = FreezePlan(plan, filter, at_most, frozen); });
  } else {
    done = FreezePlan(plan, filter, at_most, frozen);
  }
  PlanSum sum(plan.id, canary);
  Result<void> summed;
  for (EventId through = 0; through != INT64_MAX && summed;) {
    frozen.wait(through);
    through = frozen.load();
    summed = readers_.Read([&](Db& db) { return sum.Advance(db, through); });
  }
  if (freezer.joinable()) freezer.join();
  if (!done) return std::unexpected(done.error());
  if (!summed) return std::unexpected(summed.error());
  return readers_.Read([&](Db& db) -> Result<Frozen> {
    auto all = sum.Finish(db);
    if (!all) return all;
    const auto others = CountInOthers(db, filter, plan.id);
    if (!others) return std::unexpected(others.error());
    all->plan.in_other_replay = *others;
    return all;
  });
}

Result<ReplayPlan> EmbeddedStore::Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                                         const Actor& actor, Time now) {
  Filter selected = filter;
  if (kind == "drain") selected.classes = {FailureClass::exhausted};  // whatever else was asked for
  std::ranges::sort(selected.ids);
  selected.ids.erase(std::ranges::unique(selected.ids).begin(), selected.ids.end());
  DropUnfinishedPlans();
  auto plan = Write(Flush::normal, [&](IndexContext& c) {
    auto begun = BeginPlan(c.db, selected, options, kind, actor, now);
    const std::lock_guard lock(planning_mutex_);
    if (begun) planning_.insert(begun->id);
    return begun;
  });
  if (!plan) return std::unexpected(plan.error());
  auto made = MakePlan(*plan, selected, options, kind, actor, now);
  if (!made) (void)DropPlan(plan->id);  // else it is dropped before the next plan, or at the next start
  const std::lock_guard lock(planning_mutex_);
  planning_.erase(plan->id);
  return made;
}

Result<ReplayPlan> EmbeddedStore::MakePlan(PlanInMaking& plan, const Filter& filter, const ReplayOptions& options,
                                           const std::string& kind, const Actor& actor, Time now) {
  // A max of all there is must not wrap around when one is added.
  const std::int64_t at_most = options.force ? -1 : std::min(options.max, INT64_MAX - 1) + 1;
  auto frozen = FreezeAndSumUp(plan, filter, at_most, options.canary);
  if (!frozen) return std::unexpected(frozen.error());
  if (!options.force && plan.frozen > options.max) {
    if (auto dropped = DropPlan(plan.id); !dropped) return std::unexpected(dropped.error());  // they would not count
    const auto all = readers_.Read([&](Db& db) { return PlanReplay(db, filter); });
    return std::unexpected(all ? TooLarge(all->count, options.max) : all.error());
  }
  auto started = index_->Run(
      Flush::full, [&](IndexContext& c) { return StartPlan(c.db, *frozen, filter, options, kind, actor, now); });
  if (!started) return std::unexpected(started.error());
  ReplayPlan made = std::move(frozen->plan);
  made.over_cap = made.count > options.max;
  if (const auto pace = PaceOf(options)) made.estimated_seconds = EstimateSeconds(made.count, *pace);
  return made;
}

Result<void> EmbeddedStore::DropPlan(std::int64_t replay_id) {
  for (;;) {
    const auto gone =
        index_->Run(Flush::normal, [&](IndexContext& c) { return DropPlanStep(c.db, replay_id, kFreezeStep); });
    if (!gone) return std::unexpected(gone.error());
    if (*gone) return {};
  }
}

/// At the start, and before each new plan in case that dropping one failed. Nobody was told of them: whoever asked had
/// no answer.
void EmbeddedStore::DropUnfinishedPlans() {
  auto plans = readers_.Read([](Db& db) { return UnfinishedPlans(db); });
  if (!plans) return;
  {
    const std::lock_guard lock(planning_mutex_);
    std::erase_if(*plans, [this](std::int64_t id) { return planning_.contains(id); });
  }
  for (const std::int64_t id : *plans) {
    const auto dropped = DropPlan(id);
    log::Info("replay_plan_dropped", {{"replay", id},
                                      {"why", "its making was cut off before it was complete"},
                                      {"result", dropped ? "dropped" : dropped.error().message}});
  }
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
