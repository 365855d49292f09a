// Keyed things: a MAC that is keyed once and computed per request over parts, and Ed25519 keys. No OpenSSL type shows.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "dlo/result.h"

namespace dlo::intake {

/// Up to SHA-512's size, without an allocation.
struct MacValue {
  std::array<unsigned char, 64> bytes{};
  std::size_t size = 0;
  [[nodiscard]] std::string_view view() const { return {reinterpret_cast<const char*>(bytes.data()), size}; }
};

/// HMAC with the key schedule done once. Thread-safe: each computation works on a duplicate of the keyed context.
class HmacKey {
 public:
  /// `hash`: sha1 | sha256 | sha512. Error invalid for another hash or an empty key.
  static Result<HmacKey> Create(std::string_view hash, std::string_view key);
  /// Over the parts in order, without joining them.
  [[nodiscard]] MacValue Compute(std::span<const std::string_view> parts) const;
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  struct Context;
  std::shared_ptr<const Context> context_;
  std::size_t size_ = 0;
};

/// One half or both of an Ed25519 key pair. Thread-safe.
class Ed25519Key {
 public:
  static constexpr std::size_t kSignatureBytes = 64;
  static Result<Ed25519Key> FromPublic(std::string_view bytes);  // 32 bytes
  /// 32 bytes (the seed), or 64: the seed followed by the public key, as libsodium keeps it.
  static Result<Ed25519Key> FromSecret(std::string_view bytes);
  [[nodiscard]] bool Verify(std::string_view message, std::string_view signature) const;
  /// Only for a key made by FromSecret.
  [[nodiscard]] std::string Sign(std::string_view message) const;

 private:
  struct Key;
  std::shared_ptr<const Key> key_;
};

}  // namespace dlo::intake
