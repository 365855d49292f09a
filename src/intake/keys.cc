#include "intake/keys.h"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <cassert>
#include <cstdlib>
#include <utility>

namespace dlo::intake {
namespace {

const unsigned char* Bytes(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

struct FreeMacContext {
  void operator()(EVP_MAC_CTX* context) const { EVP_MAC_CTX_free(context); }
};
struct FreeMac {
  void operator()(EVP_MAC* mac) const { EVP_MAC_free(mac); }
};
struct FreeDigestContext {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};
struct FreeKey {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
};
using MacContext = std::unique_ptr<EVP_MAC_CTX, FreeMacContext>;
using DigestContext = std::unique_ptr<EVP_MD_CTX, FreeDigestContext>;

// A failure here means that memory is gone: with no MAC there is no safe answer to give.
void Check(bool ok) {
  if (!ok) std::abort();
}

}  // namespace

struct HmacKey::Context {
  MacContext keyed;
};

Result<HmacKey> HmacKey::Create(std::string_view hash, std::string_view key) {
  const char* digest = nullptr;
  HmacKey made;
  if (hash == "sha1") {
    digest = "SHA1";
    made.size_ = 20;
  } else if (hash == "sha256") {
    digest = "SHA256";
    made.size_ = 32;
  } else if (hash == "sha512") {
    digest = "SHA512";
    made.size_ = 64;
  } else {
    return Fail(ErrorKind::invalid, "hash", "hash must be sha1, sha256 or sha512");
  }
  if (key.empty()) return Fail(ErrorKind::invalid, "empty_secret", "the secret is empty");
  const std::unique_ptr<EVP_MAC, FreeMac> mac(EVP_MAC_fetch(nullptr, "HMAC", nullptr));
  if (!mac) return Fail(ErrorKind::invalid, "hash", "this OpenSSL has no HMAC");
  auto context = std::make_shared<Context>();
  context->keyed.reset(EVP_MAC_CTX_new(mac.get()));
  const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, const_cast<char*>(digest), 0),
                               OSSL_PARAM_construct_end()};
  if (!context->keyed || EVP_MAC_init(context->keyed.get(), Bytes(key), key.size(), params) != 1) {
    return Fail(ErrorKind::invalid, "hash", "this OpenSSL refuses HMAC with " + std::string(hash));
  }
  made.context_ = std::move(context);
  return made;
}

MacValue HmacKey::Compute(std::span<const std::string_view> parts) const {
  assert(context_);
  const MacContext context(EVP_MAC_CTX_dup(context_->keyed.get()));
  Check(context != nullptr);
  for (const auto part : parts) Check(EVP_MAC_update(context.get(), Bytes(part), part.size()) == 1);
  MacValue value;
  Check(EVP_MAC_final(context.get(), value.bytes.data(), &value.size, value.bytes.size()) == 1);
  return value;
}

struct Ed25519Key::Key {
  std::unique_ptr<EVP_PKEY, FreeKey> key;
};

Result<Ed25519Key> Ed25519Key::FromPublic(std::string_view bytes) {
  auto key = std::make_shared<Key>();
  if (bytes.size() == 32) {
    key->key.reset(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Bytes(bytes), bytes.size()));
  }
  if (!key->key) return Fail(ErrorKind::invalid, "bad_key", "an Ed25519 public key has 32 bytes");
  Ed25519Key made;
  made.key_ = std::move(key);
  return made;
}

Result<Ed25519Key> Ed25519Key::FromSecret(std::string_view bytes) {
  auto key = std::make_shared<Key>();
  if (bytes.size() == 32 || bytes.size() == 64) {
    key->key.reset(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, Bytes(bytes), 32));
  }
  if (!key->key) return Fail(ErrorKind::invalid, "bad_key", "an Ed25519 secret key has 32 or 64 bytes");
  Ed25519Key made;
  made.key_ = std::move(key);
  return made;
}

bool Ed25519Key::Verify(std::string_view message, std::string_view signature) const {
  if (signature.size() != kSignatureBytes) return false;
  const DigestContext context(EVP_MD_CTX_new());
  Check(context != nullptr);
  if (EVP_DigestVerifyInit(context.get(), nullptr, nullptr, nullptr, key_->key.get()) != 1) return false;
  return EVP_DigestVerify(context.get(), Bytes(signature), signature.size(), Bytes(message), message.size()) == 1;
}

std::string Ed25519Key::Sign(std::string_view message) const {
  const DigestContext context(EVP_MD_CTX_new());
  Check(context != nullptr);
  Check(EVP_DigestSignInit(context.get(), nullptr, nullptr, nullptr, key_->key.get()) == 1);
  std::string signature(kSignatureBytes, '\0');
  std::size_t size = signature.size();
  Check(EVP_DigestSign(context.get(), reinterpret_cast<unsigned char*>(signature.data()), &size, Bytes(message),
                       message.size()) == 1);
  signature.resize(size);
  return signature;
}

}  // namespace dlo::intake
