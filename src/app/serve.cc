#include "app/serve.h"

#include <algorithm>
#include <iostream>

#include "app/office.h"
#include "base/log.h"
#include "env/descriptors.h"
#include "observe/alarm_rules.h"
#include "store/embedded/archive_verify.h"
#include "store/embedded/embedded_store.h"

namespace dlo::app {
namespace {

int Refuse(const Error& error) {
  std::cerr << "dlo serve: " << error.message << '\n';
  log::Error("serve.refused", {{"code", error.code}, {"message", error.message}});
  return 1;
}

/// Two warnings that belong before the first event.
void WarnAboutSources(const Config& config) {
  if (config.sources.empty()) {
    log::Warn("serve.no_sources",
              {{"hint", "add a [[source]] and a [[target]] to the configuration; nothing is received until then"}});
  }
  for (const SourceConfig& source : config.sources) {
    if (source.scheme == "none") {
      log::Warn("serve.unsigned_source",
                {{"source", source.name}, {"hint", "anybody who reaches this port can put events in"}});
    }
  }
}

// Strangers' connections must never take the descriptors that the store and the targets need: a store that cannot open
// its next file stops for good.
void KeepDescriptorsForTheStore(ServerConfig& server) {
  constexpr int kOwn = 512;
  const std::size_t have = RaiseDescriptorLimit(static_cast<std::size_t>(server.max_connections) + kOwn);
  if (have >= static_cast<std::size_t>(server.max_connections) + kOwn) return;
  const int all = static_cast<int>(have);  // less than max_connections and kOwn together
  server.max_connections = std::max(all - kOwn, all / 2);
  log::Warn(
      "serve.few_descriptors",
      {{"descriptors", all},
       {"max_connections", server.max_connections},
       {"hint", "raise the limit of open files (LimitNOFILE, ulimit -Hn) to take max_connections as configured"}});
}

/// The token opens every door, so it must be beyond guessing.
bool IsGuessable(std::string_view token) {
  constexpr int kMinBytes = 16;
  return std::ranges::count_if(token, [](unsigned char c) { return c > ' '; }) < kMinBytes;
}

}  // namespace

int Serve(const std::string& config_path, const Environment& environment, const std::function<bool(Duration)>& wait) {
  Result<Config> config = LoadConfig(config_path, environment);
  if (!config) return Refuse(config.error());
  log::SetLevel(config->log_level);
  WarnAboutSources(*config);
  KeepDescriptorsForTheStore(config->server);
  const std::string listen = config->server.listen;
  OfficeOptions options{.config = std::move(*config),
                        .bootstrap_token = environment("DLO_ADMIN_TOKEN").value_or(""),
                        .crash_at = environment("DLO_CRASH_AT").value_or(""),
                        .listen = true};
  if (!options.bootstrap_token.empty() && IsGuessable(options.bootstrap_token)) {
    return Refuse(
        {ErrorKind::invalid, "admin_token",
         "DLO_ADMIN_TOKEN is shorter than 16 bytes: make a longer one, for example with `openssl rand -hex 24`"});
  }
  if (options.bootstrap_token.empty()) {
    log::Info("serve.no_bootstrap_token",
              {{"hint", "set DLO_ADMIN_TOKEN for the first start, then `dlo token create NAME --role ROLE`"}});
  }
  Result<std::unique_ptr<Office>> office = Office::Open(std::move(options));
  if (!office) return Refuse(office.error());
  if (const auto started = (*office)->Start(); !started) return Refuse(started.error());
  std::cout << "dlo serves on " << listen << " (port " << (*office)->port() << ")" << std::endl;
  while (wait(std::chrono::milliseconds(500))) {
    if (const auto failed = (*office)->failed()) {
      log::Error("serve.store_failed", {{"code", failed->code}, {"message", failed->message}});
      (*office)->Stop();
      return 1;
    }
  }
  log::Info("serve.stopping");
  (*office)->Stop();
  log::Info("serve.stopped");
  return 0;
}

int CheckConfig(const std::string& config_path, const Environment& environment, std::ostream& out) {
  const Result<Config> config = LoadConfig(config_path, environment);
  if (!config) {
    out << config.error().message << '\n';
    return 1;
  }
  out << config_path << ": ok\n";
  for (const SourceConfig& source : config->sources) {
    out << "  source " << source.name << ": scheme " << source.scheme << ", " << source.secrets.size()
        << (source.secrets.size() == 1 ? " secret" : " secrets") << ", to target " << source.target << '\n';
  }
  for (const TargetConfig& target : config->targets) {
    out << "  target " << target.name << ": " << target.url << ", " << target.retry.size() + 1 << " attempts\n";
  }
  for (const AlertConfig& alert : config->alerts) {
    out << "  alert " << observe::ReceiverName(alert) << ": " << alert.format << '\n';  // its URL may be a secret
  }
  return 0;
}

int ExportArchive(const std::string& config_path, const std::string& to, bool json, const Environment& environment,
                  Files& files, std::ostream& out) {
  const Result<Config> config = LoadConfig(config_path, environment);
  if (!config) return Refuse(config.error());
  const auto done = store::ExportArchive(files, ArchivePath(*config), to);
  if (!done) {
    std::cerr << "dlo archive export: " << done.error().message << '\n';
    return 1;
  }
  if (json) {
    out << boost::json::serialize(boost::json::object{{"folder", to},
                                                      {"segments", done->segments},
                                                      {"files", done->files},
                                                      {"bytes", done->original_bytes},
                                                      {"head", done->head}})
        << '\n';
  } else {
    out << to << ": " << done->segments << " segments, " << done->files << " files, " << done->original_bytes
        << " bytes; check them with `cd " << to << " && sha256sum -c SHA256SUMS`\n";
  }
  return 0;
}

}  // namespace dlo::app
