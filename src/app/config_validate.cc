#include <fmt/format.h>

#include <set>

#include "dlo/config.h"
#include "env/address_policy.h"
#include "intake/check_source.h"
#include "intake/sign.h"

namespace dlo {
namespace {

Result<void> Wrong(std::string message) {
  return Fail(ErrorKind::invalid, "config", std::move(message));
}

Result<void> CheckTarget(const TargetConfig& target) {
  if (target.name.empty()) return Wrong("target.name is missing");
  if (target.concurrency < 1 || target.concurrency > 256) {
    return Wrong(fmt::format("target {}: concurrency must be from 1 to 256", target.name));
  }
  if (target.jitter < 0 || target.jitter > 1)
    return Wrong(fmt::format("target {}: jitter must be from 0 to 1", target.name));
  if (target.retry.size() > 50) return Wrong(fmt::format("target {}: retry has more than 50 waits", target.name));
  if (target.type == TargetType::in_process) {
    if (!target.handler) return Wrong(fmt::format("target {}: an in-process target needs a handler", target.name));
    return {};
  }
  if (target.timeout < std::chrono::milliseconds(100) || target.timeout > std::chrono::minutes(10)) {
    return Wrong(fmt::format("target {}: timeout must be from 100ms to 10m", target.name));
  }
  if (target.url.empty()) return Wrong(fmt::format("target {}: url is missing", target.name));
  if (const auto ok = CheckTargetUrl(target.url); !ok) {
    return Wrong(fmt::format("target {}: url: {}", target.name, ok.error().message));
  }
  if (!target.signing_secret.empty()) {
    const auto signer = intake::Signer::Compile("standard-webhooks", {}, target.signing_secret);
    if (!signer) return Wrong(fmt::format("target {}: signing_secret: {}", target.name, signer.error().message));
    const auto scheme = intake::CompileScheme("standard-webhooks", {});
    if (const auto weak = intake::WeakSecret(*scheme, target.signing_secret); !weak.empty()) {
      return Wrong(fmt::format("target {}: signing_secret {}", target.name, weak));
    }
  }
  return {};
}

}  // namespace

Result<void> Config::Validate() const {
  if (!store.url.starts_with("sqlite:") || store.url.size() == 7) {
    return Wrong("store.url must be \"sqlite:PATH\", for example \"sqlite:data/dlo.db\"");
  }
  if (server.tls_cert.empty() != server.tls_key.empty()) return Wrong("server.tls_cert and server.tls_key go together");
  std::set<std::string> target_names;
  for (const TargetConfig& target : targets) {
    if (const auto ok = CheckTarget(target); !ok) return ok;
    if (!target_names.insert(target.name).second) return Wrong(fmt::format("two targets are named {}", target.name));
  }
  std::set<std::string> source_names;
  for (const SourceConfig& source : sources) {
    if (const auto ok = intake::CheckSource(source); !ok) return ok;
    if (!source_names.insert(source.name).second) return Wrong(fmt::format("two sources are named {}", source.name));
    if (!target_names.contains(source.target)) {
      return Wrong(source.target.empty()
                       ? fmt::format("source {}: target is missing", source.name)
                       : fmt::format("source {}: there is no [[target]] named {}", source.name, source.target));
    }
  }
  if (log_level != "debug" && log_level != "info" && log_level != "warn" && log_level != "error") {
    return Wrong("log.level must be debug, info, warn or error");
  }
  return {};
}

}  // namespace dlo
