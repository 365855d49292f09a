#include "server/auth.h"

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "env/random.h"
#include "server/answer.h"

namespace dlo::server {
namespace {

constexpr std::size_t kMaxAddresses = 10'000;
constexpr Duration kMinute = std::chrono::minutes(1);
constexpr std::array<std::string_view, 3> kRoles = {"viewer", "operator", "admin"};

Response Unauthorized(std::string_view detail) {
  Response response = Problem(401, "unauthorized", detail);
  response.headers.push_back({"WWW-Authenticate", "Bearer realm=\"dlo\""});
  return response;
}

}  // namespace

std::string_view Name(Role role) {
  return kRoles.at(static_cast<std::size_t>(role) - 1);
}

std::optional<Role> RoleByName(std::string_view name) {
  for (const Role role : {Role::viewer, Role::operator_, Role::admin}) {
    if (Name(role) == name) return role;
  }
  return std::nullopt;
}

std::string MakeToken() {
  std::array<unsigned char, 32> bytes{};
  FillWithSecretBytes(bytes);
  std::string text = Base64Encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  text.resize(43);  // without the padding
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return "dlo_" + text;
}

std::string HashToken(std::string_view token) {
  return HexEncode(Sha256(token));
}

Authenticator::Authenticator(store::Access& access, Clock& clock, std::string_view bootstrap, int bad_per_minute)
    : access_(access),
      clock_(clock),
      bootstrap_hash_(bootstrap.empty() ? std::string() : HashToken(bootstrap)),
      bad_per_minute_(bad_per_minute) {}

Result<void> Authenticator::Refresh() {
  const auto tokens = access_.Tokens();
  if (!tokens) return std::unexpected(tokens.error());
  std::unordered_map<std::string, Identity> by_hash;
  for (const store::Token& token : *tokens) {
    const auto role = RoleByName(token.role);
    if (!token.revoked_at && role) by_hash[token.hash] = {token.name, *role};
  }
  const std::lock_guard lock(mutex_);
  by_hash_ = std::move(by_hash);
  return {};
}

std::expected<Identity, Response> Authenticator::Identify(const RequestHead& head) {
  const auto header = head.Find("Authorization");
  static constexpr std::string_view kScheme = "bearer ";
  const bool bearer = header && header->size() > kScheme.size() &&
                      std::ranges::equal(header->substr(0, kScheme.size()), kScheme, {}, [](char c) {
                        return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
                      });
  if (!bearer) {
    return std::unexpected(Unauthorized("This needs `Authorization: Bearer <token>`; `dlo token create` makes one."));
  }
  // Looking up a hash tells an attacker who times it nothing about a token.
  const std::string hash = HashToken(header->substr(kScheme.size()));
  const std::lock_guard lock(mutex_);
  if (!bootstrap_hash_.empty() && hash == bootstrap_hash_) return Identity{"bootstrap", Role::admin};
  if (const auto known = by_hash_.find(hash); known != by_hash_.end()) return known->second;
  if (const Duration wait = WaitOf(head.remote); wait > Duration(0)) {
    Response response = Problem(429, "too_many_bad_tokens", "Too many unknown tokens came from this address.");
    response.headers.push_back({"Retry-After", std::to_string(std::chrono::ceil<std::chrono::seconds>(wait).count())});
    return std::unexpected(std::move(response));
  }
  return std::unexpected(Unauthorized("The token is unknown or revoked."));
}

Duration Authenticator::WaitOf(const std::string& address) {
  const Duration now = clock_.Monotonic();
  if (guesses_.size() >= kMaxAddresses) {
    std::erase_if(guesses_, [now](const auto& entry) { return now - entry.second.since >= kMinute; });
    if (guesses_.size() >= kMaxAddresses && !guesses_.contains(address)) return kMinute;
  }
  Guesses& guesses = guesses_[address];
  if (guesses.count == 0 || now - guesses.since >= kMinute) guesses = {now, 0};
  if (guesses.count >= bad_per_minute_) return guesses.since + kMinute - now;
  ++guesses.count;
  return Duration(0);
}

}  // namespace dlo::server
