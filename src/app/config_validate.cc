#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "base/time_text.h"
#include "dlo/config.h"
#include "env/address_policy.h"
#include "intake/check_source.h"
#include "intake/sign.h"
#include "observe/alarm_rules.h"
#include "observe/business_hours.h"

namespace dlo {
namespace {

Result<void> Wrong(std::string message) {
  return Fail(ErrorKind::invalid, "config", std::move(message));
}

constexpr std::int64_t kKiB = 1024, kMiB = 1024 * kKiB, kGiB = 1024 * kMiB;

/// What a setting may be. Zero is taken besides where it switches the limit off.
struct Range {
  enum class Unit : unsigned char { number, bytes, time };
  std::string name;
  std::int64_t value, low, high;
  Unit unit = Unit::number;
  bool or_zero = false;
};

Range Bytes(std::string name, std::uint64_t value, std::int64_t low, std::int64_t high, bool or_zero = false) {
  const auto most = static_cast<std::uint64_t>(INT64_MAX);
  return {std::move(name), static_cast<std::int64_t>(std::min(value, most)), low, high, Range::Unit::bytes, or_zero};
}

Range Length(std::string name, Duration value, Duration low, Duration high) {
  return {std::move(name), value.count(), low.count(), high.count(), Range::Unit::time};
}

std::string Words(std::int64_t value, Range::Unit unit) {
  if (unit == Range::Unit::time) return FormatDuration(Duration(value));
  if (unit == Range::Unit::number || value == 0) return std::to_string(value);
  if (value % kGiB == 0) return fmt::format("{}GiB", value / kGiB);
  if (value % kMiB == 0) return fmt::format("{}MiB", value / kMiB);
  if (value % kKiB == 0) return fmt::format("{}KiB", value / kKiB);
  return fmt::format("{} bytes", value);
}

Result<void> Check(const std::vector<Range>& ranges) {
  for (const Range& r : ranges) {
    if ((r.value >= r.low && r.value <= r.high) || (r.or_zero && r.value == 0)) continue;
    return Wrong(fmt::format("{} is {}; it must be from {} to {}{}", r.name, Words(r.value, r.unit),
                             Words(r.low, r.unit), Words(r.high, r.unit), r.or_zero ? ", or 0 for no limit" : ""));
  }
  return {};
}

Result<void> CheckPercent(const std::string& name, double value, double high) {
  if (value >= 0 && value <= high) return {};  // and so no NaN
  return Wrong(fmt::format("{} is {}; it must be from 0 to {}", name, value, high));
}

Result<void> CheckStore(const StoreConfig& store) {
  if (!store.url.starts_with("sqlite:") || store.url.size() == 7) {
    return Wrong("store.url must be \"sqlite:PATH\", for example \"sqlite:data/dlo.db\"");
  }
  if (auto ok = Check({{"store.max_waiting", store.max_waiting, 1, 1'000'000'000}}); !ok) return ok;
  if (auto ok = CheckPercent("store.min_free_percent", store.min_free_percent, 50); !ok) return ok;
  if (auto ok = CheckPercent("store.warn_free_percent", store.warn_free_percent, 100); !ok) return ok;
  if (store.warn_free_percent > 0 && store.warn_free_percent < store.min_free_percent) {
    return Wrong(
        fmt::format("store.warn_free_percent ({}) is less than store.min_free_percent ({}), so the warning "
                    "would come after receipts are refused: raise it, or write 0 for no warning",
                    store.warn_free_percent, store.min_free_percent));
  }
  return {};
}

Result<void> CheckRetention(const RetentionConfig& retention) {
  const std::pair<const char*, const std::optional<Duration>*> periods[] = {
      {"retention.succeeded", &retention.succeeded},
      {"retention.closed", &retention.closed},
      {"retention.cold_after", &retention.cold_after}};
  for (const auto& [name, period] : periods) {
    if (!*period) continue;
    if (auto ok = Check({Length(name, **period, std::chrono::seconds(1), std::chrono::days(365'000))}); !ok) return ok;
  }
  return {};
}

Result<void> CheckServer(const ServerConfig& server, const std::vector<SourceConfig>& sources) {
  using std::chrono::hours;
  using std::chrono::milliseconds;
  using std::chrono::minutes;
  if (server.tls_cert.empty() != server.tls_key.empty()) return Wrong("server.tls_cert and server.tls_key go together");
  const Duration shortest = milliseconds(100), longest = hours(1);
  auto ok = Check({
      {"server.io_threads", server.io_threads, 0, 64},
      {"server.max_connections", server.max_connections, 1, 100'000},
      {"server.max_connections_per_address", server.max_connections_per_address, 1, 100'000},
      {"server.max_requests_per_connection", server.max_requests_per_connection, 1, 1'000'000'000},
      Bytes("server.max_request_line", server.max_request_line, 256, 64 * kKiB),
      Bytes("server.max_header_bytes", server.max_header_bytes, kKiB, 256 * kKiB),
      {"server.max_header_fields", server.max_header_fields, 10, 1'000},
      Length("server.handshake_deadline", server.handshake_deadline, shortest, longest),
      Length("server.head_deadline", server.head_deadline, shortest, longest),
      Length("server.body_deadline", server.body_deadline, shortest, longest),
      Length("server.body_grace", server.body_grace, Duration(0), longest),
      Bytes("server.min_body_rate", server.min_body_rate, 1, 100 * kMiB, true),
      Length("server.idle_deadline", server.idle_deadline, shortest, longest),
      Length("server.write_deadline", server.write_deadline, shortest, longest),
      Bytes("server.inflight_body_bytes", server.inflight_body_bytes, kKiB, 64 * kGiB),
      Bytes("server.max_admin_body", server.max_admin_body, kKiB, 32 * kMiB),
      {"server.bad_tokens_per_minute", server.bad_tokens_per_minute, 1, 1'000},
      Bytes("server.max_memory", server.max_memory, kMiB, 1024 * kGiB, true),
      Length("server.commit_deadline", server.commit_deadline, shortest, minutes(1)),
  });
  if (!ok) return ok;
  const auto holds = [&](const std::string& name, std::size_t body) -> Result<void> {
    if (body <= server.inflight_body_bytes) return {};
    return Wrong(
        fmt::format("server.inflight_body_bytes is less than {}, so that a body this large could never be "
                    "taken: raise the one or lower the other",
                    name));
  };
  ok = holds("server.max_admin_body", server.max_admin_body);
  for (const SourceConfig& source : sources) {
    if (ok) ok = holds(fmt::format("max_body of source {}", source.name), source.max_body);
  }
  return ok;
}

Result<void> CheckRetries(const TargetConfig& target) {
  const std::string of = fmt::format("target {}: ", target.name);
  const Duration shortest = std::chrono::milliseconds(100), longest = std::chrono::hours(1);
  if (target.retry.size() > 50) return Wrong(of + "retry has more than 50 waits");
  if (target.jitter < 0 || target.jitter > 1) return Wrong(of + "jitter must be from 0 to 1");
  if (auto ok = CheckPercent(of + "retry_budget_percent", target.retry_budget_percent, 100); !ok) return ok;
  if (auto ok = CheckPercent(of + "retry_budget_min", target.retry_budget_min, 1'000); !ok) return ok;
  if (auto ok = Check({
          Length(of + "retry_after_max", target.retry_after_max, Duration(0), std::chrono::hours(24)),
          {of + "breaker_failures", target.breaker_failures, 1, 1'000},
          {of + "breaker_percent", target.breaker_percent, 1, 100},
          Length(of + "breaker_open", target.breaker_open, shortest, longest),
          Length(of + "breaker_open_max", target.breaker_open_max, shortest, 24 * longest),
      });
      !ok) {
    return ok;
  }
  if (target.breaker_open_max >= target.breaker_open) return {};
  return Wrong(of + "breaker_open_max is shorter than breaker_open: raise the one or lower the other");
}

Result<void> CheckSigningSecret(const std::string& of, const std::string& secret) {
  if (secret.empty()) return {};
  const auto signer = intake::Signer::Compile("standard-webhooks", {}, secret);
  if (!signer) return Wrong(fmt::format("{}: signing_secret: {}", of, signer.error().message));
  const auto scheme = intake::CompileScheme("standard-webhooks", {});
  if (const auto weak = intake::WeakSecret(*scheme, secret); !weak.empty()) {
    return Wrong(fmt::format("{}: signing_secret {}", of, weak));
  }
  return {};
}

Error Reserved(std::string_view what) {
  return {ErrorKind::invalid, "config",
          fmt::format("{} {}: this name is the probe's own; choose another", what, kProbeName)};
}

Result<void> CheckHours(const std::string& of, const AlertConfig& alert) {
  const BusinessHours& hours = *alert.business_hours;
  if (hours.days.empty()) return Wrong(of + "business_hours.days is empty");
  for (const int day : hours.days) {
    if (day < 0 || day > 6) return Wrong(of + "business_hours.days are 0 (Sunday) to 6");
  }
  if (hours.from < Duration(0) || hours.to > std::chrono::hours(24) || hours.from >= hours.to) {
    return Wrong(of + "business_hours.from must be before to, within one day");
  }
  if (const auto known = observe::CheckZone(hours.zone); !known) {
    return Wrong(of + "business_hours.zone: " + known.error().message);
  }
  if (alert.outside == "ticket" || alert.outside == "hold") return {};
  if (const auto ok = CheckTargetUrl(alert.outside); !ok) {
    return Wrong(of + "outside must be \"ticket\", \"hold\" or a URL: " + ok.error().message);
  }
  return {};
}

Result<void> CheckAlert(const AlertConfig& alert, const std::set<std::string>& source_names) {
  const std::string of = fmt::format("alert {}: ", observe::ReceiverName(alert));
  if (alert.url.empty()) return Wrong("alert.url is missing");
  if (const auto ok = CheckTargetUrl(alert.url); !ok) return Wrong(of + "url: " + ok.error().message);
  if (alert.format != "json" && alert.format != "slack" && alert.format != "alertmanager") {
    return Wrong(of + "format must be json, slack or alertmanager");
  }
  for (const std::string& rule : alert.on) {
    if (std::ranges::find(observe::kRules, rule) == observe::kRules.end()) {
      return Wrong(fmt::format("{}on: there is no \"{}\"; known: {}", of, rule, fmt::join(observe::kRules, ", ")));
    }
  }
  for (const std::string& source : alert.sources) {
    if (!source_names.contains(source)) return Wrong(fmt::format("{}there is no [[source]] named {}", of, source));
  }
  const Duration second = std::chrono::seconds(1), day = std::chrono::hours(24);
  if (auto ok = Check({
          {of + "depth_over", alert.depth_over, 0, 1'000'000'000},
          Length(of + "oldest_over", alert.oldest_over, second, 365 * day),
          Length(of + "arrivals_every", alert.arrivals_every, second, day),
          Length(of + "repeat_every", alert.repeat_every, second, 30 * day),
          Length(of + "resolve_after", alert.resolve_after, Duration(0), day),
          Length(of + "timeout", alert.timeout, std::chrono::milliseconds(100), std::chrono::minutes(1)),
      });
      !ok) {
    return ok;
  }
  if (!alert.secret.empty()) {
    if (alert.format != "json") return Wrong(of + "secret signs format json only; leave it out");
    const auto signer = intake::Signer::Compile("standard-webhooks", {}, alert.secret);
    if (!signer) return Wrong(of + "secret: " + signer.error().message);
    const auto scheme = intake::CompileScheme("standard-webhooks", {});
    if (const auto weak = intake::WeakSecret(*scheme, alert.secret); !weak.empty()) return Wrong(of + "secret " + weak);
  }
  return alert.business_hours ? CheckHours(of, alert) : Result<void>();
}

Result<void> CheckTarget(const TargetConfig& target) {
  if (target.name.empty()) return Wrong("target.name is missing");
  if (target.name == kProbeName) return std::unexpected(Reserved("target"));
  if (target.concurrency < 1 || target.concurrency > 256) {
    return Wrong(fmt::format("target {}: concurrency must be from 1 to 256", target.name));
  }
  if (auto ok = CheckRetries(target); !ok) return ok;
  if (target.type == TargetType::in_process) {
    if (!target.handler) return Wrong(fmt::format("target {}: an in-process target needs a handler", target.name));
    return {};
  }
  if (target.timeout < std::chrono::milliseconds(100) || target.timeout > std::chrono::minutes(10)) {
    return Wrong(fmt::format("target {}: timeout must be from 100ms to 10m", target.name));
  }
  const std::string of = fmt::format("target {}: ", target.name);
  if (auto ok = Check({
          Length(of + "connect_timeout", target.connect_timeout, std::chrono::milliseconds(10),
                 std::chrono::minutes(10)),
          Bytes(of + "max_answer_header_bytes", target.max_answer_header_bytes, kKiB, kMiB),
          Bytes(of + "max_answer_body_bytes", target.max_answer_body_bytes, 4 * kKiB, 16 * kMiB),
      });
      !ok) {
    return ok;
  }
  if (target.url.empty()) return Wrong(fmt::format("target {}: url is missing", target.name));
  if (const auto ok = CheckTargetUrl(target.url); !ok) {
    return Wrong(fmt::format("target {}: url: {}", target.name, ok.error().message));
  }
  return CheckSigningSecret(fmt::format("target {}", target.name), target.signing_secret);
}

Result<void> CheckEvidence(const EvidenceConfig& evidence) {
  if (auto ok = Check({Length("evidence.every", evidence.every, std::chrono::seconds(1), std::chrono::hours(24 * 7))});
      !ok) {
    return ok;
  }
  if (evidence.head_url.empty()) {
    if (evidence.signing_secret.empty()) return {};
    return Wrong("evidence.signing_secret signs what is posted, and there is no evidence.head_url");
  }
  if (const auto ok = CheckTargetUrl(evidence.head_url); !ok) {
    return Wrong(fmt::format("evidence.head_url: {}", ok.error().message));
  }
  return CheckSigningSecret("evidence", evidence.signing_secret);
}

}  // namespace

Result<void> Config::Validate() const {
  if (auto ok = CheckStore(store); !ok) return ok;
  if (auto ok = CheckServer(server, sources); !ok) return ok;
  if (auto ok = CheckRetention(retention); !ok) return ok;
  if (auto ok = Check({{"dispatch.max_running", dispatch.max_running, 0, 100'000}}); !ok) return ok;
  if (auto ok = CheckEvidence(evidence); !ok) return ok;
  std::set<std::string> target_names;
  for (const TargetConfig& target : targets) {
    if (const auto ok = CheckTarget(target); !ok) return ok;
    if (dispatch.max_running > 0 && target.concurrency > dispatch.max_running) {
      return Wrong(
          fmt::format("target {}: concurrency {} is more than dispatch.max_running {}: raise dispatch.max_running "
                      "or lower concurrency",
                      target.name, target.concurrency, dispatch.max_running));
    }
    if (!target_names.insert(target.name).second) return Wrong(fmt::format("two targets are named {}", target.name));
  }
  std::set<std::string> source_names;
  for (const SourceConfig& source : sources) {
    if (const auto ok = intake::CheckSource(source); !ok) return ok;
    if (source.name == kProbeName) return std::unexpected(Reserved("source"));
    if (auto ok = Check({Length(fmt::format("source {}: silent_after", source.name), source.silent_after, Duration(0),
                                std::chrono::hours(24 * 365))});
        !ok) {
      return ok;
    }
    if (!source_names.insert(source.name).second) return Wrong(fmt::format("two sources are named {}", source.name));
    if (!target_names.contains(source.target)) {
      return Wrong(source.target.empty()
                       ? fmt::format("source {}: target is missing", source.name)
                       : fmt::format("source {}: there is no [[target]] named {}", source.name, source.target));
    }
  }
  if (auto ok = Check({Length("probe.every", probe.every, Duration(0), std::chrono::hours(24 * 365))}); !ok) return ok;
  if (probe.every != Duration(0) && probe.every < std::chrono::minutes(1)) {
    return Wrong("probe.every is shorter than 1m; each probe is an event that is kept");
  }
  std::set<std::string> receiver_names;
  for (const AlertConfig& alert : alerts) {
    if (const auto ok = CheckAlert(alert, source_names); !ok) return ok;
    if (!receiver_names.insert(observe::ReceiverName(alert)).second) {
      return Wrong(fmt::format("two alerts are named {}: give each a name", observe::ReceiverName(alert)));
    }
  }
  if (log_level != "debug" && log_level != "info" && log_level != "warn" && log_level != "error") {
    return Wrong("log.level must be debug, info, warn or error");
  }
  return {};
}

}  // namespace dlo
