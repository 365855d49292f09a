// Hex, base64, digests and clean text.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace dlo {

using Sha256Digest = std::array<unsigned char, 32>;

[[nodiscard]] Sha256Digest Sha256(std::string_view bytes);
/// First 8 bytes of SHA-256, as a signed 64-bit integer: for index columns.
[[nodiscard]] std::int64_t Digest64(std::string_view bytes);

[[nodiscard]] std::string HexEncode(std::span<const unsigned char> bytes);
[[nodiscard]] inline std::string HexEncode(std::string_view bytes) {
  return HexEncode(std::span(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size()));
}
/// Either case; nullopt for an odd length or any other character.
[[nodiscard]] std::optional<std::string> HexDecode(std::string_view text);
[[nodiscard]] std::string Base64Encode(std::string_view bytes);
/// Standard alphabet, padding required, nothing else allowed; nullopt otherwise.
[[nodiscard]] std::optional<std::string> Base64Decode(std::string_view text);

/// Valid UTF-8 without NUL and other control characters (tab and newline stay), at most `max_bytes`, cut at a
/// character; a cut text ends in "…". For error text from outside.
[[nodiscard]] std::string CleanText(std::string_view text, std::size_t max_bytes);

[[nodiscard]] bool ConstantTimeEqual(std::string_view a, std::string_view b);

}  // namespace dlo
