#include "store/embedded/index_thread.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"

namespace dlo::store {
namespace {

/// The most receipts in one transaction.
constexpr std::size_t kReceiptsPerTransaction = 8'192;
constexpr std::size_t kLoad = 32;
/// About 190 MiB of WAL: each write-back stalls the journal's sync on the same disk.
constexpr int kCheckpointPages = 48'000;
/// With nothing queued for so long, it does what can wait.
constexpr auto kIdleAfter = std::chrono::milliseconds(10);
/// And after so long it writes back what is worth it, so that load finds the WAL short.
constexpr auto kQuietAfter = std::chrono::milliseconds(100);
constexpr int kIdleCheckpointPages = 4'000;
/// A disk that refused is asked again after this.
constexpr auto kRetryWait = std::chrono::milliseconds(200);
/// Writes nobody waits for (quarantine): more than this queued is a flood.
constexpr int kMaxPosted = 64;

Error Stopping() {
  return {ErrorKind::unavailable, "stopping", "the store is stopping: try again when it is up"};
}

}  // namespace

/// Under load receipts gather, since each transaction writes the same pages again: fewer and larger ones write less.
/// Nobody waits for them: a reader, an act and a lone receipt end the gathering at once; a dispatcher with free hands
/// and a sender whose answer the index decides have it short. Measured with bench/receipts beside the bare sink: 20 ms
/// and 512 receipts 0.46 of it, 500 ms and 4,096 0.63.
struct IndexThread::Gather {
  std::chrono::milliseconds at_most;
  std::size_t receipts;
};
constexpr IndexThread::Gather IndexThread::kGather{std::chrono::milliseconds(500), 4'096};
constexpr IndexThread::Gather IndexThread::kGatherWanted{std::chrono::milliseconds(2), 256};

struct IndexThread::PostedTask final : Task {
  PostedTask(IndexThread& thread, std::move_only_function<Result<void>(IndexContext&)> function)
      : Task(Flush::normal), index(thread), fn(std::move(function)) {}
  Result<void> Do(IndexContext& context) override { return fn(context); }
  void End() override {
    const std::lock_guard lock(index.mutex_);
    --index.posted_;
  }
  IndexThread& index;
  std::move_only_function<Result<void>(IndexContext&)> fn;
};

struct IndexThread::IdleTask final : Task {
  explicit IdleTask(IndexThread& thread) : Task(Flush::normal), index(thread) {}
  Result<void> Do(IndexContext& context) override {
    Result<void> done = index.deps_.intake.WorkWhileIdle(context.db);
    if (!done) index.deps_.intake.Forget();
    return done;
  }
  void End() override {
    if (outcome) return;
    index.idle_failed_ = true;
    log::Error("index_idle_work_failed", {{"error", outcome.error().message},
                                          {"then", "it is left until receipts have to do it, and told then"},
                                          {"do", "see dlo verify; restart once the cause is mended"}});
  }
  IndexThread& index;
};

IndexThread::IndexThread(IndexThreadDeps deps)
    : deps_(deps),
      commit_seconds_(
          deps.metrics.histogram("dlo_store_commit_seconds", "Duration of the store's commits", {{"part", "index"}})) {
  sqlite3_wal_hook(
      deps_.db.handle(),
      [](void* self, sqlite3*, const char*, int pages) {
        static_cast<IndexThread*>(self)->wal_pages_ = pages;
        return SQLITE_OK;
      },
      this);
}

IndexThread::~IndexThread() {
  Stop();
}

Result<void> IndexThread::TakeInNow(ReceiptGroup group) {
  taken_.push_back(std::move(group));
  Result<void> done = Transaction(Flush::normal, true, {});
  taken_.clear();
  return done;
}

void IndexThread::Start(const Mark& mark, bool own_thread) {
  indexed_seq_.store(mark.seq, std::memory_order_release);
  stepped_ = !own_thread;
  if (own_thread) thread_ = std::thread([this] { Loop(); });
}

bool IndexThread::Step() {
  std::unique_lock lock(mutex_);
  if (taken_.empty() && groups_.empty() && tasks_.empty() && !QueueIdleTask()) return false;
  const Work work = TakeWhatIsThere();
  lock.unlock();
  Round(work);
  return true;
}

void IndexThread::Push(ReceiptGroup group) {
  const std::lock_guard lock(mutex_);
  queued_ += group.receipts.size();
  if (!group.questions.empty()) ++asked_;
  const bool asks = !group.questions.empty();
  groups_.push_back(std::move(group));
  if (!gathering_ || asks || NobodyMayWait()) wake_.notify_one();
}

Result<void> IndexThread::RunTask(Task& task) {
  std::unique_lock lock(mutex_);
  if (stopping_) return std::unexpected(Stopping());
  tasks_.push_back(&task);
  if (stepped_) {
    lock.unlock();
    Step();
    return std::move(task.outcome);
  }
  wake_.notify_one();
  task.ready.wait(lock, [&task] { return task.finished; });
  return std::move(task.outcome);
}

void IndexThread::StartTask(std::unique_ptr<Task> task) {
  {
    const std::lock_guard lock(mutex_);
    if (!stopping_) {
      task->owned = true;
      tasks_.push_back(task.release());  // Finish takes it back
      wake_.notify_one();
    }
  }
  if (task) {
    task->outcome = std::unexpected(Stopping());
    task->End();
  } else if (stepped_) {
    Step();
  }
}

bool IndexThread::QueueIdleTask() {
  if (failing_ || idle_failed_ || stopping_ || !deps_.intake.HasIdleWork()) return false;
  auto task = std::make_unique<IdleTask>(*this);
  task->owned = true;
  tasks_.push_back(task.release());  // likewise
  return true;
}

bool IndexThread::Post(std::move_only_function<Result<void>(IndexContext&)> fn) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || posted_ >= kMaxPosted) return false;
  ++posted_;
  auto task = std::make_unique<PostedTask>(*this, std::move(fn));
  task->owned = true;
  tasks_.push_back(task.release());  // likewise
  wake_.notify_one();
  return true;
}

