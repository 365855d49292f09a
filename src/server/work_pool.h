// A few threads for calls that may block, with a bounded queue.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace dlo::server {

class WorkPool {
 public:
  /// Work returns its last step, which runs when the place is free again: whoever is answered by it may come back at
  /// once.
  using LastStep = std::move_only_function<void()>;
  using Work = std::move_only_function<LastStep()>;

  /// At most `max_waiting` pieces of work wait for a thread.
  WorkPool(int threads, int max_waiting);
  /// Ends what runs; what waits is dropped.
  ~WorkPool();

  /// Takes a place, to be used by one Submit; false = full. In two steps so that the caller of a full pool still has in
  /// hand what it would have submitted.
  [[nodiscard]] bool Reserve();
  void Submit(Work work);

 private:
  void Loop();

  const int places_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Work> waiting_;
  int taken_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace dlo::server
