// The real client against a small TCP server of our own, which can misbehave in every way that a test names.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "env/curl_http_client.h"

namespace dlo {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// One accepted connection in the hands of a test's script.
class Connection {
 public:
  explicit Connection(int fd) : fd_(fd) {}
  ~Connection() { close(fd_); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// The next whole request; empty when the peer closed.
  std::string ReadRequest() {
    for (;;) {
      const std::size_t end = buffer_.find("\r\n\r\n");
      if (end != std::string::npos) {
        std::size_t length = 0;
        const std::size_t at = buffer_.find("Content-Length: ");
        if (at != std::string::npos && at < end) length = std::strtoul(buffer_.c_str() + at + 16, nullptr, 10);
        if (buffer_.size() >= end + 4 + length) {
          std::string request = buffer_.substr(0, end + 4 + length);
          buffer_.erase(0, request.size());
          return request;
        }
      }
      char chunk[65536];
      const ssize_t n = recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) return {};
      buffer_.append(chunk, static_cast<std::size_t>(n));
    }
  }
  /// False when the peer closed.
  bool Write(const std::string& bytes) {
    std::size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<std::size_t>(n);
    }
    return true;
  }
  void Answer(const std::string& body = "ok") {
    Write("HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  /// Closes with RST instead of FIN.
  void Reset() {
    const linger now{1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
  }
  void WaitUntilClosed() {
    while (!ReadRequest().empty()) {
    }
  }

 private:
  int fd_;
  std::string buffer_;
};

class Server {
 public:
  using Script = std::function<void(Connection&)>;

  explicit Server(Script script) : script_(std::move(script)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t length = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    EXPECT_EQ(pipe(stop_), 0);
    thread_ = std::thread([this] { Accept(); });
  }
  /// The client must have been stopped, or have closed its connections.
  ~Server() {
    close(stop_[1]);
    thread_.join();
    for (std::thread& thread : connections_) thread.join();
    close(stop_[0]);
    close(listener_);
  }
  [[nodiscard]] int port() const { return port_; }
  [[nodiscard]] std::string Url(const std::string& host = "127.0.0.1", const std::string& path = "/") const {
    return "http://" + host + ":" + std::to_string(port_) + path;
  }
  [[nodiscard]] int accepted() const { return accepted_; }

 private:
  void Accept() {
    for (;;) {
      pollfd fds[2] = {{listener_, POLLIN, 0}, {stop_[0], POLLIN | POLLHUP, 0}};
      poll(fds, 2, -1);
      if (fds[1].revents != 0) return;
      const int fd = accept(listener_, nullptr, nullptr);
      if (fd < 0) continue;
      ++accepted_;
      connections_.emplace_back([this, fd] {
        Connection connection(fd);
        script_(connection);
      });
    }
  }

  Script script_;
  int listener_;
  int stop_[2]{};
  int port_ = 0;
  std::atomic<int> accepted_{0};
  std::thread thread_;
  std::vector<std::thread> connections_;
};

void AnswerAll(Connection& connection) {
  while (!connection.ReadRequest().empty()) connection.Answer();
}

HttpRequest To(std::string url) {
  HttpRequest request;
  request.url = std::move(url);
  request.allow_private = true;
  request.timeout = seconds(20);
  return request;
}

HttpResponse Call(HttpClient& client, HttpRequest request) {
  std::promise<HttpResponse> promise;
  client.Start(std::move(request), [&](HttpResponse response) { promise.set_value(std::move(response)); });
  return promise.get_future().get();
}

TEST(HttpClient, SendsTheExactBytesAndHeadersAndReadsTheAnswer) {
  std::string seen;
  Server server([&](Connection& c) {
    seen = c.ReadRequest();
    c.Write("HTTP/1.1 100 Continue\r\nX-Interim: 1\r\n\r\n");
    c.Write("HTTP/1.1 422 No\r\nDlo-Reason:  why \r\nX-Empty:\r\nContent-Length: 4\r\n\r\nbody");
    c.WaitUntilClosed();
  });
  RealHttpClient client;
  const std::string body("\0\xff binary \r\n", 12);
  HttpRequest request = To(server.Url("127.0.0.1", "/in?a=b"));
  request.headers = {"X-One: 1", "X-Empty:", "Content-Type: application/json"};
  request.body = body;
  const HttpResponse response = Call(client, std::move(request));
  EXPECT_EQ(response.failure, HttpFailure::none) << response.failure_message;
  EXPECT_EQ(response.status, 422);
  const std::vector<Header> expected = {{"Dlo-Reason", "why"}, {"X-Empty", ""}, {"Content-Length", "4"}};
  EXPECT_EQ(response.headers, expected) << "without those of the interim answer";
  EXPECT_EQ(response.body, "body");
  EXPECT_GT(response.took, Duration(0));
  client.Stop();
  EXPECT_TRUE(seen.starts_with("POST /in?a=b HTTP/1.1\r\n")) << seen;
  EXPECT_TRUE(seen.ends_with("\r\n\r\n" + body));
  for (const char* line : {"\r\nX-One: 1\r\n", "\r\nX-Empty:\r\n", "\r\nContent-Type: application/json\r\n",
                           "\r\nContent-Length: 12\r\n"}) {
    EXPECT_NE(seen.find(line), std::string::npos) << line << seen;
  }
}

TEST(HttpClient, AddsNothingOfItsOwnToAnEmptyOrALargeBody) {
  std::vector<std::string> seen;
  Server server([&](Connection& c) {
    for (std::string r = c.ReadRequest(); !r.empty(); r = c.ReadRequest()) {
      seen.push_back(std::move(r));
      c.Answer();
    }
  });
  RealHttpClient client;
  EXPECT_EQ(Call(client, To(server.Url())).status, 200);
  const std::string large(2 << 20, 'x');
  HttpRequest request = To(server.Url());
  request.body = large;
  EXPECT_EQ(Call(client, std::move(request)).status, 200);
  client.Stop();
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_NE(seen[0].find("Content-Length: 0\r\n"), std::string::npos) << seen[0];
  EXPECT_TRUE(seen[1].ends_with("\r\n\r\n" + large));
  for (const std::string& request_text : seen) {
    EXPECT_EQ(request_text.find("Expect:"), std::string::npos);
    EXPECT_EQ(request_text.substr(0, 300).find("Content-Type:"), std::string::npos) << request_text.substr(0, 300);
  }
}

TEST(HttpClient, KeepsTheConnectionAlive) {
  Server server(AnswerAll);
  RealHttpClient client;
  for (int i = 0; i < 20; ++i) ASSERT_EQ(Call(client, To(server.Url())).status, 200);
  client.Stop();
  EXPECT_EQ(server.accepted(), 1);
}

TEST(HttpClient, ManyAtOnce) {
  Server server(AnswerAll);
  RealHttpClient client;
  constexpr int kCount = 50;
  std::atomic<int> ok{0};
  std::atomic<int> left{kCount};
  std::promise<void> all;
  for (int i = 0; i < kCount; ++i) {
    client.Start(To(server.Url()), [&](HttpResponse response) {
      if (response.status == 200) ++ok;
      if (--left == 0) all.set_value();
    });
  }
  all.get_future().get();
  EXPECT_EQ(ok, kCount);
  client.Stop();
}

TEST(HttpClient, AKeptConnectionIsNoWayRoundThePolicy) {
  Server server(AnswerAll);
  RealHttpClient client;
  ASSERT_EQ(Call(client, To(server.Url())).status, 200);
  HttpRequest request = To(server.Url());
  request.allow_private = false;
  const HttpResponse response = Call(client, std::move(request));
  EXPECT_EQ(response.failure, HttpFailure::blocked_address);
  EXPECT_EQ(response.failure_message, "refused to call 127.0.0.1");
  client.Stop();
}

TEST(HttpClient, OneDeadlineCoversTheWholeAnswer) {
  for (const bool half : {false, true}) {
    SCOPED_TRACE(half ? "stops in the middle of the body" : "never answers");
    Server server([&](Connection& c) {
      c.ReadRequest();
      if (half) c.Write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
      c.WaitUntilClosed();
    });
    RealHttpClient client;
    HttpRequest request = To(server.Url());
    request.timeout = milliseconds(200);
    const HttpResponse response = Call(client, std::move(request));
    EXPECT_EQ(response.failure, HttpFailure::timeout) << response.failure_message;
    EXPECT_GE(response.took, milliseconds(150));
    client.Stop();
  }
}

TEST(HttpClient, ABrokenAnswerIsAReset) {
  struct Row {
    const char* name;
    const char* bytes;
    bool reset;
  };
  for (const Row& row :
       {Row{"closed without a word", "", false}, Row{"reset without a word", "", true},
        Row{"closed in the headers", "HTTP/1.1 200 OK\r\nContent-Le", false},
        Row{"closed in the body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", false},
        Row{"reset in the body", "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", true},
        Row{"closed in a chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nhalf", false},
        Row{"not HTTP", "SSH-2.0-OpenSSH_9.2\r\nfoo\r\n", false}}) {
    SCOPED_TRACE(row.name);
    Server server([&](Connection& c) {
      c.ReadRequest();
      c.Write(row.bytes);
      if (row.reset) c.Reset();
    });
    RealHttpClient client;
    const HttpResponse response = Call(client, To(server.Url()));
    EXPECT_EQ(response.failure, HttpFailure::reset) << response.failure_message;
    EXPECT_FALSE(response.failure_message.empty());
    client.Stop();
  }
}

TEST(HttpClient, AnEndlessBodyIsCut) {
  Server server([](Connection& c) {
    c.ReadRequest();
    c.Write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (c.Write("400\r\n" + std::string(0x400, 'x') + "\r\n")) {
    }
  });
  RealHttpClient client;
  const HttpResponse response = Call(client, To(server.Url()));
  EXPECT_EQ(response.failure, HttpFailure::answer_too_large) << response.failure_message;
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body.size(), 4U * 1024);
  client.Stop();
}

TEST(HttpClient, TheBodyIsReadUpToItsCapAndKeptUpToItsOwn) {
  for (const auto& [size, failure] : {std::pair(100, HttpFailure::none), {101, HttpFailure::answer_too_large}}) {
    Server server([n = size](Connection& c) {
      c.ReadRequest();
      c.Answer(std::string(static_cast<std::size_t>(n), 'x'));
      c.WaitUntilClosed();
    });
    RealHttpClient client;
    HttpRequest request = To(server.Url());
    request.max_body_bytes = 100;
    request.keep_body_bytes = 10;
    const HttpResponse response = Call(client, std::move(request));
    EXPECT_EQ(response.failure, failure) << size;
    EXPECT_EQ(response.body, "xxxxxxxxxx");
    client.Stop();
  }
}

TEST(HttpClient, EndlessHeadersAreCut) {
  for (const bool interim : {false, true}) {
    SCOPED_TRACE(interim ? "endless 100 Continue" : "endless header lines");
    Server server([&](Connection& c) {
      c.ReadRequest();
      if (!interim) c.Write("HTTP/1.1 200 OK\r\n");
      const std::string more =
          (interim ? "HTTP/1.1 100 Continue\r\nX: " : "X: ") + std::string(500, 'y') + (interim ? "\r\n\r\n" : "\r\n");
      while (c.Write(more)) {
      }
    });
    RealHttpClient client;
    const HttpResponse response = Call(client, To(server.Url()));
    EXPECT_EQ(response.failure, HttpFailure::answer_too_large) << response.failure_message;
    client.Stop();
  }
}

TEST(HttpClient, FollowsNoRedirect) {
  std::atomic<int> requests{0};
  Server server([&](Connection& c) {
    while (!c.ReadRequest().empty()) {
      ++requests;
      c.Write("HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
    }
  });
  RealHttpClient client;
  const HttpResponse response = Call(client, To(server.Url()));
  EXPECT_EQ(response.failure, HttpFailure::none);
  EXPECT_EQ(response.status, 302);
  client.Stop();
  EXPECT_EQ(requests, 1);
}

TEST(HttpClient, EverySpellingOfLoopbackIsRefusedUnlessAllowed) {
  Server server(AnswerAll);
  RealHttpClient client;
  for (const char* host : {"127.0.0.1", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "localhost",
                           "[::ffff:127.0.0.1]", "127.0.0.2"}) {
    SCOPED_TRACE(host);
    HttpRequest request = To(server.Url(host));
    request.allow_private = false;
    const HttpResponse response = Call(client, std::move(request));
    EXPECT_EQ(response.failure, HttpFailure::blocked_address) << response.failure_message;
  }
  EXPECT_EQ(server.accepted(), 0);
  EXPECT_EQ(Call(client, To(server.Url("2130706433"))).status, 200);
  client.Stop();
}

TEST(HttpClient, MetadataAddressesAreRefusedEvenWhenPrivateOnesAreAllowed) {
  RealHttpClient client;
  for (const char* host : {"169.254.169.254", "2852039166", "[::ffff:169.254.169.254]", "[::ffff:a9fe:a9fe]",
                           "100.100.100.200", "0.0.0.0"}) {
    SCOPED_TRACE(host);
    const HttpResponse response = Call(client, To(std::string("http://") + host + "/latest/meta-data"));
    EXPECT_EQ(response.failure, HttpFailure::blocked_address) << response.failure_message;
  }
}

TEST(HttpClient, ProxiesOfTheEnvironmentAreIgnored) {
  Server server(AnswerAll);
  Server proxy(AnswerAll);
  for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) setenv(name, proxy.Url().c_str(), 1);
  RealHttpClient client;
  EXPECT_EQ(Call(client, To(server.Url())).status, 200);
  client.Stop();
  for (const char* name : {"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"}) unsetenv(name);
  EXPECT_EQ(proxy.accepted(), 0);
  EXPECT_EQ(server.accepted(), 1);
}

TEST(HttpClient, OtherProtocolsAndBrokenUrlsAreInvalid) {
  RealHttpClient client;
  for (const char* url :
       {"file:///etc/passwd", "ftp://127.0.0.1/", "http://", "", "http://exa mple/", "nonsense://x"}) {
    EXPECT_EQ(Call(client, To(url)).failure, HttpFailure::invalid_url) << url;
  }
}

TEST(HttpClient, NobodyListening) {
  int port = 0;
  {
    Server server(AnswerAll);
    port = server.port();
  }
  RealHttpClient client;
  EXPECT_EQ(Call(client, To("http://127.0.0.1:" + std::to_string(port))).failure, HttpFailure::connect);
}

TEST(HttpClient, TlsToSomethingThatSpeaksNone) {
  Server server([](Connection& c) {
    c.Write("HTTP/1.1 400 Bad\r\n\r\n");
    c.WaitUntilClosed();
  });
  RealHttpClient client;
  EXPECT_EQ(Call(client, To("https://127.0.0.1:" + std::to_string(server.port()))).failure, HttpFailure::tls);
  client.Stop();
}

TEST(HttpClient, StopFailsWhatIsOutstandingAndWhatComesLater) {
  std::promise<void> arrived;
  Server server([&](Connection& c) {
    c.ReadRequest();
    arrived.set_value();
    c.WaitUntilClosed();
  });
  RealHttpClient client;
  std::promise<HttpResponse> promise;
  client.Start(To(server.Url()), [&](HttpResponse response) { promise.set_value(std::move(response)); });
  arrived.get_future().get();
  client.Stop();
  EXPECT_EQ(promise.get_future().get().failure, HttpFailure::stopped);
  EXPECT_EQ(Call(client, To(server.Url())).failure, HttpFailure::stopped);
  client.Stop();
}

TEST(HttpClient, TheBodyIsHeldUntilTheAnswerAndNotLonger) {
  Server server(AnswerAll);
  RealHttpClient client;
  auto body = std::make_shared<std::string>(100'000, 'x');
  HttpRequest request = To(server.Url());
  request.body = *body;
  request.body_owner = body;
  const std::weak_ptr<std::string> watch = body;
  body.reset();
  EXPECT_EQ(Call(client, std::move(request)).status, 200);
  EXPECT_TRUE(watch.expired());
  client.Stop();
}

}  // namespace
}  // namespace dlo
