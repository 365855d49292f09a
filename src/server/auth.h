// Who asks: bearer tokens and roles.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dlo/result.h"
#include "env/clock.h"
#include "server/http_server.h"
#include "store/access.h"

namespace dlo::server {

enum class Role : unsigned char { viewer = 1, operator_ = 2, admin = 3 };
[[nodiscard]] std::string_view Name(Role role);
[[nodiscard]] std::optional<Role> RoleByName(std::string_view name);

struct Identity {
  std::string name;
  Role role = Role::viewer;
};

/// "dlo_" and 43 characters of base64url: 256 random bits.
[[nodiscard]] std::string MakeToken();
/// SHA-256, hex: what is stored of a token.
[[nodiscard]] std::string HashToken(std::string_view token);

/// Thread-safe; Identify never blocks on the store. Tokens are kept as hashes in memory, read anew by Refresh after
/// each change, so a revoked one is refused at once.
class Authenticator {
 public:
  /// `bootstrap`: a token from the environment, role admin, for the first start; empty = none. `bad_per_minute` unknown
  /// tokens may come from one address.
  Authenticator(store::Access& access, Clock& clock, std::string_view bootstrap, int bad_per_minute);
  Result<void> Refresh();

  /// Who the bearer token names; else the answer: 401, or 429 until the minute is over once too many unknown tokens
  /// came from that address. A known token is taken all the same: it has 256 bits, and a noisy neighbour behind the
  /// same proxy must not lock people out.
  std::expected<Identity, Response> Identify(const RequestHead& head);

 private:
  /// How long the address must wait; 0 = it may be told that the token is unknown.
  Duration WaitOf(const std::string& address);

  store::Access& access_;
  Clock& clock_;
  const std::string bootstrap_hash_;
  const int bad_per_minute_;
  std::mutex mutex_;
  std::unordered_map<std::string, Identity> by_hash_;
  struct Guesses {
    Duration since{};
    int count = 0;
  };
  std::unordered_map<std::string, Guesses> guesses_;
};

}  // namespace dlo::server
