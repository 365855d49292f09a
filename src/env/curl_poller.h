// Which of libcurl's sockets are ready, and when its timer is due: epoll, so that the cost of a transfer does not grow
// with how many there are.
#pragma once

#include <curl/curl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <span>

namespace dlo {

/// Used by one thread, except Wake.
class Poller {
 public:
  struct Ready {
    curl_socket_t socket;
    int what;  // CURL_CSELECT_*
  };

  Poller();
  ~Poller();
  Poller(const Poller&) = delete;
  Poller& operator=(const Poller&) = delete;

  /// Takes over the sockets and the timer of `multi`.
  void Serve(CURLM* multi);
  /// Waits until a socket is ready, the timer is due or somebody calls Wake. Valid until the next call.
  std::span<const Ready> Wait();
  /// Once for each time that the timer came due.
  bool TimerDue();
  /// From any thread: ends the Wait that runs, or the next one.
  void Wake();

 private:
  using Steady = std::chrono::steady_clock;
  static int OnSocket(CURL* easy, curl_socket_t socket, int what, void* user, void* known);
  static int OnTimer(CURLM* multi, long milliseconds, void* user);
  [[nodiscard]] int TimeoutMs() const;

  CURLM* multi_ = nullptr;
  int epoll_ = -1, wake_ = -1;
  std::atomic<bool> woken_{false};
  std::optional<Steady::time_point> timer_;
  std::array<Ready, 64> ready_{};
};

}  // namespace dlo
