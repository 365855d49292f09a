#include "store/embedded/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "env/random.h"

namespace dlo::store {
namespace {

std::string Counting(int from, int step) {
  std::string bytes;
  for (int i = 0; i < 32; ++i) bytes.push_back(static_cast<char>(from + i * step));
  return bytes;
}

TEST(Crc32cTest, GivesThePublishedValues) {
  // The check value of the catalogue of CRC algorithms, and RFC 3720 appendix B.4.
  const struct {
    std::string bytes;
    std::uint32_t crc;
  } rows[] = {
      {"", 0x00000000},
      {"123456789", 0xE3069283},
      {std::string(32, '\x00'), 0x8A9136AA},
      {std::string(32, '\xFF'), 0x62A8AB43},
      {Counting(0, 1), 0x46DD794E},
      {Counting(31, -1), 0x113FDB5C},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(Crc32c(row.bytes), row.crc);
    EXPECT_EQ(Crc32cPortable(row.bytes), row.crc);
  }
}

TEST(Crc32cTest, InstructionAndTableAgreeAtEveryLengthAndSplit) {
  SeededRandom random(7);
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    bytes.push_back(static_cast<char>(random.Next()));
    const std::uint32_t whole = Crc32c(bytes);
    ASSERT_EQ(whole, Crc32cPortable(bytes)) << i;
    const std::size_t split = random.Next() % bytes.size();
    const std::string_view view = bytes;
    ASSERT_EQ(whole, Crc32c(view.substr(split), Crc32c(view.substr(0, split)))) << i;
    ASSERT_EQ(whole, Crc32cPortable(view.substr(split), Crc32cPortable(view.substr(0, split)))) << i;
  }
}

}  // namespace
}  // namespace dlo::store
