// The load: a child process that signs its events before the clock starts and then keeps 64 connections busy, each with
// its next event as soon as the last one was answered.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <string>
#include <vector>

#include "bench/common/measure.h"
#include "env/clock.h"
#include "intake/sign.h"

namespace dlo::bench {

using Steady = std::chrono::steady_clock;

inline constexpr int kConnections = 64;
inline constexpr std::size_t kBodyBytes = 1536;
inline constexpr const char* kSecret = "whsec_bench_secret_of_sufficient_length";

inline double Seconds(Steady::time_point since) {
  return std::chrono::duration<double>(Steady::now() - since).count();
}

struct Order {
  int run = 0;
  int count = 0;
  int rate = 0;  // a second; 0: as fast as they are answered
  char source[16] = "stripe";
};
struct Measured {
  double seconds = 0, p50_ms = 0, p99_ms = 0;
  int stored = 0, other = 0;
  int unexplained = 0;  // of other: without a Retry-After
};

template <typename T>
void Put(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != static_cast<ssize_t>(sizeof value)) Die("the pipe to the other process broke");
}
template <typename T>
bool Take(int fd, T& value) {
  return read(fd, &value, sizeof value) == static_cast<ssize_t>(sizeof value);
}

/// Whole requests, each with an id of its own and a fresh timestamp.
inline std::vector<std::string> Sign(const Order& order) {
  const auto signer = intake::Signer::Compile("stripe", {}, kSecret);
  if (!signer) Die(signer.error().message);
  const Time now = RealClock().Now();
  std::vector<std::string> requests;
  requests.reserve(static_cast<std::size_t>(order.count));
  for (int i = 0; i < order.count; ++i) {
    std::string body = fmt::format(
        R"({{"id":"evt_{}_{}","object":"event","type":"invoice.paid","created":{},"livemode":true,"pending_webhooks":1,)"
        R"("data":{{"object":{{"id":"in_{}","object":"invoice","subscription":"sub_{}","customer":"cus_{}","lines":")",
        order.run, i, now.time_since_epoch().count() / 1'000'000, i, i % 5000, i % 5000);
    body.append(kBodyBytes - body.size() - 4, 'x');
    body += "\"}}}";
    std::string request = fmt::format(
        "POST /in/{} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        "User-Agent: Stripe/1.0\r\nContent-Length: {}\r\n",
        order.source, body.size());
    for (const Header& h : signer->Sign(body, now, "")) request += fmt::format("{}: {}\r\n", h.name, h.value);
    requests.push_back(request + "\r\n" + body);
  }
  return requests;
}

struct Client {
  int fd = -1;
  const std::string* request = nullptr;
  std::size_t sent = 0;
  std::string answer;
  Steady::time_point began;
};

inline int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) Die("cannot connect");
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/// The whole of an answer has come.
inline bool Complete(const std::string& answer) {
  const std::size_t head = answer.find("\r\n\r\n");
  if (head == std::string::npos) return false;
  static constexpr std::string_view kLength = "Content-Length: ";
  const std::size_t at = answer.find(kLength);
  if (at == std::string::npos || at > head) Die("an answer without a length");
  std::size_t length = 0;
  std::from_chars(answer.data() + at + kLength.size(), answer.data() + head, length);
  return answer.size() >= head + 4 + length;
}

inline void SendAll(Client& client) {
  // A request fits the socket's buffer; the loop is for the day when it does not.
  while (client.sent < client.request->size()) {
    const ssize_t n =
        send(client.fd, client.request->data() + client.sent, client.request->size() - client.sent, MSG_NOSIGNAL);
    if (n <= 0) Die("the server closed a connection while it was sent to");
    client.sent += static_cast<std::size_t>(n);
  }
}

