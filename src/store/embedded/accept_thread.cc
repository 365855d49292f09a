#include "store/embedded/accept_thread.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/thread_name.h"
#include "store/embedded/hot_cache.h"

namespace dlo::store {
namespace {

/// One group: its sync is answered together, so that it bounds both memory and how long the first waits for the last.
constexpr std::int64_t kGroupBytes = std::int64_t{8} << 20;
constexpr std::size_t kGroupReceipts = 2'048;
/// Accepted and not yet in the index. Beyond this the sender is told to come back.
constexpr std::int64_t kMaxLagReceipts = 200'000;
constexpr std::int64_t kMaxLagBytes = std::int64_t{256} << 20;

}  // namespace

AcceptThread::AcceptThread(Deps deps, KeyFilter known)
    : deps_(std::move(deps)),
      known_(std::move(known)),
      commit_seconds_(deps_.metrics.histogram("dlo_store_commit_seconds", "Duration of the store's commits",
                                              {{"part", "journal"}})),
      durable_seq_(deps_.journal.last_seq()) {
  if (deps_.own_thread) thread_ = std::thread([this] { Loop(); });
}

AcceptThread::~AcceptThread() {
  Stop();
}

void AcceptThread::Accept(std::vector<std::shared_ptr<Receipt>> batch, AcceptDone done) {
  if (batch.empty()) return done(std::vector<Accepted>());
  Request request{.receipts = std::move(batch), .done = std::move(done)};
  request.key_digests.reserve(request.receipts.size());
  for (const std::shared_ptr<Receipt>& receipt : request.receipts) {
    request.key_digests.push_back(KeyDigest(deps_.key_digest, *receipt));
    request.bytes += static_cast<std::int64_t>(MemoryOf(*receipt));
  }
  if (std::optional<Error> refusal = Queue(request)) request.done(std::unexpected(std::move(*refusal)));
}

std::optional<Error> AcceptThread::Queue(Request& request) {
  const auto count = static_cast<std::int64_t>(request.receipts.size());
  const std::lock_guard lock(mutex_);
  if (std::optional<Error> refusal = Refusal(count, request.bytes)) return refusal;
  deps_.lag.receipts.fetch_add(count, std::memory_order_relaxed);
  deps_.lag.bytes.fetch_add(request.bytes, std::memory_order_relaxed);
  waiting_.push_back(std::move(request));
  if (waiting_.size() == 1) wake_.notify_one();
  return std::nullopt;
}

std::optional<Error> AcceptThread::Refusal(std::int64_t receipts, std::int64_t bytes) const {
  if (stopping_) return Error{ErrorKind::unavailable, "stopping", "the store is stopping: send again later"};
  if (error_ && error_->code == "store_failed") return error_;
  // One batch is always let in when nothing else waits, however large.
  const std::int64_t lag = deps_.lag.receipts.load(std::memory_order_relaxed);
  if (lag > 0 &&
      (lag + receipts > kMaxLagReceipts || deps_.lag.bytes.load(std::memory_order_relaxed) + bytes > kMaxLagBytes)) {
    return Error{ErrorKind::unavailable, "overloaded", "the store is behind with what it was sent: send again later"};
  }
  return std::nullopt;
}

Result<void> AcceptThread::Health() const {
  const std::lock_guard lock(mutex_);
  if (error_) return std::unexpected(*error_);
  return {};
}

void AcceptThread::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  if (!deps_.own_thread) Step();
}

Result<void> AcceptThread::Seal(Time begun_before) {
  if (!deps_.own_thread) return deps_.journal.Seal(begun_before);
  SealCall call{begun_before, {}};
  std::unique_lock lock(mutex_);
  sealed_.wait(lock, [this] { return stopping_ || seal_ == nullptr; });
  if (stopping_) return Fail(ErrorKind::unavailable, "stopping", "the store is stopping");
  seal_ = &call;
  wake_.notify_one();
  sealed_.wait(lock, [&call] { return call.done.has_value(); });
  return std::move(*call.done);
}

bool AcceptThread::Step() {
  std::vector<Request> requests;
  {
    const std::lock_guard lock(mutex_);
    requests.swap(waiting_);
  }
  AppendInGroups(requests);
  return !requests.empty();
}

