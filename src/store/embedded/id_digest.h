// SHA-256 over decimal ids joined by "\n", fed one by one: names a frozen selection.
#pragma once

#include <fmt/format.h>
#include <openssl/evp.h>

#include <iterator>
#include <memory>
#include <string>

#include "base/encoding.h"
#include "dlo/event.h"

namespace dlo::store {

class IdDigest {
 public:
  IdDigest() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr); }
  void Add(EventId id) {
    fmt::format_to(std::back_inserter(text_), "{}{}", first_ ? "" : "\n", id);
    first_ = false;
    if (text_.size() > kBlock) Feed();
  }
  std::string Hex() {
    Feed();
    Sha256Digest digest;
    EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr);
    return HexEncode(digest);
  }

 private:
  static constexpr std::size_t kBlock = 4'000;
  void Feed() {
    EVP_DigestUpdate(context_.get(), text_.data(), text_.size());
    text_.clear();
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
  std::string text_;
  bool first_ = true;
};

}  // namespace dlo::store