inline Measured Drive(int port, const std::vector<std::string>& requests, int rate) {
  const int epoll = epoll_create1(0);
  std::vector<Client> clients(kConnections);
  std::vector<float> milliseconds;
  milliseconds.reserve(requests.size());
  std::size_t next = 0;
  Measured measured;
  std::vector<Client*> idle;  // while it is too early for the next one
  Steady::time_point began;
  const auto due = [&] { return rate == 0 || static_cast<double>(next) <= Seconds(began) * rate; };
  const auto start = [&](Client& client) {
    if (next == requests.size()) return;
    if (!due()) {
      idle.push_back(&client);
      return;
    }
    client.request = &requests[next++];
    client.sent = 0;
    client.answer.clear();
    client.began = Steady::now();
    SendAll(client);
  };
  // Anew when the server has answered as much as it does on one connection.
  const auto connect = [&](Client& client) {
    if (client.fd >= 0) close(client.fd);
    client.fd = Connect(port);
    epoll_event event{.events = EPOLLIN, .data = {.ptr = &client}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, client.fd, &event);
  };
  for (Client& client : clients) connect(client);
  began = Steady::now();
  for (Client& client : clients) start(client);
  std::array<epoll_event, kConnections> events{};
  std::array<char, 4096> buffer{};
  while (milliseconds.size() < requests.size()) {
    while (!idle.empty() && due()) {
      Client& client = *idle.back();
      idle.pop_back();
      start(client);
    }
    const int n = epoll_wait(epoll, events.data(), kConnections, idle.empty() ? 20'000 : 1);
    if (n == 0 && idle.empty()) Die("no answer for 20 s");
    for (int i = 0; i < n; ++i) {
      Client& client = *static_cast<Client*>(events[static_cast<std::size_t>(i)].data.ptr);
      const ssize_t got = recv(client.fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) Die("the server closed a connection");
      client.answer.append(buffer.data(), static_cast<std::size_t>(got));
      if (!Complete(client.answer)) continue;
      milliseconds.push_back(std::chrono::duration<float, std::milli>(Steady::now() - client.began).count());
      const bool stored = client.answer.starts_with("HTTP/1.1 200");
      ++(stored ? measured.stored : measured.other);
      if (!stored && !client.answer.contains("Retry-After: ")) ++measured.unexplained;
      if (client.answer.contains("Connection: close")) connect(client);
      start(client);
    }
  }
  measured.seconds = std::chrono::duration<double>(Steady::now() - began).count();
  for (const Client& client : clients) close(client.fd);
  close(epoll);
  std::ranges::sort(milliseconds);
  measured.p50_ms = milliseconds[milliseconds.size() / 2];
  measured.p99_ms = milliseconds[milliseconds.size() * 99 / 100];
  return measured;
}

/// For each order: signs, says it is ready, is told the port, drives, tells what it measured.
inline void RunLoad(int orders, int results) {
  Order order;
  while (Take(orders, order)) {
    const std::vector<std::string> requests = Sign(order);
    Put(results, order.run);
    int port = 0;
    if (!Take(orders, port)) return;
    Put(results, Drive(port, requests, order.rate));
  }
}

class LoadGenerator {
 public:
  /// Forks: before any thread exists.
  LoadGenerator() {
    int orders[2], results[2];
    if (pipe(orders) != 0 || pipe(results) != 0) Die("no pipe");
    child_ = fork();
    if (child_ == 0) {
      close(orders[1]);
      close(results[0]);
      RunLoad(orders[0], results[1]);
      _exit(0);
    }
    close(orders[0]);
    close(results[1]);
    orders_ = orders[1];
    results_ = results[0];
  }
  ~LoadGenerator() {
    close(orders_);
    waitpid(child_, nullptr, 0);
  }
  LoadGenerator(const LoadGenerator&) = delete;
  LoadGenerator& operator=(const LoadGenerator&) = delete;

  /// Signs `count` new events, to be sent at `rate` a second (0: as fast as they are answered).
  void Prepare(int count, int rate = 0, std::string_view source = "stripe") {
    Order order{.run = ++run_, .count = count, .rate = rate};
    order.source[source.copy(order.source, sizeof order.source - 1)] = '\0';
    Put(orders_, order);
    int ready = 0;
    if (!Take(results_, ready)) Die("the load generator ended");
  }
  /// Sends them to POST /in/<source>.
  Measured Drive(int port) {
    Put(orders_, port);
    Measured measured;
    if (!Take(results_, measured)) Die("the load generator ended");
    return measured;
  }

 private:
  pid_t child_ = 0;
  int orders_ = -1, results_ = -1, run_ = 0;
};

}  // namespace dlo::bench
