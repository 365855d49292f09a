#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "raw_client.h"
#include "server/http_server.h"

namespace dlo::server {
namespace {

template <auto Free>
struct With {
  template <typename T>
  void operator()(T* object) const {
    Free(object);
  }
};

/// A self-signed certificate and its key, in files that go with the test.
class Certificate {
 public:
  Certificate() {
    std::string pattern = (std::filesystem::temp_directory_path() / "dlo-tls-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const std::unique_ptr<EVP_PKEY, With<EVP_PKEY_free>> key(EVP_EC_gen("P-256"));
    const std::unique_ptr<X509, With<X509_free>> x509(X509_new());
    ASN1_INTEGER_set(X509_get_serialNumber(x509.get()), 1);
    X509_gmtime_adj(X509_getm_notBefore(x509.get()), 0);
    X509_gmtime_adj(X509_getm_notAfter(x509.get()), 3600);
    X509_set_pubkey(x509.get(), key.get());
    X509_sign(x509.get(), key.get(), EVP_sha256());
    const std::unique_ptr<FILE, With<fclose>> cert_file(fopen(cert().c_str(), "w"));
    PEM_write_X509(cert_file.get(), x509.get());
    const std::unique_ptr<FILE, With<fclose>> key_file(fopen(this->key().c_str(), "w"));
    PEM_write_PrivateKey(key_file.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  }
  ~Certificate() { std::filesystem::remove_all(folder_); }
  Certificate(const Certificate&) = delete;
  Certificate& operator=(const Certificate&) = delete;
  [[nodiscard]] std::string cert() const { return folder_ + "/cert.pem"; }
  [[nodiscard]] std::string key() const { return folder_ + "/key.pem"; }

 private:
  std::string folder_;
};

/// Sends one request over TLS of at most that version; "" when the handshake is refused.
std::string AskOverTls(int port, int max_version, const std::string& request) {
  const std::unique_ptr<SSL_CTX, With<SSL_CTX_free>> context(SSL_CTX_new(TLS_client_method()));
  SSL_CTX_set_max_proto_version(context.get(), max_version);
  SSL_CTX_set_security_level(context.get(), 0);  // so that the server decides
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string got;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::unique_ptr<SSL, With<SSL_free>> ssl(SSL_new(context.get()));
    SSL_set_fd(ssl.get(), fd);
    if (SSL_connect(ssl.get()) == 1) {
      SSL_write(ssl.get(), request.data(), static_cast<int>(request.size()));
      char buffer[4096];
      for (int n; (n = SSL_read(ssl.get(), buffer, sizeof buffer)) > 0;)
        got.append(buffer, static_cast<std::size_t>(n));
    }
  }
  close(fd);
  return got;
}

class Hello final : public Handler {
 public:
  void Handle(RequestHead, std::string body, Responder respond) override { respond({.body = "hello " + body}); }
};

TEST(Tls, AHandshakeThatStandsStillIsCut) {
  const Certificate certificate;
  RealClock clock;
  Hello hello;
  HttpServer server({.threads = 1,
                     .handshake_deadline = std::chrono::milliseconds(100),
                     .tick = std::chrono::milliseconds(5),
                     .tls_cert = certificate.cert(),
                     .tls_key = certificate.key()},
                    clock);
  ASSERT_TRUE(server.Start("127.0.0.1:0", hello));
  testing::RawClient client(server.port());
  client.Send("\x16\x03\x01");  // a hello begins so
  client.ReadAll();
  EXPECT_TRUE(client.closed());
}

TEST(Tls, ServesTls12AndLaterOnly) {
  const Certificate certificate;
  RealClock clock;
  Hello hello;
  HttpServer server({.threads = 1, .tls_cert = certificate.cert(), .tls_key = certificate.key()}, clock);
  const auto started = server.Start("127.0.0.1:0", hello);
  ASSERT_TRUE(started) << started.error().message;
  const std::string request = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nworld";
  EXPECT_THAT(AskOverTls(server.port(), TLS1_3_VERSION, request), ::testing::HasSubstr("hello world"));
  EXPECT_THAT(AskOverTls(server.port(), TLS1_2_VERSION, request), ::testing::HasSubstr("hello world"));
  EXPECT_EQ(AskOverTls(server.port(), TLS1_1_VERSION, request), "");
}

}  // namespace
}  // namespace dlo::server
