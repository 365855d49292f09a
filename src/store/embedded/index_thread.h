// The index thread: the only one that writes or checkpoints the database. It takes what has queued up, receipts first,
// runs what shares a flush rule in one transaction and then tells those who wait. The mark of the journal moves in the
// transaction that holds the rows, so that after any crash each receipt is taken in once.
//
// When the database cannot commit (full disk, I/O error) the callers of Run are told `unavailable`; receipts are safe
// in the journal, stay queued and are tried again until it can.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/metrics.h"
#include "env/crash_points.h"
#include "store/embedded/index_context.h"
#include "store/embedded/index_intake.h"
#include "store/embedded/journal.h"
#include "store/inbox.h"

namespace dlo::store {

/// normal: a power cut may take back the last moments. full: what a person or a script is told is done.
enum class Flush : unsigned char { normal, full };

/// What was accepted and is not yet in the index. Counted up by Accept, down by the index thread.
struct Lag {
  std::atomic<std::int64_t> receipts{0};
  std::atomic<std::int64_t> bytes{0};
};

/// One journal batch on its way into the index.
struct ReceiptGroup {
  /// A request whose answer the index decides: `count` receipts from `first` on.
  struct Question {
    std::size_t first = 0, count = 0;
    AcceptDone done;
  };
  std::vector<std::shared_ptr<const Receipt>> receipts;
  std::vector<Place> places;
  std::vector<Sha256Digest> body_digests;
  std::vector<std::int64_t> key_digests;
  std::vector<char> surely_new;
  std::vector<Question> questions;
  /// Of each receipt, what the archive knows of its segment; empty but while an index is rebuilt.
  std::vector<std::shared_ptr<const ArchivedStands>> archived;
  Mark end;  // where the next batch begins
  std::int64_t bytes = 0;
};

struct IndexThreadDeps {
  Db& db;
  Intake& intake;
  Clock& clock;
  CrashPoints& crash_points;
  Metrics& metrics;
  Lag& lag;
};

class IndexThread {
 public:
  explicit IndexThread(IndexThreadDeps deps);
  ~IndexThread();

  /// Before anything else: reads what is kept in memory.
  Result<void> Load() { return lanes_.Load(deps_.db); }
  [[nodiscard]] const Lanes& lanes() const { return lanes_; }
  /// Recovery, before Start: takes one batch in, in a transaction of its own, on the caller's thread.
  Result<void> TakeInNow(ReceiptGroup group);
  /// `mark` is where the index stands. Without a thread of its own nothing happens before Step, Run or Stop.
  void Start(const Mark& mark, bool own_thread = true);
  /// Without a thread: does on the caller's what is queued. False: there was nothing to do.
  bool Step();

  /// Queues a batch; batches are taken in by the order of these calls.
  void Push(ReceiptGroup group);

  /// Runs `fn(IndexContext&)`, which returns a Result, in a transaction with that flush rule, and returns what it
  /// returned once that is committed. Blocks: never call it on a thread of the store.
  template <typename F>
  auto Run(Flush flush, F&& fn) -> std::invoke_result_t<F&, IndexContext&> {
    using R = std::invoke_result_t<F&, IndexContext&>;
    struct Call final : Task {
      Call(Flush rule, F& function) : Task(rule), fn(function) {}
      Result<void> Do(IndexContext& context) override {
        result.emplace(fn(context));
        if (!*result) return std::unexpected(result->error());
        return {};
      }
      F& fn;
      std::optional<R> result;
    };
    Call call(flush, fn);
    if (Result<void> done = RunTask(call); !done) return std::unexpected(std::move(done.error()));
    return std::move(*call.result);
  }

  /// As Run, without waiting: `done` is given what Run would return, on the index thread, or on this one when there is
  /// no such thread or it is stopping.
  template <typename F, typename Done>
  void Start(Flush flush, F fn, Done done) {
    using R = std::invoke_result_t<F&, IndexContext&>;
    struct Call final : Task {
      Call(Flush rule, F&& function, Done&& whom) : Task(rule), fn(std::move(function)), tell(std::move(whom)) {}
      Result<void> Do(IndexContext& context) override {
        result.emplace(fn(context));
        if (!*result) return std::unexpected(result->error());
        return {};
      }
      void End() override {
        if (outcome) {
          tell(std::move(*result));
        } else {
          tell(std::unexpected(std::move(outcome.error())));
        }
      }
      F fn;
      Done tell;
      std::optional<R> result;
    };
    StartTask(std::make_unique<Call>(flush, std::move(fn), std::move(done)));
  }

