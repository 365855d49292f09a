#include "app/config_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <set>
#include <sstream>

#include "base/log.h"
#include "base/time_text.h"

namespace dlo::app {
namespace {

constexpr std::uint64_t kMaxMemory = std::uint64_t{512} << 20;  // `dlo serve` has its process to itself

/// Reads one table: each getter marks its key as known, Finish() reports the rest.
class Table {
 public:
  Table(const toml::table& table, std::string where, std::string file, std::vector<std::string>& errors)
      : table_(table), where_(std::move(where)), file_(std::move(file)), errors_(errors) {}

  void Text(const char* key, std::string& out) {
    if (const auto* node = Find(key)) {
      if (const auto v = node->value_exact<std::string>()) {
        out = *v;
      } else {
        Wrong(*node, key, "text in quotes");
      }
    }
  }
  void Text(const char* key, std::optional<std::string>& out) {
    std::string text;
    if (table_.contains(key)) {
      Text(key, text);
      out = text;
    }
  }
  void Flag(const char* key, bool& out) {
    if (const auto* node = Find(key)) {
      if (const auto v = node->value_exact<bool>()) {
        out = *v;
      } else {
        Wrong(*node, key, "true or false");
      }
    }
  }
  template <typename Int>
  void Number(const char* key, Int& out, std::int64_t low, std::int64_t high) {
    if (const auto* node = Find(key)) {
      const auto v = node->value_exact<std::int64_t>();
      if (v && *v >= low && *v <= high) {
        out = static_cast<Int>(*v);
      } else {
        Wrong(*node, key, fmt::format("a whole number from {} to {}", low, high));
      }
    }
  }
  void Real(const char* key, double& out, double low, double high) {
    if (const auto* node = Find(key)) {
      const auto v = node->value<double>();
      if (v && *v >= low && *v <= high) {
        out = *v;
      } else {
        Wrong(*node, key, fmt::format("a number from {} to {}", low, high));
      }
    }
  }
  void Length(const char* key, Duration& out) {
    if (const auto* node = Find(key)) {
      const auto text = node->value_exact<std::string>();
      const auto v = text ? ParseDuration(*text) : std::nullopt;
      if (v) {
        out = *v;
      } else {
        Wrong(*node, key, "a duration such as \"30s\", \"5m\", \"24h\"");
      }
    }
  }
  /// As Length; "infinity" unsets it.
  void LengthOrInfinity(const char* key, std::optional<Duration>& out) {
    const auto* node = table_.get(key);
    if (node != nullptr && node->value_exact<std::string>() == "infinity") {
      known_.insert(key);
      out.reset();
      return;
    }
    Duration length = out.value_or(Duration(0));
    Length(key, length);
    if (node != nullptr) out = length;
  }
  void Bytes(const char* key, std::size_t& out) {
    if (const auto* node = Find(key)) {
      if (const auto n = node->value_exact<std::int64_t>(); n && *n >= 0) {
        out = static_cast<std::size_t>(*n);
        return;
      }
      const auto text = node->value_exact<std::string>();
      std::size_t unit = 0;
      std::size_t digits = text ? text->find_first_not_of("0123456789") : 0;
      if (text && digits != 0 && digits != std::string::npos && digits < 10) {
        const std::string suffix = text->substr(digits);
        if (suffix == "KiB") unit = std::size_t{1} << 10;
        if (suffix == "MiB") unit = std::size_t{1} << 20;
        if (suffix == "GiB") unit = std::size_t{1} << 30;
      }
      if (unit != 0) {
        out = std::stoul(*text) * unit;
      } else {
        Wrong(*node, key, "a size such as \"1MiB\" or a number of bytes");
      }
    }
  }
  std::vector<std::string> List(const char* key) {
    std::vector<std::string> out;
    if (const auto* node = Find(key)) {
      const auto* array = node->as_array();
      if (array == nullptr) {
        Wrong(*node, key, "a list of texts");
        return out;
      }
      for (const auto& item : *array) {
        if (const auto v = item.value_exact<std::string>()) {
          out.push_back(*v);
        } else {
          Wrong(item, key, "a list of texts");
        }
      }
    }
    return out;
  }
  const toml::node* Find(const char* key) {
    known_.insert(key);
    return table_.get(key);
  }
  [[nodiscard]] bool Has(const char* key) const { return table_.contains(key); }
  [[nodiscard]] int line() const { return static_cast<int>(table_.source().begin.line); }
  void Wrong(const toml::node& node, std::string_view key, std::string_view want) {
    errors_.push_back(fmt::format("{}:{}: {}{} must be {}", file_, node.source().begin.line, where_, key, want));
  }
  void Error(const std::string& what) { errors_.push_back(fmt::format("{}:{}: {}", file_, line(), what)); }
  void Finish() {
    for (const auto& [key, node] : table_) {
      if (known_.contains(std::string(key.str()))) continue;
      std::string words;
      for (const std::string& k : known_) words += (words.empty() ? "" : ", ") + k;
      errors_.push_back(fmt::format("{}:{}: unknown key {}{}; known here: {}", file_, key.source().begin.line, where_,
                                    key.str(), words));
    }
  }

