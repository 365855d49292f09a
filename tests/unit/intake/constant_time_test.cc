// How a MAC is compared. The binary's own CRYPTO_memcmp stands before OpenSSL's and tells what it was asked.
#include <gtest/gtest.h>

#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "intake/sign.h"
#include "intake/verify.h"

namespace {

std::vector<std::size_t> compared;  // lengths, in order

}  // namespace

extern "C" int CRYPTO_memcmp(const void* a, const void* b, std::size_t size) {
  compared.push_back(size);
  const auto* x = static_cast<const volatile unsigned char*>(a);
  const auto* y = static_cast<const volatile unsigned char*>(b);
  unsigned char differ = 0;
  for (std::size_t i = 0; i < size; ++i) differ = static_cast<unsigned char>(differ | (x[i] ^ y[i]));
  return differ;
}

namespace dlo::intake {
namespace {

const Time kNow{std::chrono::seconds(1'700'000'000)};
const std::string kSecret = "whsec_0123456789abcdef";
const std::string kBody = R"({"id":"evt_1"})";

TEST(ConstantTime, AMacIsComparedWholeWhereverItDiffers) {
  SourceConfig source;
  source.name = "github";
  source.scheme = "github";
  source.secrets = {{"secrets[0]", kSecret}, {"secrets[1]", "another_secret_0123456789"}};
  const auto verifier = Verifier::Compile(source);
  ASSERT_TRUE(verifier);
  const auto signer = Signer::Compile("github", {}, kSecret);
  ASSERT_TRUE(signer);
  const auto good = signer->Sign(kBody, kNow, "id");
  const std::size_t prefix = std::string("sha256=").size();
  for (std::size_t i = prefix; i < good[0].value.size(); ++i) {
    auto wrong = good;
    char& digit = wrong[0].value[i];
    digit = digit == '0' ? '1' : '0';
    compared.clear();
    EXPECT_FALSE(verifier->Verify(wrong, kBody, kNow));
    EXPECT_EQ(compared, (std::vector<std::size_t>{32, 32})) << "digit " << i - prefix;
  }
  compared.clear();
  EXPECT_TRUE(verifier->Verify(good, kBody, kNow));
  EXPECT_EQ(compared, std::vector<std::size_t>{32});
}

TEST(ConstantTime, NothingElseComparesAMac) {
  std::ifstream file(DLO_SOURCE_DIR "/src/intake/verify.cc");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  EXPECT_NE(text.find("ConstantTimeEqual(bytes, mac.view())"), std::string::npos);
  for (const char* other : {"memcmp", "== mac", "mac =="}) EXPECT_EQ(text.find(other), std::string::npos) << other;
}

TEST(ConstantTime, AnotherLengthIsNotEqual) {
  EXPECT_TRUE(ConstantTimeEqual("", ""));
  EXPECT_FALSE(ConstantTimeEqual("a", ""));
  EXPECT_FALSE(ConstantTimeEqual("ab", "a"));
  EXPECT_TRUE(ConstantTimeEqual("ab", "ab"));
}

}  // namespace
}  // namespace dlo::intake
