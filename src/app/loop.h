// A thread around a RunOnce: calls it, sleeps until it wants to run again or somebody rings.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/thread_name.h"
#include "dlo/time.h"
#include "env/clock.h"

namespace dlo::app {

class Loop {
 public:
  /// `run_once(now)` returns when it must run again at the latest.
  Loop(const char* name, Clock& clock, std::function<Time(Time)> run_once)
      : name_(name), clock_(clock), run_once_(std::move(run_once)) {}
  ~Loop() { Stop(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  void Start() {
    thread_ = std::thread([this] { Run(); });
  }
  /// From any thread, also before Start.
  void Ring() {
    {
      const std::lock_guard lock(mutex_);
      rung_ = true;
    }
    wake_.notify_one();
  }
  /// Waits for the call that runs. Idempotent.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    NameThread(name_);
    std::unique_lock lock(mutex_);
    while (!stop_) {
      rung_ = false;
      lock.unlock();
      const Time now = clock_.Now();
      const Time next = run_once_(now);
      lock.lock();
      if (next > now) wake_.wait_for(lock, next - now, [this] { return rung_ || stop_; });
    }
  }

  const char* const name_;
  Clock& clock_;
  std::function<Time(Time)> run_once_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool rung_ = false;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace dlo::app
