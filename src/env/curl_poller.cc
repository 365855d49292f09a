#include "env/curl_poller.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace dlo {
namespace {

constexpr int kIdleWaitMs = 10'000;  // only a bound

}  // namespace

Poller::Poller() : epoll_(epoll_create1(EPOLL_CLOEXEC)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_}};
  if (epoll_ < 0 || wake_ < 0 || epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0) std::abort();  // no descriptors
}

Poller::~Poller() {
  close(wake_);
  close(epoll_);
}

void Poller::Serve(CURLM* multi) {
  multi_ = multi;
  curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, &Poller::OnSocket);
  curl_multi_setopt(multi, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, &Poller::OnTimer);
  curl_multi_setopt(multi, CURLMOPT_TIMERDATA, this);
}

int Poller::OnSocket(CURL* /*easy*/, curl_socket_t socket, int what, void* user, void* known) {
  const auto& self = *static_cast<Poller*>(user);
  if (what == CURL_POLL_REMOVE) {
    epoll_ctl(self.epoll_, EPOLL_CTL_DEL, socket, nullptr);
    return 0;
  }
  epoll_event event{.events = 0, .data = {.fd = socket}};
  if ((what & CURL_POLL_IN) != 0) event.events |= EPOLLIN;
  if ((what & CURL_POLL_OUT) != 0) event.events |= EPOLLOUT;
  if (epoll_ctl(self.epoll_, known == nullptr ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, socket, &event) != 0) return -1;
  if (known == nullptr) curl_multi_assign(self.multi_, socket, user);
  return 0;
}

int Poller::OnTimer(CURLM* /*multi*/, long milliseconds, void* user) {
  auto& self = *static_cast<Poller*>(user);
  self.timer_.reset();
  if (milliseconds >= 0) self.timer_ = Steady::now() + std::chrono::milliseconds(milliseconds);
  return 0;
}

int Poller::TimeoutMs() const {
  if (!timer_) return kIdleWaitMs;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(*timer_ - Steady::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, kIdleWaitMs));
}

std::span<const Poller::Ready> Poller::Wait() {
  std::array<epoll_event, std::tuple_size_v<decltype(ready_)>> events;
  const int count = epoll_wait(epoll_, events.data(), static_cast<int>(events.size()), TimeoutMs());
  std::size_t n = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events.at(static_cast<std::size_t>(i));
    if (event.data.fd == wake_) {
      std::uint64_t ignored = 0;
      (void)!read(wake_, &ignored, sizeof ignored);
      woken_.store(false);
      continue;
    }
    int what = 0;
    if ((event.events & EPOLLIN) != 0) what |= CURL_CSELECT_IN;
    if ((event.events & EPOLLOUT) != 0) what |= CURL_CSELECT_OUT;
    if ((event.events & (EPOLLERR | EPOLLHUP)) != 0) what |= CURL_CSELECT_ERR;
    ready_.at(n++) = {event.data.fd, what};
  }
  return std::span(ready_).first(n);
}

bool Poller::TimerDue() {
  if (!timer_ || *timer_ > Steady::now()) return false;
  timer_.reset();
  return true;
}

void Poller::Wake() {
  if (woken_.exchange(true)) return;
  const std::uint64_t one = 1;
  (void)!write(wake_, &one, sizeof one);
}

}  // namespace dlo
