// Signing and posting deliveries as a sender would: for `dlo send` and the demo.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "cli/context.h"
#include "dlo/config.h"
#include "dlo/result.h"
#include "intake/sign.h"

namespace dlo::cli {

/// Which source, and how its deliveries are signed.
struct SenderOptions {
  std::string source, scheme = "stripe", secret, secret_file;
  HmacSettings hmac;
  std::vector<std::string> headers;  // "Name: value", beyond those of the scheme
  std::string content_type = "application/json";

  void AddTo(CLI::App* command);
};

struct Delivered {
  int status = 0;
  std::string outcome;  // "stored", "duplicate", "conflict", or why not
  std::string id;       // of the event, where it was taken
  std::string body;     // of the answer
  [[nodiscard]] bool taken() const { return status / 100 == 2; }
};

class Sender {
 public:
  /// Reads the secret: as given, "env:NAME", "file:PATH", or from --secret-file. Error invalid says what is missing.
  static Result<Sender> Create(Context& context, const SenderOptions& options);
  /// Signed with the time of now. `id` and `kind` go into the headers where the scheme has some for them.
  Result<Delivered> Send(std::string_view body, const std::string& id, const std::string& kind);

 private:
  Sender(Context& context, const SenderOptions& options, intake::Signer signer)
      : context_(context), options_(options), signer_(std::move(signer)) {}

  Context& context_;
  SenderOptions options_;
  intake::Signer signer_;
};

/// A whole file; "-" is stdin. Error invalid when it cannot be read or is over 32 MiB.
[[nodiscard]] Result<std::string> ReadInput(const Context& context, const std::string& path);

}  // namespace dlo::cli
