#include "dispatch/in_process_target.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace dlo::dispatch {

// Shared with the threads, so that one which outlives an abandoned target still has its handler.
struct InProcessTarget::Pool {
  struct Work {
    Delivery delivery;
    Done done;
  };

  Pool(Handler h, Clock& c) : handler(std::move(h)), clock(c) {}

  Handler handler;
  Clock& clock;
  std::mutex mutex;
  std::condition_variable work_came;
  std::deque<Work> queue;
  int idle = 0;         // threads that wait
  bool waking = false;  // one of them was woken and has not looked yet
  bool stopping = false;
  bool abandoned = false;            // the clock may be gone, and nobody waits for answers
  std::vector<std::thread> threads;  // touched by the owner only

  Outcome Call(const Delivery& delivery) const {
    try {
      return handler(delivery);
    } catch (const std::exception& e) {
      return Outcome::Permanent("exception", e.what());
    } catch (...) {
      return Outcome::Permanent("exception", "the handler threw something that is not a std::exception");
    }
  }

  /// Threads are woken one by one, each by the one before it while there is more to do: a wake costs more than a quick
  /// handler, and slow handlers have all of them at work as soon as it matters.
  void WakeOne() {
    if (queue.empty() || idle == 0 || waking) return;
    waking = true;
    work_came.notify_one();
  }

  void Run() {
    std::unique_lock lock(mutex);
    for (;;) {
      while (!stopping && queue.empty()) {
        ++idle;
        work_came.wait(lock);
        --idle;
        waking = false;
      }
      if (queue.empty()) return;
      Work work = std::move(queue.front());
      queue.pop_front();
      WakeOne();
      const Duration began = clock.Monotonic();
      lock.unlock();
      Ended ended{Call(work.delivery), {}, {}};
      lock.lock();
      if (abandoned) return;
      ended.took = clock.Monotonic() - began;
      ended.at = clock.Now();
      lock.unlock();
      work.done(std::move(ended));
      work = {};  // the receipt is let go of outside the lock
      lock.lock();
    }
  }
};

InProcessTarget::InProcessTarget(const TargetConfig& config, Clock& clock)
    : pool_(std::make_shared<Pool>(config.handler, clock)), concurrency_(config.concurrency) {
  for (int i = 0; i < concurrency_; ++i) pool_->threads.emplace_back([pool = pool_] { pool->Run(); });
}

InProcessTarget::~InProcessTarget() {
  DropQueued();
  for (std::thread& thread : pool_->threads) {
    if (pool_->abandoned) {
      thread.detach();
    } else {
      thread.join();
    }
  }
  pool_->threads.clear();
}

int InProcessTarget::capacity() const {
  return 2 * concurrency_;
}

void InProcessTarget::Start(Delivery delivery, Done done) {
  {
    const std::lock_guard lock(pool_->mutex);
    if (!pool_->stopping) {
      pool_->queue.push_back({std::move(delivery), std::move(done)});
      pool_->WakeOne();
      return;
    }
  }
  done({});
}

void InProcessTarget::DropQueued() {
  std::deque<Pool::Work> dropped;
  {
    const std::lock_guard lock(pool_->mutex);
    pool_->stopping = true;
    dropped.swap(pool_->queue);
    pool_->work_came.notify_all();
  }
  for (Pool::Work& work : dropped) work.done({});
}

void InProcessTarget::Abandon() {
  const std::lock_guard lock(pool_->mutex);
  pool_->abandoned = true;
}

}  // namespace dlo::dispatch
