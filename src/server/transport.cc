// The two kinds of connection, plain and TLS, behind Session's five operations.
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <type_traits>

#include "server/session.h"

namespace dlo::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;
using TlsStream = asio::ssl::stream<tcp::socket>;

template <typename Stream>
class Transport final : public Session {
 public:
  static constexpr bool kTls = std::is_same_v<Stream, TlsStream>;

  template <typename... Args>
  Transport(std::shared_ptr<IoThread> io, std::shared_ptr<Shared> shared, std::string remote, Args&&... args)
      : Session(std::move(io), std::move(shared), std::move(remote)), stream_(std::forward<Args>(args)...) {}

 private:
  std::shared_ptr<Transport> self() { return std::static_pointer_cast<Transport>(shared_from_this()); }

  void StartHandshake() override {
    if constexpr (kTls) {
      stream_.async_handshake(asio::ssl::stream_base::server,
                              [self = self()](ErrorCode error) { self->OnHandshake(!error); });
    } else {
      OnHandshake(true);
    }
  }

  void StartRead(asio::mutable_buffer into) override {
    stream_.async_read_some(into, [self = self()](ErrorCode error, std::size_t n) { self->OnRead(!error, n); });
  }

  void StartWrite(const std::array<asio::const_buffer, 2>& parts) override {
    asio::async_write(stream_, parts, [self = self()](ErrorCode error, std::size_t) { self->OnWritten(!error); });
  }

  void StartShutdown() override {
    if constexpr (kTls) {
      stream_.async_shutdown([self = self()](ErrorCode) { self->OnShutdown(false); });
    } else {
      ErrorCode error;
      stream_.shutdown(tcp::socket::shutdown_send, error);
      OnShutdown(!error);
    }
  }

  void CloseSocket() override {
    ErrorCode ignored;
    stream_.lowest_layer().close(ignored);
  }

  Stream stream_;
};

}  // namespace

std::shared_ptr<Session> MakeSession(tcp::socket socket, asio::ssl::context* tls, std::shared_ptr<IoThread> io,
                                     std::shared_ptr<Shared> shared, std::string remote) {
  if (tls != nullptr) {
    return std::make_shared<Transport<TlsStream>>(std::move(io), std::move(shared), std::move(remote),
                                                  std::move(socket), *tls);
  }
  return std::make_shared<Transport<tcp::socket>>(std::move(io), std::move(shared), std::move(remote),
                                                  std::move(socket));
}

}  // namespace dlo::server
