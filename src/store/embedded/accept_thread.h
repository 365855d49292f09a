// The journal thread: appends what has gathered, one group and one sync at a time, hands it to the index thread and
// answers those whose keys are surely new. The rest is answered by the index thread, which alone knows what a known key
// means.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "base/metrics.h"
#include "env/clock.h"
#include "store/embedded/index_thread.h"
#include "store/embedded/journal.h"
#include "store/embedded/key_filter.h"
#include "store/inbox.h"

namespace dlo::store {

class AcceptThread {
 public:
  struct Deps {
    Journal& journal;
    IndexThread& index;
    Lag& lag;
    Clock& clock;
    Metrics& metrics;
    std::function<std::int64_t(std::string_view)> key_digest;
    bool own_thread = true;  // false: nothing is appended before Step or Stop
  };

  /// `known` holds every key that the index holds.
  AcceptThread(Deps deps, KeyFilter known);
  ~AcceptThread();

  /// See Inbox::Accept. Thread-safe; takes one short lock.
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, AcceptDone done);
  /// Without a thread: appends on the caller's what waits. False: nothing waited.
  bool Step();
  /// Journal::Seal on the appending thread; waits for it.
  Result<void> Seal(Time begun_before);
  /// ok, or why the last append failed. "store_failed" is for ever.
  [[nodiscard]] Result<void> Health() const;
  /// Seq of the newest receipt that is durable.
  [[nodiscard]] std::int64_t durable_seq() const { return durable_seq_.load(std::memory_order_acquire); }
  /// Refuses what comes, appends what was taken, ends the thread. Idempotent.
  void Stop();

 private:
  struct Request {
    std::vector<std::shared_ptr<Receipt>> receipts;
    std::vector<std::int64_t> key_digests;
    AcceptDone done;
    std::int64_t bytes = 0;
  };

  struct SealCall {
    Time begun_before{};
    std::optional<Result<void>> done;
  };

  /// Takes the request, or says why not and leaves it.
  std::optional<Error> Queue(Request& request);
  void Loop();
  void AppendInGroups(std::span<Request> requests);
  void Append(std::span<Request> requests);
  void AppendApart(std::span<Request> requests, std::span<std::shared_ptr<Receipt>> receipts, const Error& error);
  void Refuse(std::span<Request> requests, const Error& error);
  [[nodiscard]] std::optional<Error> Refusal(std::int64_t receipts, std::int64_t bytes) const;

  Deps deps_;
  KeyFilter known_;
  Histogram& commit_seconds_;
  std::atomic<std::int64_t> durable_seq_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Request> waiting_;
  SealCall* seal_ = nullptr;  // until it is taken
  std::condition_variable sealed_;
  bool stopping_ = false;
  std::optional<Error> error_;  // of the last append
  std::thread thread_;
};

}  // namespace dlo::store
