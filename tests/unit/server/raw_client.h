// A client that sends exactly the bytes it is given.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <string_view>

namespace dlo::testing {

class RawClient {
 public:
  explicit RawClient(int port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    const timeval limit{.tv_sec = 10, .tv_usec = 0};  // a test that would hang fails instead
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }
  ~RawClient() { ::close(fd_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  void FinishSending() { ::shutdown(fd_, SHUT_WR); }

  /// Reads until `text` was seen or the server closed.
  const std::string& ReadUntil(std::string_view text) {
    while (received_.find(text) == std::string::npos && ReadSome()) {
    }
    return received_;
  }
  /// Reads until the server closes; `closed` tells whether it did.
  const std::string& ReadAll() {
    while (ReadSome()) {
    }
    return received_;
  }
  [[nodiscard]] bool closed() const { return closed_; }
  [[nodiscard]] const std::string& received() const { return received_; }
  /// Of the first answer; 0 if there is none.
  [[nodiscard]] int status() const {
    return received_.starts_with("HTTP/1.1 ") && received_.size() > 12 ? std::stoi(received_.substr(9, 3)) : 0;
  }

 private:
  bool ReadSome() {
    char buffer[16384];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    if (n > 0) {
      received_.append(buffer, static_cast<std::size_t>(n));
      return true;
    }
    closed_ = n == 0 || errno == ECONNRESET;
    return false;
  }

  int fd_;
  bool connected_ = false, closed_ = false;
  std::string received_;
};

inline int CountOf(std::string_view text, std::string_view part) {
  int n = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string_view::npos; at += part.size()) ++n;
  return n;
}

}  // namespace dlo::testing
