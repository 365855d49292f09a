#include "sim/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "sim/forward_queue.h"

namespace dlo::sim {
namespace {

constexpr const char* kDatabase = "data/dlo.db";
constexpr Time kStart{std::chrono::seconds(1'800'000'000)};
constexpr std::size_t kHistory = 60;
const Actor kPerson{"person", "operator"};

/// The queue as one worker sees it, and what the world checks of each claim.
class Worker : public ForwardQueue {
 public:
  Worker(store::Queue& queue, std::function<void(const store::Claimed&)> on_claim)
      : ForwardQueue(queue), on_claim_(std::move(on_claim)) {}
  void StartExchange(const store::ExchangeRequest& request, store::ExchangeDone done) override {
    queue().StartExchange(request, [this, done = std::move(done)](Result<store::ExchangeResult> result) mutable {
      if (result) std::ranges::for_each(result->claimed, on_claim_);
      done(std::move(result));
    });
  }
  void Load(std::vector<store::Claimed>& claimed) override { queue().Load(claimed); }

 private:
  std::function<void(const store::Claimed&)> on_claim_;
};

/// The first worker's start has taken the leases of the process before; the second one's must not take the first one's.
/// And where the first is answered at once, this one waits for the store's answer.
class SecondWorker final : public Worker {
 public:
  using Worker::Worker;
  Result<int> ExpireAllLeases(Time /*now*/) override { return 0; }
  void StartExchange(const store::ExchangeRequest& request, store::ExchangeDone done) override {
    done_ = std::move(done);
    Worker::StartExchange(request, [this](Result<store::ExchangeResult> result) { answer_ = std::move(result); });
  }
  void Answer() {
    if (done_) std::exchange(done_, {})(std::move(answer_));
  }

 private:
  Result<store::ExchangeResult> answer_;
  store::ExchangeDone done_;
};

Config TwoSources(std::uint64_t seed) {
  Config config;
  SourceConfig loose;
  loose.name = "loose";
  loose.target = "billing";
  SourceConfig strict = loose;
  strict.name = "strict";
  strict.on_park = OnPark::hold;
  config.sources = {loose, strict};
  TargetConfig target;
  target.name = "billing";
  target.url = "http://billing.example/hooks";
  if (seed % 3 == 0) target.retry_budget_min = 0.05;  // so few retries that many are put off
  config.targets = {target};
  return config;
}

}  // namespace

World::World(Options options)
    : options_(std::move(options)),
      random_(options_.seed),
      clock_(kStart),
      wrapped_files_(options_.wrap_files ? options_.wrap_files(disk_) : nullptr),
      files_(wrapped_files_ ? *wrapped_files_ : disk_),
      vfs_(files_, clock_, random_),
      billing_(clock_, random_),
      config_(TwoSources(options_.seed)) {
  sqlite3_test_control(SQLITE_TESTCTRL_PRNG_SEED, static_cast<int>(options_.seed | 1), nullptr);
  billing_.on_start = [this](const Call& call) { CheckStart(call); };
  billing_.on_answer = [this](const Call& call) { CheckAnswer(call); };
}

World::~World() {
  ++epoch_;
  Close();
}

void World::Close() {
  workers_.clear();
  billing_.CallerDied();
  queues_.clear();
  wrapped_queue_.reset();
  eyes_.reset();
  store_.reset();
}

Report World::Run() {
  try {
    Open();
    for (int i = 0; i < options_.steps; ++i) Step();
    Settle();
    ReplayAll();
    CheckEnd();
  } catch (const Broken& broken) {
    report_.failure = broken.what;
  }
  report_.events = static_cast<int>(contents_.size());
  report_.effects = static_cast<int>(billing_.applied.size());
  return report_;
}

// ---- What happens ---------------------------------------------------------------------------------------------------

void World::Open() {
  metrics_ = std::make_unique<Metrics>();
  store::EmbeddedOptions options;
  options.database = kDatabase;
  options.segment_bytes = 48 << 10;
  options.hot_bytes = 4'000;    // some bodies come from the disk
  options.keys_in_memory = 16;  // so that they move, and crash while they move
  options.vfs = vfs_.name();
  options.holds_lane = [](const std::string& source) { return source == "strict"; };
  for (int tries = 0;; ++tries) {
    auto opened = store::OpenStepped(options, files_, clock_, crash_points_, *metrics_);
    if (opened) {
      store_ = std::move(*opened);
      break;
    }
    Note("open refused: " + opened.error().message);
    Require(opened.error().kind == ErrorKind::unavailable && tries < 3, "the store opens: " + opened.error().message);
    disk_.ProcessDied();
    vfs_.ProcessDied();
    disk_.SetCapacity(UINT64_MAX);
  }
  eyes_ = OrThrow(store::Db::Open(kDatabase, store::Db::Mode::reader, vfs_.name()));
  if (options_.wrap_queue) wrapped_queue_ = options_.wrap_queue(*store_, vfs_.name());
  store::Queue& queue = wrapped_queue_ ? *wrapped_queue_ : static_cast<store::Queue&>(*store_);
  const auto on_claim = [this](const store::Claimed& claimed) { CheckClaim(claimed); };
  auto second = std::make_unique<SecondWorker>(queue, on_claim);
  answer_second_ = [waiting = second.get()] { waiting->Answer(); };
  queues_.push_back(std::make_unique<Worker>(queue, on_claim));
  queues_.push_back(std::move(second));
  for (const std::unique_ptr<store::Queue>& of : queues_) {
    workers_.push_back(std::make_unique<dispatch::Dispatcher>(
        config_, dispatch::DispatcherDeps{*of, *store_, billing_, clock_, random_, crash_points_, *metrics_}));
  }
  Dispatch(0);
  Audit();
}

void World::Die(bool power_cut) {
  Note(power_cut ? "power cut" : "process killed");
  ++report_.deaths;
  ++epoch_;
  if (power_cut) {
    disk_.PowerCut(random_);
    final_.clear();  // what was not flushed may have happened for nothing
  } else {
    disk_.ProcessDied();
  }
  Close();
  vfs_.ProcessDied();
  if (power_cut) Advance(std::chrono::seconds(Roll(120)));
  Open();
}

void World::Step() {
  const std::uint64_t what = Roll(1'000);
  if (what < 250) {
    Send();
  } else if (what < 400) {
    store_->StepJournal();
  } else if (what < 500) {
    store_->StepIndex();
  } else if (what < 700) {
    Dispatch();
  } else if (what < 880) {
    Advance(Duration(static_cast<Duration::rep>(Roll(400'000))));
  } else if (what < 930) {
    AdvanceToNextDue();
  } else if (what < 960) {
    Triage();
  } else if (what < 975) {
    Replay();
  } else if (what < 982) {
    Pause();
  } else if (what < 985) {
    Audit();
  } else {
    Trouble();
  }
}

void World::Send() {
  Receipt receipt;
  const bool again = !sent_.empty() && Roll(100) < 15;
  if (again) {
    receipt = *sent_[Roll(sent_.size())].receipt;
    receipt.id = 0;
    if (Roll(10) == 0) receipt.body += " ";  // another content under the same key
  } else {
    receipt.source = Roll(2) == 0 ? "loose" : "strict";
    receipt.key = fmt::format("evt_{}", sent_.size());
    receipt.kind = "invoice.paid";
    if (const std::uint64_t subject = Roll(9); subject > 0) receipt.subject = fmt::format("sub_{}", subject);
    receipt.body = std::string(Roll(Roll(20) == 0 ? 9'000 : 300), static_cast<char>('a' + Roll(26)));
    receipt.body += receipt.key;
    const std::uint64_t disposition = Roll(60);
    if (disposition == 0) receipt.disposition = Disposition::invalid;
    if (disposition == 1) receipt.disposition = Disposition::test_event;
    receipt.headers = {{"Content-Type", "application/json"}, {"X-Signature", receipt.key}};
  }
  receipt.received_at = clock_.Now();
  contents_.insert(Content(receipt));
  const std::size_t index = sent_.size();
  sent_.push_back({std::make_shared<const Receipt>(receipt), {}});
  Note(fmt::format("sent {} {}:{} ({} bytes)", index, receipt.source, receipt.key, receipt.body.size()));
  store_->Accept({std::make_shared<Receipt>(std::move(receipt))},
                 [this, index, epoch = epoch_](const Result<std::vector<Accepted>>& answer) {
                   if (epoch != epoch_) return;
                   if (answer) sent_[index].answer = answer->front();
                   Note(answer ? fmt::format("answered {}: {} as event {}", index,
                                             static_cast<int>(answer->front().status), answer->front().id)
                               : fmt::format("refused {}: {}", index, answer.error().code));
                 });
}

void World::Dispatch() {
  Dispatch(Roll(2));
}

void World::Dispatch(std::size_t worker) {
  if (workers_.empty()) return;  // the machine is off
  if (worker == 1 && Roll(3) != 0) answer_second_();
  const auto next = workers_[worker]->RunOnce(clock_.Now());
  if (!next) Note("dispatch: " + next.error().message);
}

void World::Advance(Duration by) {
  const Time until = clock_.Now() + by;
  while (billing_.NextDue() && *billing_.NextDue() <= until) {
    if (*billing_.NextDue() > clock_.Now()) clock_.Advance(*billing_.NextDue() - clock_.Now());
    billing_.Run();
    if (Roll(4) != 0) Dispatch();
  }
  clock_.Advance(until - clock_.Now());
}

void World::AdvanceToNextDue() {
  const std::int64_t due = Number("SELECT min(due_at) FROM events WHERE state = 0 AND behind = 0 AND ?1 = ?1");
  const Time at{Duration(due)};
  Advance(due != 0 && at > clock_.Now() ? at - clock_.Now() : std::chrono::seconds(10));
  Dispatch();
}

/// One worker stands still and its answers with it: it loses its leases to the other one, which runs those events
/// again; then it wakes and brings what it was answered.
void World::Pause() {
  const std::size_t asleep = Roll(2), awake = 1 - asleep;
  Note(fmt::format("worker {} stands still", asleep));
  for (int i = 0; i < 3; ++i) Dispatch(asleep);
  clock_.Advance(std::chrono::seconds(61 + Roll(240)));
  for (int i = 0; i < 3; ++i) Dispatch(awake);
  if (Roll(2) == 0) {
    clock_.Advance(std::chrono::seconds(3 + Roll(20)));
    for (int i = 0; i < 3; ++i) Dispatch(awake);
  }
  billing_.Run();
  Dispatch(asleep);
}

void World::Triage() {
  const auto rows = Rows();
  std::vector<store::TriageAct> acts;
  for (const auto& [id, row] : rows) {
    if (Roll(4) != 0) continue;
    store::TriageAct act;
    act.id = id;
    act.act = std::array{Act::replay, Act::replay, Act::hold, Act::release, Act::resolve, Act::reopen}[Roll(6)];
    act.keep_lane =
        Number("SELECT n.name = 'strict' FROM events e JOIN names n ON n.id = e.source WHERE e.id = ?1", id);
    act.hold = {.link = "https://tickets.example/7", .owner = "person"};
    act.resolve_code = ResolveCode::handled_manually;
    // Another content under a known key has no effect of its own that could be told from the first one's.
    if (act.act == Act::replay && Number("SELECT class IN (5, 6) FROM events WHERE id = ?1", id) != 0) continue;
    acts.push_back(act);
    if (acts.size() == 5) break;
  }
  if (acts.empty()) return;
  const auto done = store_->Triage(acts, kPerson, clock_.Now());
  if (!done) return Note("triage: " + done.error().message);
  for (std::size_t i = 0; i < acts.size(); ++i) {
    if (!(*done)[i]) continue;
    ++report_.acts;
    final_.erase(acts[i].id);
    Note(fmt::format("event {}: {}", acts[i].id, Name(acts[i].act)));
  }
  audit_floor_ = Number("SELECT max(seq) FROM audit WHERE ?1 = ?1");
}

void World::Replay() {
  if (replays_.empty() || Roll(3) == 0) {
    Filter filter;
    filter.classes = {FailureClass::exhausted, FailureClass::permanent, FailureClass::crashed};
    ReplayOptions options;
    options.batch_size = static_cast<int>(1 + Roll(5));
    if (Roll(2) == 0) options.canary = 1;
    const auto created = store_->Create(filter, options, "replay", kPerson, clock_.Now());
    if (!created) return Note("replay: " + created.error().message);
    audit_floor_ = Number("SELECT max(seq) FROM audit WHERE ?1 = ?1");
    replays_.push_back(created->id);
    Note(fmt::format("replay {} of {}", created->id, created->count));
    return;
  }
  const std::int64_t replay = replays_[Roll(2) == 0 ? replays_.size() - 1 : Roll(replays_.size())];
  if (const std::uint64_t what = Roll(12); what < 6) return Steer(replay, what);
  const auto left = store_->ReleaseBatch(replay, static_cast<int>(1 + Roll(5)), clock_.Now());
  if (!left) return Note("release: " + left.error().message);
  Note(fmt::format("replay {}: {} left", replay, *left));
}

/// Two persons and the pacer at once: whatever comes when, the state decides.
void World::Steer(std::int64_t replay, std::uint64_t what) {
  static constexpr std::array kActs = {store::ReplayAct::pause,  store::ReplayAct::resume,    store::ReplayAct::resume,
                                       store::ReplayAct::cancel, store::ReplayAct::continue_, store::ReplayAct::stop};
  const auto done = store_->Act(replay, kActs.at(what), kPerson, clock_.Now());
  if (!done) return Note("steer: " + done.error().message);
  ++report_.acts;
  audit_floor_ = Number("SELECT max(seq) FROM audit WHERE ?1 = ?1");
  Note(fmt::format("replay {} is {}", replay, done->state));
}

void World::Trouble() {
  switch (Roll(6)) {
    case 0:
      return Die(false);
    case 1:
      return Die(true);
    case 2: {  // the process ends in the middle of what it does next
      const auto after = static_cast<std::int64_t>(1 + Roll(40));
      disk_.DieAtChange(after);
      Note(fmt::format("dies at change {}", after));
      for (int i = 0; i < 12; ++i) {
        const std::uint64_t what = Roll(5);
        if (what == 4) Replay();  // and in the middle of a plan
        if (what == 0) Send();
        if (what == 1) store_->StepJournal();
        if (what == 2) store_->StepIndex();
        if (what == 3) Dispatch();
      }
      return Die(Roll(2) == 0);
    }
    case 3: {
      Note("a sync fails");
      disk_.FailSyncs(1);
      Send();
      store_->StepJournal();
      disk_.FailSyncs(0);
      // The server ends itself then, and is started again.
      if (const auto ready = store_->Ready(); !ready) return Die(Roll(2) == 0);
      return;
    }
    case 4: {
      const auto free = disk_.FreeBytes("data");
      const std::uint64_t room = Roll(20'000);
      disk_.SetCapacity(UINT64_MAX - *free + room);
      Note(fmt::format("{} bytes are left", room));
      for (int i = 0; i < 30; ++i) {
        if (Roll(2) == 0) Send();
        if (Roll(3) == 0) store_->StepJournal();
        if (Roll(3) == 0) store_->StepIndex();
        if (Roll(2) == 0) Dispatch();
        if (Roll(10) == 0) Replay();
      }
      disk_.SetCapacity(UINT64_MAX);
      Note("there is room again");
      return;
    }
    default:
      billing_.Run();
      return Pause();
  }
}

/// Trouble is over: everything must come to an end by itself.
void World::Settle() {
  Note("calm");
  billing_.Heal();
  for (int i = 0; i < 20'000; ++i) {
    store_->StepJournal();
    store_->StepIndex();
    Dispatch();
    // What holds its subject is for a person; those behind it wait for that.
    if (Number("SELECT count(*) FROM events WHERE state = 1 OR (state = 0 AND NOT (behind = 1 AND EXISTS "
               "(SELECT 1 FROM events h WHERE h.lane = events.lane AND h.state IN (3, 4)))) AND ?1 = ?1") == 0 &&
        billing_.open.empty()) {
      return Audit();
    }
    AdvanceToNextDue();
  }
  Require(false, fmt::format("everything ends once trouble is over; {} events have not",
                             Number("SELECT count(*) FROM events WHERE state IN (0, 1) AND ?1 = ?1")));
}

/// A person works the letters off.
void World::ReplayAll() {
  // What a cut-off plan has taken is free again with the next one.
  Filter nothing;
  nothing.fingerprint = "0000000000000001";
  Require(store_->Create(nothing, {}, "replay", kPerson, clock_.Now()).has_value(), "a replay can be made");
  for (int round = 0; round < 20; ++round) {
    // Asked for from the store: one may have come into being though its answer was an error.
    const auto replays = store_->Recent(500);
    Require(replays.has_value(), "replays can be listed");
    for (const ReplayProgress& replay : *replays) {
      (void)store_->Act(replay.id, store::ReplayAct::resume, kPerson, clock_.Now());
      (void)store_->Act(replay.id, store::ReplayAct::continue_, kPerson, clock_.Now());
    }
    std::vector<store::TriageAct> acts;
    for (const auto& [id, row] : Rows()) {
      store::TriageAct act;
      act.id = id;
      if (Number("SELECT state IN (3, 4) AND class NOT IN (5, 6, 7) FROM events WHERE id = ?1", id) != 0) {
        act.act = Act::replay;
      } else if (Number("SELECT state IN (3, 4) FROM events WHERE id = ?1", id) != 0) {
        act.act = Act::resolve;
        act.resolve_code = ResolveCode::duplicate;
      } else {
        continue;
      }
      acts.push_back(act);
    }
    if (acts.empty()) return;
    const auto done = store_->Triage(acts, kPerson, clock_.Now());
    Require(done.has_value(), "letters can be worked off");
    for (const auto& one : *done) {
      // A stored replay that was under way has it: it is released below.
      Require(one.has_value() || one.error().kind == ErrorKind::conflict, "a letter can be worked off");
    }
    for (const ReplayProgress& replay : *replays) {
      if (const auto left = store_->ReleaseBatch(replay.id, 1'000, clock_.Now()); !left) Note(left.error().message);
    }
    Settle();
  }
  Require(false, "letters come to an end when they are replayed at an application that works");
}

void World::Note(std::string what) {
  std::string line = fmt::format("{:>12.3f} s  {}", std::chrono::duration<double>(clock_.Now() - kStart).count(), what);
  report_.digest = report_.digest * 1'099'511'628'211ULL ^ static_cast<std::uint64_t>(Digest64(line));
  report_.history.push_back(std::move(line));
  if (report_.history.size() > kHistory) report_.history.pop_front();
}

std::tuple<std::string, std::string, std::string> World::Content(const Receipt& receipt) {
  return {receipt.source, receipt.key, receipt.body};
}

}  // namespace dlo::sim
