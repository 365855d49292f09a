// Which addresses we may call. Judged on the address that is dialled, after name resolution: a name, a redirect or an
// odd spelling of a number cannot get round it.
#pragma once

#include <sys/socket.h>

#include <string>

#include "dlo/result.h"

namespace dlo {

enum class AddressKind : unsigned char {
  global,         // on the public Internet
  local,          // loopback and private networks: only where the target says allow_private
  never_allowed,  // cloud metadata, link-local, multicast, documentation, reserved, and tunnels that hide an address
};

/// `address` must be as long as its family says. An IPv4 address inside an IPv6 one (mapped, or 64:ff9b::/96 of NAT64)
/// is judged as the IPv4 address. Families other than IPv4 and IPv6 are never allowed.
[[nodiscard]] AddressKind Classify(const sockaddr& address);
[[nodiscard]] bool MayDial(const sockaddr& address, bool allow_private);
/// "127.0.0.1" or "::1"; for messages.
[[nodiscard]] std::string AddressText(const sockaddr& address);

/// The rules for a configured URL: http or https, a host, no user name or password (they would end up in messages), no
/// spaces or controls, and no literal address that is never allowed. Error invalid, code "url"; the message says what
/// to write instead.
[[nodiscard]] Result<void> CheckTargetUrl(const std::string& url);

}  // namespace dlo
