// CRC-32C (Castagnoli, RFC 3720 appendix B.4): finds torn and rotten bytes in the journal.
#pragma once

#include <cstdint>
#include <string_view>

namespace dlo::store {

/// Of `bytes`, going on from `before`: Crc32c(b, Crc32c(a)) == Crc32c(a + b).
[[nodiscard]] std::uint32_t Crc32c(std::string_view bytes, std::uint32_t before = 0);

/// The same without the processor's instruction; Crc32c takes it where SSE 4.2 is missing.
[[nodiscard]] std::uint32_t Crc32cPortable(std::string_view bytes, std::uint32_t before = 0);

}  // namespace dlo::store
