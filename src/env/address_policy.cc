#include "env/address_policy.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string_view>

namespace dlo {
namespace {

using Bytes16 = std::array<unsigned char, 16>;

struct Net4 {
  std::uint32_t address;
  int bits;
  AddressKind kind;
};

constexpr std::uint32_t Ip4(std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  return (a << 24) | (b << 16) | (c << 8) | d;
}

// IANA's IPv4 special-purpose registry; the first that matches counts. 100.100.100.200, 192.0.0.192 and 168.63.129.16
// are metadata services of clouds that do not use 169.254/16.
constexpr auto kNever = AddressKind::never_allowed;
constexpr auto kLocal = AddressKind::local;
constexpr Net4 kNets4[] = {
    {Ip4(100, 100, 100, 200), 32, kNever}, {Ip4(168, 63, 129, 16), 32, kNever}, {Ip4(0, 0, 0, 0), 8, kNever},
    {Ip4(169, 254, 0, 0), 16, kNever},     {Ip4(192, 0, 0, 0), 24, kNever},     {Ip4(192, 0, 2, 0), 24, kNever},
    {Ip4(192, 88, 99, 0), 24, kNever},     {Ip4(198, 18, 0, 0), 15, kNever},    {Ip4(198, 51, 100, 0), 24, kNever},
    {Ip4(203, 0, 113, 0), 24, kNever},     {Ip4(224, 0, 0, 0), 3, kNever},      {Ip4(10, 0, 0, 0), 8, kLocal},
    {Ip4(100, 64, 0, 0), 10, kLocal},      {Ip4(127, 0, 0, 0), 8, kLocal},      {Ip4(172, 16, 0, 0), 12, kLocal},
    {Ip4(192, 168, 0, 0), 16, kLocal},
};

AddressKind Classify4(std::uint32_t address) {
  for (const Net4& net : kNets4) {
    if ((address ^ net.address) >> (32 - net.bits) == 0) return net.kind;
  }
  return AddressKind::global;
}

bool Within(const Bytes16& address, const Bytes16& net, int bits) {
  const auto whole = static_cast<std::size_t>(bits / 8);
  if (!std::equal(address.begin(), address.begin() + whole, net.begin())) return false;
  const int rest = bits % 8;
  return rest == 0 || ((address[whole] ^ net[whole]) >> (8 - rest)) == 0;
}

struct Net6 {
  Bytes16 address;
  int bits;
};

// Parts of 2000::/3 that are not the public Internet: 2001::/23 (Teredo, ORCHID), documentation, 6to4.
constexpr Net6 kNotGlobal6[] = {
    {{0x20, 0x01}, 23}, {{0x20, 0x01, 0x0d, 0xb8}, 32}, {{0x20, 0x02}, 16}, {{0x3f, 0xff}, 20}};
// Metadata services inside fc00::/7: fd00:ec2::254 and fd20:ce::254.
constexpr Net6 kMetadata6[] = {{{0xfd, 0x00, 0x0e, 0xc2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128},
                               {{0xfd, 0x20, 0x00, 0xce, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x02, 0x54}, 128}};
constexpr Net6 kMapped = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, 96};
constexpr Net6 kNat64 = {{0x00, 0x64, 0xff, 0x9b}, 96};
constexpr Net6 kLoopback6 = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, 128};
constexpr Net6 kUniqueLocal = {{0xfc}, 7};
constexpr Net6 kGlobal6 = {{0x20}, 3};

AddressKind Classify6(const Bytes16& a) {
  const auto in = [&a](const Net6& net) { return Within(a, net.address, net.bits); };
  if (in(kMapped) || in(kNat64)) return Classify4(Ip4(a[12], a[13], a[14], a[15]));
  if (std::ranges::any_of(kMetadata6, in)) return kNever;
  if (in(kLoopback6) || in(kUniqueLocal)) return kLocal;
  if (!in(kGlobal6) || std::ranges::any_of(kNotGlobal6, in)) return kNever;
  return AddressKind::global;
}

struct UrlCloser {
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};

std::string Part(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, 0) != CURLUE_OK) return {};
  std::string out(text);
  curl_free(text);
  return out;
}

// The curl parser has already turned decimal, hexadecimal and octal forms into dotted ones.
bool IsNeverAllowedLiteral(std::string host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  sockaddr_storage storage{};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    storage.ss_family = AF_INET;
  } else if (inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    storage.ss_family = AF_INET6;
  } else {
    return false;
  }
  return Classify(reinterpret_cast<const sockaddr&>(storage)) == kNever;
}

}  // namespace

AddressKind Classify(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return Classify4(ntohl(in.sin_addr.s_addr));
  }
  if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    Bytes16 bytes{};
    std::memcpy(bytes.data(), &in.sin6_addr, bytes.size());
    return Classify6(bytes);
  }
  return kNever;
}

bool MayDial(const sockaddr& address, bool allow_private) {
  const AddressKind kind = Classify(address);
  return kind == AddressKind::global || (kind == AddressKind::local && allow_private);
}

std::string AddressText(const sockaddr& address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET, &in.sin_addr, text.data(), text.size());
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    inet_ntop(AF_INET6, &in.sin6_addr, text.data(), text.size());
  } else {
    return "not an IP address";
  }
  return text.data();
}

Result<void> CheckTargetUrl(const std::string& url) {
  const auto wrong = [](std::string why) { return Fail(ErrorKind::invalid, "url", std::move(why)); };
  if (std::ranges::any_of(url, [](char c) { return static_cast<unsigned char>(c) <= 0x20 || c == 0x7f; })) {
    return wrong("has a space or a control character; percent-encode it");
  }
  const std::unique_ptr<CURLU, UrlCloser> parsed(curl_url());
  if (!parsed || curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) != CURLUE_OK) {
    return wrong("is not a URL; write it whole, as in \"https://billing.example.com/webhooks\"");
  }
  const std::string scheme = Part(parsed.get(), CURLUPART_SCHEME);
  if (scheme != "http" && scheme != "https") return wrong("must begin with http:// or https://");
  const std::string host = Part(parsed.get(), CURLUPART_HOST);
  // The parser forgives a third slash and takes the path for the host.
  if (host.empty() || url.find(":///") != std::string::npos) return wrong("names no host");
  if (!Part(parsed.get(), CURLUPART_USER).empty() || !Part(parsed.get(), CURLUPART_PASSWORD).empty()) {
    return wrong("holds a user name or password; leave it out and set signing_secret, which the handler can verify");
  }
  if (IsNeverAllowedLiteral(host)) {
    return wrong("is at " + host + ", an address that is never called (metadata, link-local or reserved)");
  }
  return {};
}

}  // namespace dlo
