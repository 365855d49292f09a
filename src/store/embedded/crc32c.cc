#include "store/embedded/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace dlo::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the word loads below are little endian");

constexpr std::uint32_t kReversedPolynomial = 0x82F63B78;

// Slicing by eight: row k holds the effect of a byte that k more bytes follow.
constexpr auto kTables = [] {
  std::array<std::array<std::uint32_t, 256>, 8> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (std::size_t row = 1; row < 8; ++row) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[row - 1][byte];
      tables[row][byte] = (before >> 8) ^ tables[0][before & 0xFF];
    }
  }
  return tables;
}();

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) std::uint32_t Crc32cHardware(std::string_view bytes, std::uint32_t before) {
  std::uint64_t crc = ~before;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; left > 0; --left, ++at) crc = _mm_crc32_u8(static_cast<std::uint32_t>(crc), static_cast<unsigned char>(*at));
  return ~static_cast<std::uint32_t>(crc);
}
#endif

}  // namespace

std::uint32_t Crc32cPortable(std::string_view bytes, std::uint32_t before) {
  std::uint32_t crc = ~before;
  const char* at = bytes.data();
  std::size_t left = bytes.size();
  for (; left >= 8; left -= 8, at += 8) {
    std::uint32_t low = 0, high = 0;
    std::memcpy(&low, at, 4);
    std::memcpy(&high, at + 4, 4);
    low ^= crc;
    crc = kTables[7][low & 0xFF] ^ kTables[6][(low >> 8) & 0xFF] ^ kTables[5][(low >> 16) & 0xFF] ^
          kTables[4][low >> 24] ^ kTables[3][high & 0xFF] ^ kTables[2][(high >> 8) & 0xFF] ^
          kTables[1][(high >> 16) & 0xFF] ^ kTables[0][high >> 24];
  }
  for (; left > 0; --left, ++at) crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(*at)) & 0xFF];
  return ~crc;
}

std::uint32_t Crc32c(std::string_view bytes, std::uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return Crc32cHardware(bytes, before);
#endif
  return Crc32cPortable(bytes, before);
}

}  // namespace dlo::store
