// Where other threads leave word for the dispatcher's loop: attempts that ended, the store's answer, work that arrived,
// sources that were resumed. Shared with the callbacks in flight, so that one which comes after the dispatcher is gone
// does no harm.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "dispatch/target.h"
#include "store/queue.h"

namespace dlo::dispatch {

struct Mail {
  struct Answer {
    std::uint64_t run = 0;
    Ended ended;
  };
  std::vector<Answer> answers;
  std::optional<Result<store::ExchangeResult>> exchanged;
  std::vector<std::string> resumed;
  bool rung = false;
};

class Mailbox {
 public:
  void Put(std::uint64_t run, Ended ended) {
    bool wake = false;
    {
      const std::lock_guard lock(mutex_);
      mail_.answers.push_back({run, std::move(ended)});
      wake = mail_.answers.size() == answers_wanted_ && !Other();
      answer_came_.notify_one();
    }
    if (wake) Wake();
  }
  /// `asked_on`: the thread that asked the store; it looks by itself when the answer came before the question returned.
  void PutExchanged(Result<store::ExchangeResult> result, std::thread::id asked_on) {
    Leave([&] { mail_.exchanged = std::move(result); }, std::this_thread::get_id() != asked_on);
  }
  void PutResumed(std::string source) {
    Leave([&] { mail_.resumed.push_back(std::move(source)); });
  }
  void Ring() {
    Leave([&] { mail_.rung = true; });
  }

  [[nodiscard]] Mail Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(mail_, {});
  }

  /// The loop is woken by so many answers, or by anything else, since it comes by itself for fewer. True when that lies
  /// there already.
  bool WakeForAnswers(std::size_t count) {
    const std::lock_guard lock(mutex_);
    answers_wanted_ = count;
    return Other() || mail_.answers.size() >= count;
  }

  /// True once an answer of a target or of the store lies there; false after `at_most`.
  bool WaitForAnswer(Duration at_most) {
    std::unique_lock lock(mutex_);
    return answer_came_.wait_for(lock, at_most, [this] { return !mail_.answers.empty() || mail_.exchanged; });
  }

  /// Empty: nobody is woken any more; when this returns, nobody is being woken either.
  void OnWake(std::function<void()> wake) {
    const std::lock_guard lock(wake_mutex_);
    wake_ = std::move(wake);
  }

 private:
  template <typename Write>
  void Leave(Write write, bool wake = true) {
    bool first = false;
    {
      const std::lock_guard lock(mutex_);
      // Who finds mail lying there knows that the loop was woken for it and has not taken it yet.
      first = mail_.answers.size() < answers_wanted_ && !Other();
      write();
      answer_came_.notify_one();
    }
    if (first && wake) Wake();
  }
  [[nodiscard]] bool Other() const { return !mail_.resumed.empty() || mail_.rung || mail_.exchanged; }
  void Wake() {
    const std::lock_guard lock(wake_mutex_);
    if (wake_) wake_();
  }

  std::mutex mutex_;
  std::condition_variable answer_came_;
  Mail mail_;
  std::size_t answers_wanted_ = 1;
  std::mutex wake_mutex_;
  std::function<void()> wake_;
};

}  // namespace dlo::dispatch
