#include "env/memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>

namespace dlo {
namespace {

TEST(ResidentBytes, CountsWhatWasTouched) {
  const auto before = ResidentBytes();
  ASSERT_TRUE(before);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const auto block = std::make_unique<char[]>(kBytes);
  std::memset(block.get(), 1, kBytes);
  EXPECT_GE(*ResidentBytes(), *before + kBytes / 2);
  ReturnFreeMemory();
  EXPECT_GE(*ResidentBytes(), kBytes / 2) << "what is in use stays";
}

}  // namespace
}  // namespace dlo
