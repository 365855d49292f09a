// A small strict HTTP/1.1 server: listener, connections, limits and deadlines. It knows nothing of events or routes; a
// Handler does. Used by `dlo serve`, by the sample handler and by the benchmarks.
//
// Threads: one event loop per I/O thread; a connection stays on the thread it was given to, so its state needs no lock.
// A Handler is called on I/O threads and must not block; it answers through its Responder, from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "dlo/time.h"
#include "env/clock.h"

namespace dlo::server {

/// The head of a request whose syntax and framing were checked. Names and values are as received, in their order.
struct RequestHead {
  std::string method;  // "POST"
  std::string target;  // "/v1/dead-letters?type=invoice.paid"
  std::vector<Header> headers;
  std::string remote;                // address of the peer, without port
  bool listens_on_loopback = false;  // the server is reachable from this machine only
  const void* route = nullptr;       // for the Handler: set in Begin, read in Handle

  [[nodiscard]] std::string_view path() const;
  [[nodiscard]] std::string_view query() const;  // without "?"
  /// First header of that name, any case.
  [[nodiscard]] std::optional<std::string_view> Find(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<Header> headers;  // beyond Content-Type, Content-Length, Date, Connection
  bool close = false;           // close the connection after this answer
};

/// Where an answer goes. Implemented by connections, and by tests.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  /// From any thread. An answer to an exchange that is over (its deadline passed, the peer went) is dropped.
  virtual void Complete(std::uint64_t exchange, Response response) = 0;
  /// The request's body is not in memory any more.
  virtual void Release(std::size_t body_bytes) = 0;
};

/// The right, and the duty, to answer one request once. One that is dropped unused answers 500.
class Responder {
 public:
  Responder(std::shared_ptr<ResponseSink> sink, std::uint64_t exchange, std::size_t body_bytes)
      : sink_(std::move(sink)), exchange_(exchange), body_bytes_(body_bytes) {}
  Responder(Responder&& other) noexcept = default;
  Responder& operator=(Responder&&) = delete;
  Responder(const Responder&) = delete;
  ~Responder();
  void operator()(Response response);

 private:
  std::shared_ptr<ResponseSink> sink_;
  std::uint64_t exchange_;
  std::size_t body_bytes_;
};

/// What the body of an admitted request may be, and how long its answer may take.
struct Admission {
  std::size_t max_body = std::size_t{1} << 20;
  std::optional<Duration> answer_within;  // then `late` is answered, whatever the handler says afterwards
};

class Handler {
 public:
  virtual ~Handler() = default;
  /// Judges the head before any of the body is read. A refusal with a body still to come closes the connection.
  virtual std::expected<Admission, Response> Begin(RequestHead& head) {
    (void)head;
    return Admission{};
  }
  virtual void Handle(RequestHead head, std::string body, Responder respond) = 0;
};

/// How large the head of a request may be.
struct HeadLimits {
  std::size_t request_line = 8 * 1024;
  std::size_t header_bytes = 16 * 1024;  // all fields together
  int header_fields = 100;
};

struct HttpOptions {
  int threads = 0;  // 0 = min(cores, 4)
  int max_connections = 1024;
  int max_connections_per_address = 64;  // loopback is exempt
  int max_requests = 1'000;              // of one connection; the last answer closes it
  HeadLimits head;
  std::size_t body_bytes = std::size_t{64} << 20;  // of all requests that are not answered
  Duration handshake_deadline = std::chrono::seconds(10);
  Duration head_deadline = std::chrono::seconds(10);
  Duration body_deadline = std::chrono::seconds(30);
  Duration body_grace = std::chrono::seconds(5);  // from then on a body comes at body_rate at least
  std::size_t body_rate = 1'024;                  // bytes per second since the head
  Duration idle_deadline = std::chrono::seconds(75);
  Duration write_deadline = std::chrono::seconds(10);  // and 1 s more for each 64 KiB
  Duration tick = std::chrono::milliseconds(100);      // how exactly deadlines are kept
  std::string tls_cert, tls_key;                       // PEM files; both or none. TLS 1.2 and later
};

class HttpServer {
 public:
  HttpServer(HttpOptions options, Clock& clock);
  ~HttpServer();

  /// Listens on "host:port" ("[::1]:8686"; port 0 = any free one) and starts the threads. `handler` outlives Stop.
  Result<void> Start(const std::string& listen, Handler& handler);
  /// Stops listening, closes idle connections, gives running requests up to `grace`, then closes them. Idempotent. A
  /// Responder that is used later does no harm.
  void Stop(Duration grace = std::chrono::seconds(5));
  [[nodiscard]] int port() const;
  [[nodiscard]] int connections() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace dlo::server