  /// As Run, without waiting and without an answer: dropped when the index is busy or stopping. False = dropped.
  bool Post(std::move_only_function<Result<void>(IndexContext&)> fn);

  void OnWork(std::function<void()> ring);
  /// Waits, at most `at_most`, until receipt `seq` is in the index.
  void WaitForSeq(std::int64_t seq, Duration at_most);
  [[nodiscard]] std::int64_t indexed_seq() const { return indexed_seq_.load(std::memory_order_acquire); }
  /// ok, or why the last commit failed.
  [[nodiscard]] Result<void> Health() const;

  /// Takes in what is queued (once, if the disk refuses), answers everybody, checkpoints and ends the thread.
  /// Idempotent.
  void Stop();

 private:
  struct Task {
    explicit Task(Flush rule) : flush(rule) {}
    virtual ~Task() = default;
    virtual Result<void> Do(IndexContext& context) = 0;
    /// Of an owned one, with its outcome set, and no lock held.
    virtual void End() {}
    Flush flush;
    bool owned = false;  // by the queue; nobody waits
    Result<void> outcome;
    bool finished = false;  // under mutex_
    std::condition_variable ready;
  };
  struct Gather;
  static const Gather kGather, kGatherWanted;
  struct PostedTask;
  struct IdleTask;
  struct Work {
    std::vector<Task*> normal, full;
    bool stop = false;
  };

  Result<void> RunTask(Task& task);
  void StartTask(std::unique_ptr<Task> task);
  bool QueueIdleTask();  // with mutex_ held; false: there is nothing to do while idle
  void Loop();
  Work Take();                                    // waits for work, and gathers
  Work TakeWhatIsThere();                         // with mutex_ held
  bool Round(const Work& work);                   // false: told to stop, and everything is done
  [[nodiscard]] const Gather& GatherNow() const;  // mutex_ is held
  [[nodiscard]] bool NobodyMayWait() const;       // mutex_ is held
  void Dequeue();                                 // likewise; the first of groups_ becomes the last of taken_
  Result<void> Transaction(Flush flush, bool receipts, std::span<Task* const> tasks);
  Result<void> InTransaction(IndexContext& context, bool receipts, std::span<Task* const> tasks);
  Result<void> TakeInReceipts(IndexContext& context);
  Result<void> RunOne(IndexContext& context, Task& task);
  void RollBack();
  void Note(bool receipts, const Result<void>& committed);
  void Finish(std::span<Task* const> tasks, const Result<void>& committed);
  void Answer();
  void Refuse(const Error& error);
  void Checkpoint();
  void Ring();

  IndexThreadDeps deps_;
  Counts counts_;
  Names names_;
  Lanes lanes_;
  Histogram& commit_seconds_;
  int wal_pages_ = 0, checkpointed_pages_ = 0;
  std::deque<ReceiptGroup> taken_;               // being taken in; kept until their commit
  std::vector<std::vector<Accepted>> accepted_;  // one per group of taken_
  bool failing_ = false;
  bool idle_ = false;  // it was quiet for long
  bool idle_failed_ = false;
  bool busy_ = false;    // the last transaction took in more than a few receipts
  bool wanted_ = false;  // a dispatcher would have claimed more than there was

  mutable std::mutex mutex_;
  std::condition_variable wake_, indexed_;
  std::deque<ReceiptGroup> groups_;
  std::size_t queued_ = 0, asked_ = 0;  // receipts of groups_; groups with a question
  int readers_ = 0;                     // who wait for a receipt to be in the index
  bool gathering_ = false;
  std::vector<Task*> tasks_;
  int posted_ = 0;
  bool stopping_ = false;
  std::shared_ptr<std::function<void()>> ring_;
  std::optional<Error> error_;  // of the last commit
  std::atomic<std::int64_t> indexed_seq_{0};
  bool stepped_ = false;
  std::thread thread_;
};

}  // namespace dlo::store
