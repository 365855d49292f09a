#include "server/work_pool.h"

namespace dlo::server {

WorkPool::WorkPool(int threads, int max_waiting) : places_(threads + max_waiting) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Loop(); });
}

WorkPool::~WorkPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkPool::Reserve() {
  const std::lock_guard lock(mutex_);
  if (taken_ >= places_) return false;
  ++taken_;
  return true;
}

void WorkPool::Submit(Work work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  wake_.notify_one();
}

void WorkPool::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    LastStep last_step = work();
    lock.lock();
    --taken_;
    lock.unlock();
    last_step();
    last_step = nullptr;
    work = nullptr;
    lock.lock();
  }
}

}  // namespace dlo::server
