#include "server/http_server.h"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <functional>

#include "base/log.h"
#include "server/answer.h"
#include "server/session.h"

namespace dlo::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};  // after running out of descriptors

struct Place {
  std::string host, port;
};

std::optional<Place> SplitListen(std::string_view listen) {
  const std::size_t colon = listen.rfind(':');
  if (colon == std::string_view::npos || colon == 0 || colon + 1 == listen.size()) return std::nullopt;
  std::string_view host = listen.substr(0, colon);
  const std::string_view port = listen.substr(colon + 1);
  if (host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number > 65535) return std::nullopt;
  return Place{std::string(host), std::string(port)};
}

Result<std::unique_ptr<asio::ssl::context>> MakeTls(const HttpOptions& options) {
  using Tls = asio::ssl::context;
  auto tls = std::make_unique<Tls>(Tls::tls_server);
  ErrorCode error;
  tls->set_options(
      Tls::default_workarounds | Tls::no_sslv2 | Tls::no_sslv3 | Tls::no_tlsv1 | Tls::no_tlsv1_1 | Tls::single_dh_use,
      error);
  if (!error) tls->use_certificate_chain_file(options.tls_cert, error);
  if (error) {
    return Fail(ErrorKind::invalid, "tls_cert", "tls_cert " + options.tls_cert + " cannot be used: " + error.message());
  }
  tls->use_private_key_file(options.tls_key, Tls::pem, error);
  if (error) {
    return Fail(ErrorKind::invalid, "tls_key", "tls_key " + options.tls_key + " cannot be used: " + error.message());
  }
  return tls;
}

}  // namespace

std::string_view RequestHead::path() const {
  const std::string_view t = target;
  return t.substr(0, t.find('?'));
}

std::string_view RequestHead::query() const {
  const std::string_view t = target;
  const std::size_t mark = t.find('?');
  return mark == std::string_view::npos ? std::string_view() : t.substr(mark + 1);
}

std::optional<std::string_view> RequestHead::Find(std::string_view name) const {
  for (const Header& h : headers) {
    if (boost::beast::iequals(h.name, {name.data(), name.size()})) return h.value;
  }
  return std::nullopt;
}

Responder::~Responder() {
  if (sink_ != nullptr) (*this)(Refusal(500));
}

void Responder::operator()(Response response) {
  const std::shared_ptr<ResponseSink> sink = std::move(sink_);
  sink_ = nullptr;
  sink->Release(body_bytes_);
  sink->Complete(exchange_, std::move(response));
}

struct HttpServer::State {
  State(HttpOptions options, Clock& clock) : shared(std::make_shared<Shared>(std::move(options), clock)) {}

  Result<void> Listen(const std::string& listen);
  void Accept();
  void OnAccept(ErrorCode error, tcp::socket socket, const std::shared_ptr<IoThread>& io);

  std::shared_ptr<Shared> shared;
  std::vector<std::shared_ptr<IoThread>> threads;
  std::unique_ptr<asio::ssl::context> tls;
  std::optional<tcp::acceptor> acceptor;           // lives on threads[0]
  std::optional<asio::steady_timer> accept_pause;  // likewise
  std::size_t next = 0;
  int port = 0;
};

HttpServer::HttpServer(HttpOptions options, Clock& clock)
    : state_(std::make_unique<State>(std::move(options), clock)) {}

// Posting to the threads can run out of memory, which ends the process, here as anywhere.
// NOLINTNEXTLINE(bugprone-exception-escape)
HttpServer::~HttpServer() {
  Stop(Duration(0));
}

Result<void> HttpServer::State::Listen(const std::string& listen) {
  const auto place = SplitListen(listen);
  if (!place) {
    return Fail(ErrorKind::invalid, "listen", "listen = \"" + listen + "\" is not host:port, such as 127.0.0.1:8686");
  }
  asio::io_context& context = threads.front()->context;
  ErrorCode error;
  const auto found = tcp::resolver(context).resolve(place->host, place->port, tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Fail(ErrorKind::invalid, "listen", "listen: " + place->host + " is no address of this machine");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.emplace(context);
  acceptor->open(endpoint.protocol(), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  if (error) {
    return Fail(
        ErrorKind::unavailable, "listen",
        "cannot listen on " + listen + ": " + error.message() + ". Choose another `listen` or stop what uses it.");
  }
  port = acceptor->local_endpoint().port();
  shared->listens_on_loopback = endpoint.address().is_loopback();
  return {};
}

void HttpServer::State::Accept() {
  const std::shared_ptr<IoThread> io = threads[next++ % threads.size()];
  acceptor->async_accept(io->context,
                         [this, io](ErrorCode error, tcp::socket socket) { OnAccept(error, std::move(socket), io); });
}

void HttpServer::State::OnAccept(ErrorCode error, tcp::socket socket, const std::shared_ptr<IoThread>& io) {
  if (!acceptor->is_open()) return;
  if (error) {
    // Out of descriptors, or the peer went before we looked. Spinning would not help either.
    log::Warn("accept_failed", {{"error", error.message()}});
    accept_pause->expires_after(kAcceptPause);
    accept_pause->async_wait([this](ErrorCode stopped) {
      if (!stopped && acceptor->is_open()) Accept();
    });
    return;
  }
  ErrorCode gone;
  const tcp::endpoint peer = socket.remote_endpoint(gone);
  if (!gone) {
    const std::string address = peer.address().to_string();
    if (shared->connections.Enter(address, peer.address().is_loopback())) {
      socket.set_option(tcp::no_delay(true), gone);
      auto session = MakeSession(std::move(socket), tls.get(), io, shared, address);
      asio::post(io->context, [session] { session->Start(); });
    }
  }
  Accept();
}

Result<void> HttpServer::Start(const std::string& listen, Handler& handler) {
  State& s = *state_;
  const HttpOptions& options = s.shared->options;
  s.shared->handler = &handler;
  if (options.tls_cert.empty() != options.tls_key.empty()) {
    return Fail(ErrorKind::invalid, "tls", "tls_cert and tls_key go together: set both or none");
  }
  if (!options.tls_cert.empty()) {
    auto tls = MakeTls(options);
    if (!tls) return std::unexpected(tls.error());
    s.tls = std::move(*tls);
  }
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const int threads = options.threads > 0 ? options.threads : std::min(cores, 4);
  for (int i = 0; i < threads; ++i) {
    s.threads.push_back(std::make_shared<IoThread>(s.shared->clock, options.tick));
  }
  if (auto listening = s.Listen(listen); !listening) {
    s.acceptor.reset();
    s.threads.clear();
    return listening;
  }
  s.accept_pause.emplace(s.threads.front()->context);
  s.Accept();
  for (const auto& io : s.threads) io->Run();
  return {};
}

void HttpServer::Stop(Duration grace) {
  State& s = *state_;
  if (s.threads.empty()) return;
  asio::post(s.threads.front()->context, [&s] {
    ErrorCode ignored;
    s.acceptor->close(ignored);
    s.accept_pause->cancel();
  });
  for (const auto& io : s.threads) io->Drain();
  if (grace > Duration(0)) s.shared->connections.WaitUntilNone(grace);
  for (const auto& io : s.threads) io->Stop();
  s.accept_pause.reset();
  s.acceptor.reset();
  s.threads.clear();
}

int HttpServer::port() const {
  return state_->port;
}

int HttpServer::connections() const {
  return state_->shared->connections.count();
}

}  // namespace dlo::server
