// The sender's side of the same schemes: for `dlo send`, the demo, and the Standard Webhooks signature on what we send
// to targets.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dlo/config.h"
#include "dlo/event.h"
#include "dlo/result.h"
#include "intake/scheme.h"

namespace dlo::intake {

/// A scheme with one secret, ready to sign. Thread-safe; cheap to copy.
class Signer {
 public:
  /// `scheme` and `hmac` as in SourceConfig. Error invalid names what is wrong, never the secret. With "none" nothing
  /// is signed and the secret is not read.
  static Result<Signer> Compile(std::string_view scheme, const HmacSettings& hmac, std::string_view secret);

  /// The headers that make a verifier of the same scheme and secret accept `body`. `id` is written to the scheme's id
  /// header, where it has one (Standard Webhooks: it must not be empty).
  [[nodiscard]] std::vector<Header> Sign(std::string_view body, Time now, std::string_view id) const;

 private:
  Scheme scheme_;
  Key key_;
};

}  // namespace dlo::intake