 private:
  const toml::table& table_;
  std::string where_, file_;
  std::vector<std::string>& errors_;
  std::set<std::string> known_;
};

class Reader {
 public:
  Reader(std::string file, const Environment& environment) : file_(std::move(file)), environment_(environment) {}

  Result<Config> Read(const toml::table& root) {
    Config config;
    config.server.max_memory = kMaxMemory;
    Table top(root, "", file_, errors_);
    Section(top, "store", [&](Table& t) { ReadStore(t, config.store); });
    Section(top, "server", [&](Table& t) { ReadServer(t, config.server); });
    Section(top, "dispatch", [&](Table& t) { t.Number("max_running", config.dispatch.max_running, 0, 100'000); });
    Section(top, "retention", [&](Table& t) { ReadRetention(t, config.retention); });
    Section(top, "evidence", [&](Table& t) { ReadEvidence(t, config.evidence); });
    Section(top, "log", [&](Table& t) { t.Text("level", config.log_level); });
    Each(top, "source", [&](Table& t) { config.sources.push_back(ReadSource(t)); });
    Each(top, "target", [&](Table& t) { config.targets.push_back(ReadTarget(t)); });
    Each(top, "alert", [&](Table& t) { config.alerts.push_back(ReadAlert(t)); });
    Section(top, "probe", [&](Table& t) { t.Length("every", config.probe.every); });
    top.Finish();
    if (errors_.empty()) {
      if (const auto valid = config.Validate(); !valid) errors_.push_back(file_ + ": " + valid.error().message);
    }
    if (errors_.empty()) return config;
    std::string all;
    for (const std::string& e : errors_) all += (all.empty() ? "" : "\n") + e;
    return Fail(ErrorKind::invalid, "config", all);
  }

 private:
  template <typename F>
  void Section(Table& top, const char* name, F read) {
    const auto* node = top.Find(name);
    if (node == nullptr) return;
    const auto* table = node->as_table();
    if (table == nullptr) return top.Wrong(*node, name, fmt::format("a section: [{}]", name));
    Table t(*table, std::string(name) + ".", file_, errors_);
    read(t);
    t.Finish();
  }
  template <typename F>
  void Each(Table& top, const char* name, F read) {
    const auto* node = top.Find(name);
    if (node == nullptr) return;
    const auto* array = node->as_array();
    if (array == nullptr) return top.Wrong(*node, name, fmt::format("written as [[{}]], once per {}", name, name));
    for (const auto& item : *array) {
      const auto* table = item.as_table();
      if (table == nullptr) {
        top.Wrong(item, name, fmt::format("written as [[{}]]", name));
        continue;
      }
      Table t(*table, std::string(name) + ".", file_, errors_);
      read(t);
      t.Finish();
    }
  }

  static void ReadStore(Table& t, StoreConfig& s) {
    t.Text("url", s.url);
    t.Bytes("hot_bytes", s.hot_bytes);
    t.Bytes("min_free", s.min_free);
    t.Real("min_free_percent", s.min_free_percent, 0, 50);
    t.Real("warn_free_percent", s.warn_free_percent, 0, 100);
    t.Number("max_waiting", s.max_waiting, 1, 1'000'000'000);
  }

  static void ReadRetention(Table& t, RetentionConfig& r) {
    t.LengthOrInfinity("succeeded", r.succeeded);
    t.LengthOrInfinity("closed", r.closed);
    t.LengthOrInfinity("cold_after", r.cold_after);
    t.Text("archive", r.archive);
  }

  static void ReadServer(Table& t, ServerConfig& s) {
    t.Text("listen", s.listen);
    t.Text("tls_cert", s.tls_cert);
    t.Text("tls_key", s.tls_key);
    t.Number("io_threads", s.io_threads, 0, 64);
    t.Number("max_connections", s.max_connections, 1, 100'000);
    t.Number("max_connections_per_address", s.max_connections_per_address, 1, 100'000);
    t.Number("max_requests_per_connection", s.max_requests_per_connection, 1, 1'000'000'000);
    t.Bytes("max_request_line", s.max_request_line);
    t.Bytes("max_header_bytes", s.max_header_bytes);
    t.Number("max_header_fields", s.max_header_fields, 10, 1'000);
    t.Length("handshake_deadline", s.handshake_deadline);
    t.Length("head_deadline", s.head_deadline);
    t.Length("body_deadline", s.body_deadline);
    t.Length("body_grace", s.body_grace);
    t.Bytes("min_body_rate", s.min_body_rate);
    t.Length("idle_deadline", s.idle_deadline);
    t.Length("write_deadline", s.write_deadline);
    t.Bytes("inflight_body_bytes", s.inflight_body_bytes);
    t.Bytes("max_admin_body", s.max_admin_body);
    t.Number("bad_tokens_per_minute", s.bad_tokens_per_minute, 1, 1'000);
    t.Bytes("max_memory", s.max_memory);
    t.Length("commit_deadline", s.commit_deadline);
  }

  SourceConfig ReadSource(Table& t) {
    SourceConfig s;
    t.Text("name", s.name);
    t.Text("scheme", s.scheme);
    t.Text("target", s.target);
    t.Text("key", s.key);
    t.Text("kind", s.kind);
    t.Text("subject", s.subject);
    t.Text("account", s.account);
    t.Text("occurred_at", s.occurred_at);
    if (const auto* node =
            t.Find("livemode")) {  // a pointer to the field, or `true`: this source takes live events only
      if (const auto flag = node->value_exact<bool>()) {
        s.require_live = *flag;
      } else {
        t.Text("livemode", s.livemode);
      }
    }
    if (t.Has("volatile_fields")) s.volatile_fields = t.List("volatile_fields");
    t.Bytes("max_body", s.max_body);
    t.Number("max_waiting", s.max_waiting, 1, 1'000'000'000);
    if (t.Has("tolerance")) {
      t.Length("tolerance", s.tolerance_past);
      s.tolerance_future = std::min(s.tolerance_future, s.tolerance_past);
    }
    t.Length("tolerance_future", s.tolerance_future);
    std::string on_park = "release";
    t.Text("on_park", on_park);
    if (on_park != "release" && on_park != "hold") t.Error("source.on_park must be \"release\" or \"hold\"");
    s.on_park = on_park == "hold" ? OnPark::hold : OnPark::release;
    t.Number("hold_max_events", s.hold_max_events, 1, 10'000'000);
    t.Length("hold_max_age", s.hold_max_age);
    t.Length("notify_within", s.notify_within);
    t.Length("silent_after", s.silent_after);
    ReadSecrets(t, s);
    ReadHmac(t, s.hmac);
    return s;
  }

  void ReadSecrets(Table& t, SourceConfig& s) {
    int n = 0;
    for (const std::string& spec : t.List("secrets")) {
      std::string id = fmt::format("secrets[{}]", n++);
      if (spec.starts_with("env:")) {
        const auto value = environment_(spec.substr(4));
        if (!value) {
          t.Error(fmt::format("source {}: {} is not set in the environment; export it before the start", s.name,
                              spec.substr(4)));
        }
        s.secrets.push_back({std::move(id), value.value_or("")});
      } else if (spec.starts_with("file:")) {
        std::ifstream in(spec.substr(5), std::ios::binary);
        std::string value((std::istreambuf_iterator<char>(in)), {});
        if (!in.good() && !in.eof()) t.Error(fmt::format("source {}: cannot read {}", s.name, spec.substr(5)));
        if (value.ends_with('\n')) value.pop_back();
        if (value.ends_with('\r')) value.pop_back();
        s.secrets.push_back({std::move(id), std::move(value)});
      } else {
        log::Warn("config.literal_secret",
                  {{"source", s.name},
                   {"secret", id},
                   {"hint", "use \"env:NAME\" or \"file:PATH\" so that the file can be shared"}});
        s.secrets.push_back({std::move(id), spec});
      }
    }
  }

  void ReadHmac(Table& t, HmacSettings& h) {
    Section(t, "hmac", [&](Table& k) {
      k.Text("signature_header", h.signature_header);
      k.Text("signature_format", h.signature_format);
      k.Text("prefix", h.prefix);
      k.Text("pair_separator", h.pair_separator);
      k.Text("timestamp_name", h.timestamp_name);
      k.Text("signature_name", h.signature_name);
      k.Text("timestamp_header", h.timestamp_header);
      k.Text("id_header", h.id_header);
      k.Text("signed_template", h.signed_template);
      k.Text("url", h.url);
      k.Text("hash", h.hash);
      k.Text("encoding", h.encoding);
      k.Text("key_decoding", h.key_decoding);
      k.Text("timestamp_unit", h.timestamp_unit);
    });
  }

  TargetConfig ReadTarget(Table& t) {
    TargetConfig g;
    t.Text("name", g.name);
    std::string type = "http";
    t.Text("type", type);
    if (type != "http") {
      t.Error(
          fmt::format("target.type \"{}\" is not known here; write \"http\" (an in-process handler is given by the "
                      "embedding program, not by a file)",
                      type));
    }
    t.Text("url", g.url);
    t.Flag("allow_private", g.allow_private);
    t.Length("timeout", g.timeout);
    t.Length("connect_timeout", g.connect_timeout);
    t.Number("concurrency", g.concurrency, 1, 256);
    t.Real("jitter", g.jitter, 0, 1);
    t.Length("retry_after_max", g.retry_after_max);
    t.Real("retry_budget_percent", g.retry_budget_percent, 0, 100);
    t.Real("retry_budget_min", g.retry_budget_min, 0, 1'000);
    t.Number("breaker_failures", g.breaker_failures, 1, 1'000);
    t.Number("breaker_percent", g.breaker_percent, 1, 100);
    t.Length("breaker_open", g.breaker_open);
    t.Length("breaker_open_max", g.breaker_open_max);
    t.Bytes("max_answer_header_bytes", g.max_answer_header_bytes);
    t.Bytes("max_answer_body_bytes", g.max_answer_body_bytes);
    if (t.Has("retry")) {
      g.retry.clear();
      for (const std::string& text : t.List("retry")) {
        const auto wait = ParseDuration(text);
        if (!wait) t.Error(fmt::format("target.retry: \"{}\" is not a duration such as \"5s\"", text));
        g.retry.push_back(wait.value_or(Duration(0)));
      }
    }
    g.signing_secret = SigningSecret(t, "target " + g.name);
    return g;
  }

  void ReadEvidence(Table& t, EvidenceConfig& e) {
    t.Text("head_file", e.head_file);
    t.Text("head_url", e.head_url);
    t.Length("every", e.every);
    t.Flag("allow_private", e.allow_private);
    e.signing_secret = SigningSecret(t, "evidence");
  }

  std::string SigningSecret(Table& t, const std::string& of) {
    std::string secret;
    t.Text("signing_secret", secret);
    const bool signs = t.Has("signing_secret");
    if (secret.starts_with("env:")) {
      const auto value = environment_(secret.substr(4));
      if (!value) t.Error(fmt::format("{}: {} is not set in the environment", of, secret.substr(4)));
      secret = value.value_or("");
    }
    // Not taken for "sends unsigned", which is said by leaving it out.
    if (signs && secret.empty()) t.Error(fmt::format("{}: signing_secret is empty", of));
    return secret;
  }

  AlertConfig ReadAlert(Table& t) {
    AlertConfig a;
    t.Text("name", a.name);
    t.Text("url", a.url);
    t.Text("format", a.format);
    a.on = t.List("on");
    if (t.Has("on") && a.on.empty())
      t.Error("alert.on is empty: name what to alert on, or leave it out for everything");
    a.sources = t.List("sources");
    t.Number("depth_over", a.depth_over, 0, 1'000'000'000);
    t.Length("oldest_over", a.oldest_over);
    t.Length("arrivals_every", a.arrivals_every);
    t.Length("repeat_every", a.repeat_every);
    t.Length("resolve_after", a.resolve_after);
    t.Text("outside", a.outside);
    t.Flag("allow_private", a.allow_private);
    t.Length("timeout", a.timeout);
    std::string secret;
    t.Text("secret", secret);
    if (t.Has("secret")) a.secret = ReadSecret(t, secret, "alert.secret");
    if (a.url.starts_with("env:") || a.url.starts_with("file:")) a.url = ReadSecret(t, a.url, "alert.url");
    if (t.Has("business_hours")) {
      a.business_hours = BusinessHours();
      Section(t, "business_hours", [&](Table& h) { ReadHours(h, *a.business_hours); });
    } else if (t.Has("outside")) {
      t.Error("alert.outside says where alerts go outside business_hours, which are not set");
    }
    return a;
  }

  static void ReadHours(Table& t, BusinessHours& hours) {
    constexpr std::array kDays = {"sun", "mon", "tue", "wed", "thu", "fri", "sat"};
    if (t.Has("days")) {
      hours.days.clear();
      for (const std::string& day : t.List("days")) {
        const auto found = std::ranges::find(kDays, day);
        if (found == kDays.end()) {
          t.Error(fmt::format("business_hours.days: \"{}\" is not one of mon, tue, wed, thu, fri, sat, sun", day));
        } else {
          hours.days.push_back(static_cast<int>(found - kDays.begin()));
        }
      }
    }
    const auto clock = [&t](const char* key, Duration& out) {
      std::string text;
      t.Text(key, text);
      if (!t.Has(key)) return;
      const auto digit = [&](std::size_t i) { return text[i] >= '0' && text[i] <= '9'; };
      if (text.size() == 5 && text[2] == ':' && digit(0) && digit(1) && digit(3) && digit(4)) {
        const int hour = std::stoi(text.substr(0, 2)), minute = std::stoi(text.substr(3));
        out = std::chrono::hours(hour) + std::chrono::minutes(minute);
        if (minute < 60 && out <= std::chrono::hours(24)) return;
      }
      t.Error(fmt::format("business_hours.{}: \"{}\" is not a time of day such as \"09:00\"", key, text));
    };
    clock("from", hours.from);
    clock("to", hours.to);
    t.Text("zone", hours.zone);
  }

  /// The value of "env:NAME", "file:PATH" or a literal; never empty, which would mean "none".
  std::string ReadSecret(Table& t, const std::string& spec, const char* what) {
    std::string value = spec;
    if (spec.starts_with("env:")) {
      const auto found = environment_(spec.substr(4));
      if (!found) t.Error(fmt::format("{}: {} is not set in the environment", what, spec.substr(4)));
      value = found.value_or("");
    } else if (spec.starts_with("file:")) {
      std::ifstream in(spec.substr(5), std::ios::binary);
      value.assign(std::istreambuf_iterator<char>(in), {});
      if (!in.good() && !in.eof()) t.Error(fmt::format("{}: cannot read {}", what, spec.substr(5)));
      while (value.ends_with('\n') || value.ends_with('\r')) value.pop_back();
    }
    if (value.empty()) t.Error(fmt::format("{} is empty", what));
    return value;
  }

  std::string file_;
  const Environment& environment_;
  std::vector<std::string> errors_;
};

}  // namespace

Result<Config> ParseConfig(const std::string& text, const std::string& name, const Environment& environment) {
  toml::table parsed;
  try {  // the packaged library reports syntax errors by throwing
    parsed = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return Fail(ErrorKind::invalid, "config",
                fmt::format("{}:{}: {}", name, error.source().begin.line, error.description()));
  }
  return Reader(name, environment).Read(parsed);
}

Result<Config> LoadConfig(const std::string& path, const Environment& environment) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Fail(ErrorKind::not_found, "config_missing", path + ": cannot be read; give a file with --config");
  std::stringstream text;
  text << in.rdbuf();
  return ParseConfig(text.str(), path, environment);
}

}  // namespace dlo::app