void AcceptThread::Loop() {
  NameThread("dlo-journal");
  std::vector<Request> requests;
  for (;;) {
    requests.clear();
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !waiting_.empty() || seal_ != nullptr; });
      if (waiting_.empty() && seal_ == nullptr) return;
      requests.swap(waiting_);
    }
    AppendInGroups(requests);
    const std::lock_guard lock(mutex_);
    if (seal_ == nullptr) continue;
    seal_->done = deps_.journal.Seal(seal_->begun_before);
    seal_ = nullptr;
    sealed_.notify_all();
  }
}

void AcceptThread::AppendInGroups(std::span<Request> requests) {
  std::size_t begin = 0;
  while (begin < requests.size()) {
    std::size_t end = begin, receipts = 0;
    std::int64_t bytes = 0;
    while (end < requests.size() && (end == begin || (bytes + requests[end].bytes <= kGroupBytes &&
                                                      receipts + requests[end].receipts.size() <= kGroupReceipts))) {
      bytes += requests[end].bytes;
      receipts += requests[end].receipts.size();
      ++end;
    }
    Append(requests.subspan(begin, end - begin));
    begin = end;
  }
}

void AcceptThread::Append(std::span<Request> requests) {
  const Duration began = deps_.clock.Monotonic();
  ReceiptGroup group;
  std::vector<std::shared_ptr<Receipt>> receipts;
  for (Request& request : requests) {
    group.bytes += request.bytes;
    group.key_digests.insert(group.key_digests.end(), request.key_digests.begin(), request.key_digests.end());
    receipts.insert(receipts.end(), std::make_move_iterator(request.receipts.begin()),
                    std::make_move_iterator(request.receipts.end()));
  }
  Result<void> appended = deps_.journal.Append(receipts, group.places, group.body_digests);
  if (!appended && appended.error().kind == ErrorKind::too_large)
    return AppendApart(requests, receipts, appended.error());
  {
    const std::lock_guard lock(mutex_);
    error_ = appended ? std::nullopt : std::optional<Error>(appended.error());
  }
  if (!appended) return Refuse(requests, appended.error());
  commit_seconds_.Observe(std::chrono::duration<double>(deps_.clock.Monotonic() - began).count());
  group.receipts.assign(std::make_move_iterator(receipts.begin()), std::make_move_iterator(receipts.end()));
  group.end = deps_.journal.end();
  durable_seq_.store(group.end.seq, std::memory_order_release);

  group.surely_new.reserve(group.receipts.size());
  for (const std::int64_t digest : group.key_digests) {
    group.surely_new.push_back(known_.AddAndTest(digest) ? 0 : 1);
  }
  std::vector<std::vector<Accepted>> answers(requests.size());
  std::size_t first = 0;
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const std::size_t count = requests[r].key_digests.size();
    const auto begin = group.surely_new.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::all_of(begin, begin + static_cast<std::ptrdiff_t>(count), [](char is_new) { return is_new != 0; })) {
      answers[r].reserve(count);
      for (std::size_t i = first; i < first + count; ++i) {
        answers[r].push_back({AcceptStatus::stored, group.receipts[i]->id});
      }
    } else {
      group.questions.push_back({first, count, std::move(requests[r].done)});
    }
    first += count;
  }
  // First, so that whoever was answered finds the event in whatever is asked of the index next.
  deps_.index.Push(std::move(group));
  for (std::size_t r = 0; r < requests.size(); ++r) {
    if (!answers[r].empty()) requests[r].done(std::move(answers[r]));
  }
}

/// One of the group is too large for the journal: that costs itself, not its neighbours.
void AcceptThread::AppendApart(std::span<Request> requests, std::span<std::shared_ptr<Receipt>> receipts,
                               const Error& error) {
  if (requests.size() == 1) return Refuse(requests, error);
  std::size_t first = 0;
  for (Request& request : requests) {
    for (std::shared_ptr<Receipt>& receipt : request.receipts) receipt = std::move(receipts[first++]);
    Append(std::span(&request, 1));
  }
}

void AcceptThread::Refuse(std::span<Request> requests, const Error& error) {
  log::Error("append_failed", {{"code", error.code}, {"error", error.message}});
  for (Request& request : requests) {
    deps_.lag.receipts.fetch_sub(static_cast<std::int64_t>(request.key_digests.size()), std::memory_order_relaxed);
    deps_.lag.bytes.fetch_sub(request.bytes, std::memory_order_relaxed);
    request.done(std::unexpected(error));
  }
}

}  // namespace dlo::store
