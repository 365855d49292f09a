#include "cli/delivery.h"

#include <fmt/format.h>

#include <istream>
#include <iterator>

#include "cli/json.h"
#include "intake/scheme.h"

namespace dlo::cli {
namespace {

constexpr std::size_t kMaxInput = std::size_t{32} << 20;  // no source takes more

Result<std::string> ReadSecret(const Context& context, const SenderOptions& options) {
  std::string_view given = options.secret;
  Result<std::string> secret = options.secret;
  if (!options.secret_file.empty()) {
    secret = ReadInput(context, options.secret_file);
  } else if (given.starts_with("file:")) {
    secret = ReadInput(context, std::string(given.substr(5)));
  } else if (given.starts_with("env:")) {
    auto value = context.deps.environment(std::string(given.substr(4)));
    if (!value) return Fail(ErrorKind::invalid, "usage", fmt::format("the environment has no {}", given.substr(4)));
    secret = *value;
  }
  if (!secret) return secret;
  while (secret->ends_with('\n') || secret->ends_with('\r')) secret->pop_back();
  if (secret->empty() && options.scheme != "none") {
    return Fail(
        ErrorKind::invalid, "usage",
        fmt::format("scheme {} signs: give --secret-file FILE, or --secret (text, env:NAME or file:PATH) as in the "
                    "source's configuration",
                    options.scheme));
  }
  return secret;
}

}  // namespace

void SenderOptions::AddTo(CLI::App* command) {
  std::vector<std::string> schemes;
  for (std::string_view name : intake::SchemeNames()) schemes.emplace_back(name);
  command->add_option("--source", source, "Name of the source to post to")->required();
  command->add_option("--scheme", scheme, "How to sign")->check(CLI::IsMember(schemes))->capture_default_str();
  command->add_option("--secret", secret, "The secret; env:NAME or file:PATH keep it off the command line");
  command->add_option("--secret-file", secret_file, "File with the secret");
  command->add_option("--header", headers, "\"Name: value\", sent too (repeatable)")->allow_extra_args(false);
  command->add_option("--content-type", content_type, "Content-Type")->capture_default_str();
  struct Setting {
    const char* flag;
    std::string& value;
    const char* about;
  };
  const Setting settings[] = {
      {"--signature-header", hmac.signature_header, "Header of the signature"},
      {"--signature-format", hmac.signature_format, "plain, list or pairs"},
      {"--prefix", hmac.prefix, "Before the signature: sha256="},
      {"--pair-separator", hmac.pair_separator, "Between pairs"},
      {"--timestamp-name", hmac.timestamp_name, "Of the timestamp in pairs"},
      {"--signature-name", hmac.signature_name, "Of the signature in pairs"},
      {"--timestamp-header", hmac.timestamp_header, "Header of the timestamp"},
      {"--id-header", hmac.id_header, "Header of the id"},
      {"--signed-template", hmac.signed_template, "Signed bytes, of {timestamp} {id} {body} {url}"},
      {"--signed-url", hmac.url, "For {url}"},
      {"--hash", hmac.hash, "sha1, sha256 or sha512"},
      {"--encoding", hmac.encoding, "hex or base64"},
      {"--key-decoding", hmac.key_decoding, "text, hex, base64 or whsec"},
      {"--timestamp-unit", hmac.timestamp_unit, "s or ms"},
  };
  for (const Setting& setting : settings) {
    command->add_option(setting.flag, setting.value, setting.about)->group("Scheme hmac, as in the configuration");
  }
}

Result<Sender> Sender::Create(Context& context, const SenderOptions& options) {
  for (const std::string& header : options.headers) {
    if (header.find(':') == std::string::npos || header.find_first_of("\r\n") != std::string::npos) {
      return Fail(ErrorKind::invalid, "usage", fmt::format("--header \"{}\" is not written \"Name: value\"", header));
    }
  }
  auto secret = ReadSecret(context, options);
  if (!secret) return std::unexpected(secret.error());
  auto signer = intake::Signer::Compile(options.scheme, options.hmac, *secret);
  if (!signer) return std::unexpected(signer.error());
  return Sender(context, options, std::move(*signer));
}

Result<Delivered> Sender::Send(std::string_view body, const std::string& id, const std::string& kind) {
  std::vector<std::string> headers = options_.headers;
  headers.push_back("Content-Type: " + options_.content_type);
  for (const Header& h : signer_.Sign(body, context_.deps.clock.Now(), id)) headers.push_back(h.name + ": " + h.value);
  // GitHub's facts are in headers, which its signature does not cover.
  if (options_.scheme == "github") {
    headers.push_back("X-GitHub-Delivery: " + id);
    if (!kind.empty()) headers.push_back("X-GitHub-Event: " + kind);
  }
  auto answer = context_.api().Deliver("/in/" + UrlEncode(options_.source), headers, body);
  if (!answer) return std::unexpected(answer.error());
  Delivered delivered{.status = answer->status, .outcome = {}, .id = {}, .body = answer->body};
  if (auto json = ParseBody(*answer)) {
    delivered.outcome = Text(*json, delivered.taken() ? "status" : "code");
    if (delivered.outcome.empty()) delivered.outcome = Text(*json, "status");
    delivered.id = Text(*json, "id");
    if (std::string first = Text(*json, "conflict_with"); !first.empty()) {
      delivered.outcome += fmt::format(" as a conflict with {}:", first);
    }
  }
  if (delivered.outcome.empty()) delivered.outcome = fmt::format("http_{}", answer->status);
  return delivered;
}

Result<std::string> ReadInput(const Context& context, const std::string& path) {
  if (path == "-") {
    std::string text(std::istreambuf_iterator<char>(context.deps.in), {});
    if (text.size() <= kMaxInput) return text;
    return Fail(ErrorKind::invalid, "usage", "stdin holds more than 32 MiB, which no source takes");
  }
  auto file = context.deps.files.Open(path, OpenMode::read);
  if (!file) return Fail(ErrorKind::invalid, "usage", fmt::format("cannot read {}: {}", path, file.error().message));
  auto size = (*file)->Size();
  if (!size) return Fail(ErrorKind::invalid, "usage", fmt::format("cannot read {}: {}", path, size.error().message));
  if (*size > kMaxInput) {
    return Fail(ErrorKind::invalid, "usage", fmt::format("{} is larger than 32 MiB, which no source takes", path));
  }
  std::string text(static_cast<std::size_t>(*size), '\0');
  auto read = (*file)->ReadAt(0, text);
  if (!read) return Fail(ErrorKind::invalid, "usage", fmt::format("cannot read {}: {}", path, read.error().message));
  text.resize(*read);
  return text;
}

}  // namespace dlo::cli
