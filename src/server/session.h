// One connection: reads a head, lets the handler judge it, reads the body, hands both over, writes the answer, goes on.
// Requests of one connection are handled one after the other, so pipelined answers come in order. Everything but
// Complete and Release runs on the connection's own I/O thread.
#pragma once

#include <array>
#include <atomic>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "env/clock.h"
#include "server/head.h"
#include "server/http_server.h"

namespace dlo::server {

class Session;

/// Who is connected: the caps, and the wait for the last one to go.
class Connections {
 public:
  Connections(int max, int max_per_address) : max_(max), max_per_address_(max_per_address) {}
  /// False: over a cap, nothing was counted.
  bool Enter(const std::string& address, bool loopback);
  void Leave(const std::string& address);
  [[nodiscard]] int count() const;
  bool WaitUntilNone(Duration at_most);

 private:
  const int max_, max_per_address_;
  mutable std::mutex mutex_;
  std::condition_variable none_;
  int count_ = 0;
  std::unordered_map<std::string, int> by_address_;
};

/// What all connections of a server share.
struct Shared {
  Shared(HttpOptions o, Clock& c)
      : options(std::move(o)), clock(c), connections(options.max_connections, options.max_connections_per_address) {}
  const HttpOptions options;
  Clock& clock;
  Handler* handler = nullptr;
  bool listens_on_loopback = false;
  Connections connections;
  std::atomic<std::size_t> body_bytes{0};
};

/// An event loop, its thread and its connections.
class IoThread {
 public:
  explicit IoThread(Clock& clock, Duration tick);
  void Run();  // starts the thread
  /// Idle connections are closed, others after their answer.
  void Drain();
  /// Closes what is left and ends the thread. Later answers are dropped.
  void Stop();
  /// From other threads: many answers that come together cost one wake-up.
  void Post(std::shared_ptr<Session> session, std::uint64_t exchange, Response response);
  [[nodiscard]] bool IsCurrent() const { return std::this_thread::get_id() == id_; }

  boost::asio::io_context context{1};
  /// Owned: an answer that comes while the thread stops must not be the last to hold its session.
  std::unordered_set<std::shared_ptr<Session>> sessions;
  Duration now{};    // monotonic, as of the last tick
  std::string date;  // for answers, as of the last tick
  bool draining = false;
  bool closing = false;  // nothing may start any more

 private:
  struct Answer {
    std::shared_ptr<Session> session;
    std::uint64_t exchange;
    Response response;
  };
  void Tick();
  void Wait();
  void Deliver();

  Clock& clock_;
  const Duration tick_length_;
  boost::asio::steady_timer tick_{context};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_{context.get_executor()};
  std::thread thread_;
  std::thread::id id_;
  std::mutex mutex_;
  std::vector<Answer> answers_;
  bool stopped_ = false;
};

class Session : public ResponseSink, public std::enable_shared_from_this<Session> {
 public:
  Session(std::shared_ptr<IoThread> io, std::shared_ptr<Shared> shared, std::string remote);
  ~Session() override;
  void Start();
  void Complete(std::uint64_t exchange, Response response) override;
  void Release(std::size_t body_bytes) override;
  void OnAnswer(std::uint64_t exchange, Response response);
  void Drain();
  void Close();
  void OnTick();

 protected:
  // What differs between plain and TLS connections.
  virtual void StartHandshake() = 0;                                                   // then OnHandshake
  virtual void StartRead(boost::asio::mutable_buffer into) = 0;                        // then OnRead
  virtual void StartWrite(const std::array<boost::asio::const_buffer, 2>& parts) = 0;  // then OnWritten
  virtual void StartShutdown() = 0;  // tells the peer that no more comes; then OnShutdown
  virtual void CloseSocket() = 0;

  void OnHandshake(bool ok);
  void OnRead(bool ok, std::size_t n);
  void OnWritten(bool ok);
  void OnShutdown(bool can_linger);

 private:
  enum class Phase : unsigned char { handshake, idle, head, body, handling, writing, lingering, closed };

  void Next();
  void ReadMore();
  void ReadHead();
  void OnHead(std::string_view raw);
  bool Admit();
  void Refuse(Response response);
  [[nodiscard]] bool TooSlow() const;  // the body
  bool Reserve(std::size_t bytes);
  void ReadBody();
  void ReadChunks();
  void Dispatch();
  void Write(Response response);
  [[nodiscard]] std::string_view buffered() const { return {in_.data() + begin_, end_ - begin_}; }
  void SetDeadline(Duration from_now) { deadline_ = io_->now + from_now; }

  const std::shared_ptr<IoThread> io_;  // first, so that a socket goes before its event loop
  const std::shared_ptr<Shared> shared_;
  const std::string remote_;
  Phase phase_ = Phase::handshake;
  Duration deadline_{};
  bool first_ = true;       // no request was read yet
  bool close_ = false;      // after the current answer
  bool head_only_ = false;  // the request is HEAD
  std::vector<char> in_;
  std::size_t begin_ = 0, end_ = 0;
  HeadScanner scanner_;
  RequestHead head_;
  Framing framing_;
  Admission admission_;
  ChunkDecoder chunks_{0};
  std::string body_;
  std::size_t filled_ = 0;  // of body_, for a declared length
  Duration body_began_{};
  int requests_ = 0;          // answered
  std::size_t reserved_ = 0;  // of the shared budget, not yet handed to a Responder
  std::size_t discarded_ = 0;
  bool interim_ = false;  // "100 Continue" is being written
  std::uint64_t exchange_ = 0;
  std::string out_;
  Response answer_;  // keeps a large body while it is written
};

std::shared_ptr<Session> MakeSession(boost::asio::ip::tcp::socket socket, boost::asio::ssl::context* tls,
                                     std::shared_ptr<IoThread> io, std::shared_ptr<Shared> shared, std::string remote);

}  // namespace dlo::server
