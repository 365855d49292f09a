#include <boost/asio/post.hpp>

#include "base/thread_name.h"
#include "server/answer.h"
#include "server/session.h"

namespace dlo::server {

namespace asio = boost::asio;

IoThread::IoThread(Clock& clock, Duration tick) : clock_(clock), tick_length_(tick) {
  now = clock_.Monotonic();
  date = HttpDate(clock_.Now());
}

void IoThread::Run() {
  Wait();
  thread_ = std::thread([this] {
    NameThread("dlo-http");
    id_ = std::this_thread::get_id();
    context.run();
  });
}

void IoThread::Wait() {
  tick_.expires_after(tick_length_);
  tick_.async_wait([this](boost::system::error_code error) {
    // A tick that fell due before it was cancelled comes without an error.
    if (!error && !closing) Tick();
  });
}

void IoThread::Tick() {
  now = clock_.Monotonic();
  date = HttpDate(clock_.Now());
  const auto all = sessions;  // a session may leave the set while it is told
  for (const auto& session : all) session->OnTick();
  Wait();
}

void IoThread::Post(std::shared_ptr<Session> session, std::uint64_t exchange, Response response) {
  {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    answers_.push_back({std::move(session), exchange, std::move(response)});
    if (answers_.size() > 1) return;  // a delivery is on its way
  }
  asio::post(context, [this] { Deliver(); });
}

void IoThread::Deliver() {
  std::vector<Answer> answers;
  {
    const std::lock_guard lock(mutex_);
    answers.swap(answers_);
  }
  for (Answer& a : answers) a.session->OnAnswer(a.exchange, std::move(a.response));
}

void IoThread::Drain() {
  asio::post(context, [this] {
    draining = true;
    const auto all = sessions;
    for (const auto& session : all) session->Drain();
  });
}

void IoThread::Stop() {
  std::vector<Answer> dropped;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    dropped.swap(answers_);
  }
  asio::post(context, [this] {
    closing = true;
    const auto all = sessions;
    for (const auto& session : all) session->Close();
    tick_.cancel();
    work_.reset();
  });
  if (thread_.joinable()) thread_.join();
}

}  // namespace dlo::server