void IndexThread::OnWork(std::function<void()> ring) {
  const std::lock_guard lock(mutex_);
  ring_ = std::make_shared<std::function<void()>>(std::move(ring));
}

void IndexThread::WaitForSeq(std::int64_t seq, Duration at_most) {
  if (indexed_seq() >= seq) return;
  if (stepped_) return static_cast<void>(Step());
  std::unique_lock lock(mutex_);
  ++readers_;
  wake_.notify_one();
  indexed_.wait_for(lock, at_most, [&] { return indexed_seq() >= seq || stopping_; });
  --readers_;
}

Result<void> IndexThread::Health() const {
  const std::lock_guard lock(mutex_);
  if (error_) return std::unexpected(*error_);
  return {};
}

void IndexThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
    indexed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  if (!std::exchange(stepped_, false)) return;
  for (bool more = true; more;) {
    std::unique_lock lock(mutex_);
    const Work work = TakeWhatIsThere();
    lock.unlock();
    more = Round(work);
  }
}

void IndexThread::Loop() {
  NameThread("dlo-index");
  while (Round(Take())) {
  }
}

bool IndexThread::Round(const Work& work) {
  if (!taken_.empty() || !work.normal.empty()) {
    const bool receipts = !taken_.empty();
    const Result<void> committed = Transaction(Flush::normal, receipts, work.normal);
    Finish(work.normal, committed);
    if (receipts && committed) Answer();
    if (receipts && !committed && work.stop) Refuse(committed.error());
  }
  if (!work.full.empty()) Finish(work.full, Transaction(Flush::full, false, work.full));
  Checkpoint();
  if (!work.stop) return true;
  {
    const std::lock_guard lock(mutex_);
    if (!taken_.empty() || !groups_.empty() || !tasks_.empty()) return true;
  }
  // The next start finds one file.
  sqlite3_wal_checkpoint_v2(deps_.db.handle(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
  return false;
}

const IndexThread::Gather& IndexThread::GatherNow() const {
  return wanted_ || asked_ > 0 ? kGatherWanted : kGather;
}

bool IndexThread::NobodyMayWait() const {
  return stopping_ || !tasks_.empty() || readers_ > 0 || queued_ >= GatherNow().receipts;
}

void IndexThread::Dequeue() {
  queued_ -= groups_.front().receipts.size();
  if (!groups_.front().questions.empty()) --asked_;
  taken_.push_back(std::move(groups_.front()));
  groups_.pop_front();
}

IndexThread::Work IndexThread::Take() {
  std::unique_lock lock(mutex_);
  if (!taken_.empty()) {
    wake_.wait_for(lock, kRetryWait, [this] { return stopping_ || !tasks_.empty(); });
  } else {
    const auto queued = [this] { return stopping_ || !tasks_.empty() || !groups_.empty(); };
    idle_ = false;
    if (deps_.intake.HasIdleWork()) {
      if (!wake_.wait_for(lock, kIdleAfter, queued)) QueueIdleTask();
    } else if (wal_pages_ - checkpointed_pages_ >= kIdleCheckpointPages) {
      idle_ = !wake_.wait_for(lock, kQuietAfter, queued);
    }
    if (!idle_) wake_.wait(lock, queued);
    gathering_ = busy_;
    const Duration began = deps_.clock.Monotonic();
    while (busy_ && !NobodyMayWait()) {
      const Duration left = GatherNow().at_most - (deps_.clock.Monotonic() - began);
      if (left <= Duration(0) || wake_.wait_for(lock, left) == std::cv_status::timeout) break;
    }
    gathering_ = false;
  }
  return TakeWhatIsThere();
}

IndexThread::Work IndexThread::TakeWhatIsThere() {
  std::size_t receipts = 0;
  for (const ReceiptGroup& group : taken_) receipts += group.receipts.size();
  while (!groups_.empty() && receipts < kReceiptsPerTransaction) {
    receipts += groups_.front().receipts.size();
    Dequeue();
  }
  busy_ = receipts > kLoad;
  Work work;
  for (Task* task : std::exchange(tasks_, {})) (task->flush == Flush::full ? work.full : work.normal).push_back(task);
  work.stop = stopping_;
  return work;
}

Result<void> IndexThread::Transaction(Flush flush, bool receipts, std::span<Task* const> tasks) {
  const Duration began = deps_.clock.Monotonic();
  IndexContext context{deps_.db, counts_, names_, lanes_, deps_.clock};
  Result<void> done;
  if (flush == Flush::full) done = deps_.db.Exec("PRAGMA synchronous = FULL");
  if (done) done = deps_.db.Prepare("BEGIN IMMEDIATE").Run();
  if (done) {
    done = InTransaction(context, receipts, tasks);
    if (done && receipts) deps_.crash_points.At("index.before_commit");
    if (done && context.applied) deps_.crash_points.At("apply.before_commit");
    if (done) done = deps_.db.Prepare("COMMIT").Run();
    if (!done) RollBack();
  }
  if (flush == Flush::full) (void)deps_.db.Exec("PRAGMA synchronous = NORMAL");
  Note(receipts, done);
  if (!done) return done;
  lanes_.Commit();
  if (receipts) deps_.crash_points.At("index.after_commit");
  if (context.claimed) deps_.crash_points.At("claim.after_commit");
  if (context.applied) deps_.crash_points.At("apply.after_commit");
  commit_seconds_.Observe(std::chrono::duration<double>(deps_.clock.Monotonic() - began).count());
  if (context.wanted) wanted_ = *context.wanted;
  if (context.work) Ring();
  return done;
}

Result<void> IndexThread::InTransaction(IndexContext& context, bool receipts, std::span<Task* const> tasks) {
  if (receipts) {
    if (Result<void> done = TakeInReceipts(context); !done) return done;
  }
  for (Task* task : tasks) {
    if (Result<void> done = RunOne(context, *task); !done) return done;
  }
  return {};
}

Result<void> IndexThread::TakeInReceipts(IndexContext& context) {
  if (Result<void> begun = deps_.intake.Begin(context.db); !begun) return begun;
  accepted_.assign(taken_.size(), {});
  std::size_t receipts = 0;
  for (std::size_t g = 0; g < taken_.size(); ++g) {
    const ReceiptGroup& group = taken_[g];
    const bool asked = !group.questions.empty();
    receipts += group.receipts.size();
    if (asked) accepted_[g].reserve(group.receipts.size());
    for (std::size_t i = 0; i < group.receipts.size(); ++i) {
      const Result<Accepted> accepted = deps_.intake.TakeIn(
          context, {group.receipts[i], group.places[i], group.body_digests[i], group.key_digests[i],
                    group.surely_new[i] != 0, group.archived.empty() ? nullptr : group.archived[i].get()});
      if (!accepted) return std::unexpected(accepted.error());
      if (asked) accepted_[g].push_back(*accepted);
    }
  }
  if (Result<void> done = context.counts.Flush(context.db); !done) return done;
  return deps_.intake.Finish(context.db, taken_.back().end, receipts);
}

/// A task that fails undoes itself alone. An error is returned only when the whole transaction is lost.
Result<void> IndexThread::RunOne(IndexContext& context, Task& task) {
  Db& db = deps_.db;
  if (Result<void> began = db.Prepare("SAVEPOINT task").Run(); !began) return began;
  const std::size_t mark = lanes_.Mark();
  task.outcome = task.Do(context);
  if (task.outcome) task.outcome = counts_.Flush(db);
  if (task.outcome) return db.Prepare("RELEASE task").Run();
  counts_.Clear();
  names_.Forget();
  lanes_.RollBackTo(mark);
  if (sqlite3_get_autocommit(db.handle()) != 0) return task.outcome;  // SQLite gave the transaction up by itself
  if (Result<void> undone = db.Prepare("ROLLBACK TO task").Run(); !undone) return undone;
  return db.Prepare("RELEASE task").Run();
}

void IndexThread::RollBack() {
  if (sqlite3_get_autocommit(deps_.db.handle()) == 0) (void)deps_.db.Prepare("ROLLBACK").Run();
  counts_.Clear();
  names_.Forget();
  lanes_.RollBackTo(0);
  deps_.intake.Forget();
}

void IndexThread::Note(bool receipts, const Result<void>& committed) {
  // That an act without receipts went through says nothing about those that still wait for the disk.
  if (committed && !receipts && !taken_.empty()) return;
  if (committed) {
    if (failing_) log::Info("index_commits_again");
    failing_ = false;
  } else {
    if (!failing_) {
      log::Error("index_commit_failed", {{"code", committed.error().code}, {"error", committed.error().message}});
    }
    failing_ = true;
  }
  const std::lock_guard lock(mutex_);
  error_ = committed ? std::nullopt : std::optional<Error>(committed.error());
}

void IndexThread::Finish(std::span<Task* const> tasks, const Result<void>& committed) {
  std::vector<std::unique_ptr<Task>> owned;
  {
    const std::lock_guard lock(mutex_);
    for (Task* task : tasks) {
      // A refusal of the task's own says more than the loss of the transaction around it.
      if (!committed && task->outcome) {
        task->outcome = Fail(ErrorKind::unavailable, committed.error().code, committed.error().message);
      }
      if (task->owned) {
        owned.emplace_back(task);
        continue;
      }
      task->finished = true;
      task->ready.notify_one();  // under the lock: the waiter destroys the task as soon as it can
    }
  }
  for (const std::unique_ptr<Task>& task : owned) task->End();
}

void IndexThread::Answer() {
  std::int64_t receipts = 0, bytes = 0;
  for (const ReceiptGroup& group : taken_) {
    receipts += static_cast<std::int64_t>(group.receipts.size());
    bytes += group.bytes;
  }
  deps_.lag.receipts.fetch_sub(receipts, std::memory_order_relaxed);
  deps_.lag.bytes.fetch_sub(bytes, std::memory_order_relaxed);
  {
    const std::lock_guard lock(mutex_);
    indexed_seq_.store(taken_.back().end.seq, std::memory_order_release);
    indexed_.notify_all();
  }
  for (std::size_t g = 0; g < taken_.size(); ++g) {
    for (ReceiptGroup::Question& question : taken_[g].questions) {
      const auto first = accepted_[g].begin() + static_cast<std::ptrdiff_t>(question.first);
      question.done(std::vector<Accepted>(first, first + static_cast<std::ptrdiff_t>(question.count)));
    }
  }
  taken_.clear();
  accepted_.clear();
}

/// Stopping with a disk that refuses: what was not answered may be stored all the same, and a resend is a duplicate.
void IndexThread::Refuse(const Error& error) {
  log::Warn("stopped_with_receipts_not_indexed", {{"error", error.message}});
  std::unique_lock lock(mutex_);
  while (!groups_.empty()) Dequeue();
  lock.unlock();
  for (ReceiptGroup& group : taken_) {
    for (ReceiptGroup::Question& question : group.questions) question.done(std::unexpected(Stopping()));
  }
  taken_.clear();
  accepted_.clear();
}

void IndexThread::Checkpoint() {
  if (wal_pages_ < checkpointed_pages_) checkpointed_pages_ = 0;  // the WAL began anew
  if (wal_pages_ - checkpointed_pages_ < (idle_ ? kIdleCheckpointPages : kCheckpointPages)) return;
  checkpointed_pages_ = wal_pages_;
  // A reader may stand in its way; then the next one takes more.
  const int code = sqlite3_wal_checkpoint_v2(deps_.db.handle(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  if (code != SQLITE_OK && code != SQLITE_BUSY) {
    const Error error = SqliteError(deps_.db.handle(), code);
    log::Warn("checkpoint_failed", {{"code", error.code}, {"error", error.message}});
  }
}

void IndexThread::Ring() {
  std::shared_ptr<std::function<void()>> ring;
  {
    const std::lock_guard lock(mutex_);
    ring = ring_;
  }
  if (ring && *ring) (*ring)();
}

}  // namespace dlo::store
