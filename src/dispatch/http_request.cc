// The request half of the target protocol.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include "base/time_text.h"
#include "dispatch/http_target.h"

namespace dlo::dispatch {
namespace {

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  }
  return out;
}

bool IsToken(std::string_view name) {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || kOthers.contains(c);
  });
}

// Hop-by-hop fields (RFC 9110, 7.6.1) and those that the client sets for its own connection.
bool IsOfTheConnection(std::string_view lower) {
  static constexpr std::array<std::string_view, 10> kNames = {"connection",        "keep-alive",    "te",   "trailer",
                                                              "transfer-encoding", "upgrade",       "host", "expect",
                                                              "accept-encoding",   "content-length"};
  return std::ranges::find(kNames, lower) != kNames.end() || lower.starts_with("proxy-");
}

// Names under which only we speak: a sender must not be able to forge them.
bool IsOurs(std::string_view lower, bool signing) {
  if (lower.starts_with("dlo-") || lower == "idempotency-key") return true;
  return signing && (lower == "webhook-id" || lower == "webhook-timestamp" || lower == "webhook-signature");
}

// What the received Connection fields name is hop-by-hop as well.
std::vector<std::string> NamedByConnection(const std::vector<Header>& headers) {
  std::vector<std::string> names;
  for (const Header& header : headers) {
    if (Lower(header.name) != "connection") continue;
    const std::string value = Lower(header.value);
    std::size_t at = 0;
    while (at <= value.size()) {
      const std::size_t comma = std::min(value.find(',', at), value.size());
      std::string_view name = std::string_view(value).substr(at, comma - at);
      while (name.starts_with(' ') || name.starts_with('\t')) name.remove_prefix(1);
      while (name.ends_with(' ') || name.ends_with('\t')) name.remove_suffix(1);
      // Nobody may have the type of the body taken away by naming it here.
      if (!name.empty() && name != "content-type") names.emplace_back(name);
      at = comma + 1;
    }
  }
  return names;
}

std::string Escaped(std::string_view value, bool (*escape)(unsigned char)) {
  std::string out;
  out.reserve(value.size());
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    if (escape(byte)) {
      out += fmt::format("%{:02X}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Received values pass as they came; only what would break the framing of the request is encoded.
std::string WithoutControls(std::string_view value) {
  return Escaped(value, [](unsigned char c) { return (c < 0x20 && c != '\t') || c == 0x7f; });
}

}  // namespace

std::string PercentEncode(std::string_view value) {
  std::string out = Escaped(value, [](unsigned char c) { return c < 0x20 || c >= 0x7f || c == '%'; });
  // A space at an end would be trimmed on the way.
  if (out.ends_with(' ')) out.replace(out.size() - 1, 1, "%20");
  if (out.starts_with(' ')) out.replace(0, 1, "%20");
  return out;
}

std::vector<std::string> BuildHeaders(const Delivery& delivery, const intake::Signer* signer, Time now) {
  const Receipt& receipt = *delivery.receipt;
  const std::vector<std::string> named = NamedByConnection(receipt.headers);
  std::vector<std::string> headers;
  headers.reserve(receipt.headers.size() + 16);
  for (const Header& header : receipt.headers) {
    const std::string lower = Lower(header.name);
    if (!IsToken(lower) || IsOfTheConnection(lower) || IsOurs(lower, signer != nullptr)) continue;
    if (std::ranges::find(named, lower) != named.end()) continue;
    headers.push_back(header.name + ": " + WithoutControls(header.value));
  }

  const auto yes = [](bool value) { return value ? "true" : "false"; };
  headers.push_back(fmt::format("Dlo-Event-Id: {}", receipt.id));
  headers.push_back("Dlo-Source: " + PercentEncode(receipt.source));
  headers.push_back("Dlo-Event-Key: " + PercentEncode(receipt.key));
  headers.push_back("Dlo-Kind: " + PercentEncode(receipt.kind));
  headers.push_back(fmt::format("Dlo-Attempt: {}", delivery.attempt));
  headers.push_back(fmt::format("Dlo-Replay: {}", yes(delivery.replay)));
  if (delivery.replay) headers.push_back(fmt::format("Dlo-Replay-Id: {}", delivery.replay_id));
  if (delivery.revision > 0) headers.push_back(fmt::format("Dlo-Revision: {}", delivery.revision));
  headers.push_back("Dlo-Received-At: " + FormatTime(receipt.received_at));
  headers.push_back(
      fmt::format("Dlo-Age-Seconds: {}", std::chrono::duration_cast<std::chrono::seconds>(delivery.age).count()));
  // The sender signed other bytes: a handler that asks for "true" must not take ours for the sender's.
  headers.push_back(
      fmt::format("Dlo-Signature-Verified: {}", delivery.revision > 0 ? "revised" : yes(receipt.verdict.verified)));
  headers.push_back(fmt::format("Dlo-Suppress-Notifications: {}", yes(delivery.suppress_notifications)));
  headers.push_back("Idempotency-Key: " + PercentEncode(delivery.IdempotencyKey()));
  if (signer != nullptr) {
    for (const Header& header : signer->Sign(receipt.body, now, fmt::format("dlo_{}", receipt.id))) {
      headers.push_back(header.name + ": " + header.value);
    }
  }
  return headers;
}

}  // namespace dlo::dispatch
