// Everything that can be configured, with its default. `dlo serve` fills this from TOML; an embedding program fills it
// directly. Validate() names the field and the rule it broke.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlo/handler.h"
#include "dlo/result.h"
#include "dlo/time.h"

namespace dlo {

/// A secret with the name under which verdicts and logs mention it.
struct Secret {
  std::string id;  // "secrets[0]"
  std::string value;
};

/// The generic HMAC scheme: header(s) -> {timestamp?, signatures[]}; template -> signed bytes; hash; encoding; key
/// form. Almost every provider is an instance of it (docs/operating.md lists settings for the common ones).
struct HmacSettings {
  std::string signature_header;            // "X-Signature"
  std::string signature_format = "plain";  // "plain": the whole value is one signature, after `prefix`;
                                           // "list": comma-separated, each after `prefix`;
                                           // "pairs": "t=..,v1=..", named by timestamp_name and signature_name
  std::string prefix;                      // "sha256="; required on each signature where set (list, plain)
  std::string pair_separator = ",";        // between pairs; Paddle uses ";"
  std::string timestamp_name = "t";        // in "pairs"
  std::string signature_name = "v1";       // in "pairs"
  std::string timestamp_header;            // where the timestamp has a header of its own
  std::string id_header;                   // for {id} in the template
  std::string signed_template = "{body}";  // of {timestamp} {id} {body} {url} and literals: "{timestamp}.{body}"
  std::string url;                         // for {url}: the exact public URL (Square)
  std::string hash = "sha256";             // sha1 | sha256 | sha512
  std::string encoding = "hex";            // hex (either case) | base64 (padded)
  std::string key_decoding = "text";       // text | hex | base64 | whsec (strip "whsec_", then base64)
  std::string timestamp_unit = "s";        // s | ms
};

enum class OnPark : unsigned char { release, hold };

struct SourceConfig {
  std::string name;             // [a-z0-9][a-z0-9_-]{0,63}: POST /in/{name}
  std::string scheme;           // stripe | standard-webhooks | github | hmac | none; "none" must be spelled out
  std::vector<Secret> secrets;  // every secret is tried against every signature
  HmacSettings hmac;            // scheme = "hmac" only
  std::string target;
  // Where the facts live: a JSON pointer ("/data/object/subscription"), "header:Name", or several separated by "|"
  // (first that is present wins). Unset = the scheme's own default; "" = none.
  std::optional<std::string> key, kind, subject, account, livemode, occurred_at;
  // JSON pointers that the sender changes per delivery; they do not make a conflict. Unset = the scheme's default.
  std::optional<std::vector<std::string>> volatile_fields;
  bool require_live = false;  // TOML `livemode = true`: test-mode events are resolved as test_event at once
  Duration tolerance_past = std::chrono::seconds(300);   // 0 = no age check
  Duration tolerance_future = std::chrono::seconds(30);  // likewise; a captured delivery lives for both together
  std::size_t max_body = std::size_t{1} << 20;           // bytes; ceiling 32 MiB
  std::int64_t max_waiting = 100'000;                    // this many waiting: 429
  OnPark on_park = OnPark::release;
  std::int64_t hold_max_events = 10'000;           // more than this behind one parked event: alarm and release
  Duration hold_max_age = std::chrono::hours(24);  // likewise for its age
  Duration notify_within = std::chrono::hours(24);
  Duration silent_after{};  // no receipt for longer: alert silent_source. 0 = it may be silent
};

/// The internal source and target of the probe (`dlo probe`). No source and no target may have this name.
inline constexpr const char* kProbeName = "dlo-probe";

struct ProbeConfig {
  Duration every{};  // a probe by itself when no letter came in and none was made for so long; 0 = never
};

struct BusinessHours {
  std::vector<int> days = {1, 2, 3, 4, 5};  // 0 = Sunday
  Duration from = std::chrono::hours(9);    // since midnight, in the zone
  Duration to = std::chrono::hours(17);
  std::string zone = "UTC";  // a name of the tz database: "Europe/Berlin"
};

/// Somebody who is told when something is wrong.
struct AlertConfig {
  std::string name;                  // of this receiver; empty = the host of its URL
  std::string url;                   // for "alertmanager" without a path, its /api/v2/alerts is meant
  std::string format = "json";       // json | slack | alertmanager
  std::vector<std::string> on;       // arrivals, depth, oldest, overdue_holds, silent_source, accounting, disk, probe;
                                     // empty = all
  std::vector<std::string> sources;  // empty = all
  std::int64_t depth_over = 100;     // letters in state dead, of these sources together
  Duration oldest_over = std::chrono::hours(24);      // age of the oldest letter in state dead, of each source
  Duration arrivals_every = std::chrono::minutes(1);  // at most one alert of a cause in so long; it counts the others
  Duration repeat_every = std::chrono::hours(4);      // what still fires is told again after this
  Duration resolve_after = std::chrono::minutes(5);   // what does not fire for so long is resolved
  std::optional<BusinessHours> business_hours;        // unset: always
  std::string outside = "ticket";                     // ticket | hold (until they begin) | another URL
  std::string secret;  // "whsec_..." of Standard Webhooks, signs format json; empty = not signed
  bool allow_private = false;
  Duration timeout = std::chrono::seconds(10);
};

enum class TargetType : unsigned char { http, in_process };

struct TargetConfig {
  std::string name;
  TargetType type = TargetType::http;
  std::string url;                              // http
  Handler handler;                              // in_process
  bool allow_private = false;                   // loopback and private addresses; metadata addresses stay refused
  Duration timeout = std::chrono::seconds(30);  // total, headers and body
  Duration connect_timeout = std::chrono::seconds(3);
  int concurrency = 8;  // 1..256
  std::vector<Duration> retry = {std::chrono::seconds(5), std::chrono::seconds(30), std::chrono::seconds(120),
                                 std::chrono::seconds(600), std::chrono::seconds(1800)};  // 1 first try + these
  double jitter = 0.5;                               // each wait is drawn from [1-jitter, 1+jitter] times its value
  Duration retry_after_max = std::chrono::hours(1);  // a handler's Retry-After is a floor of the wait up to this
  // Retries in any 60 s: this share of the first calls of the last 60 s, or so many a second, whichever is more. Both
  // 0: no budget. Over it a retry is put off and its attempt not counted.
  double retry_budget_percent = 10;
  double retry_budget_min = 1;
  // Failures of the target itself in a row, or this share of the last 20 attempts, stop the calls for breaker_open,
  // then twice as long each time that one probe fails, up to breaker_open_max.
  int breaker_failures = 10;
  int breaker_percent = 50;
  Duration breaker_open = std::chrono::seconds(30);
  Duration breaker_open_max = std::chrono::minutes(5);
  std::size_t max_answer_header_bytes = 32 * 1024;  // of an answer; more is a failed attempt
  std::size_t max_answer_body_bytes = 64 * 1024;    // likewise; the first 4 KiB are kept
  std::string signing_secret;  // "whsec_..." of Standard Webhooks, signs what we send; empty = not signed
};

struct DispatchConfig {
  // Attempts in the hands of all targets. A target without one may always have one, so that those which hang cannot
  // stop the others. 0 = 64, or what the largest target may have alone.
  int max_running = 0;
};

struct StoreConfig {
  std::string url = "sqlite:data/dlo.db";         // a folder beside it holds the journal: data/journal
  std::size_t hot_bytes = std::size_t{32} << 20;  // bodies kept in memory from receipt to dispatch
  std::int64_t max_waiting = 1'000'000;           // of all sources: this many waiting, 503
  // Less free on the disk than these bytes, or than this share of it: 503. Accepted again at twice the bytes and 1.6
  // times the share. 0 = no such limit.
  std::uint64_t min_free = std::uint64_t{512} << 20;
  double min_free_percent = 5;
  double warn_free_percent = 20;  // less: a warning in the log, and dlo_disk_low is 1
};

/// What becomes of events that are over. Unset = infinity: it stays where it is.
struct RetentionConfig {
  std::optional<Duration> succeeded = std::chrono::hours(24 * 14);   // then archived, and pruned from the index
  std::optional<Duration> closed = std::chrono::hours(24 * 90);      // likewise: replayed and resolved ones
  std::optional<Duration> cold_after = std::chrono::hours(24 * 90);  // unresolved letters move too, and stay listed
  std::string archive;                                               // folder; empty: "archive" beside the database
};

struct ServerConfig {
  std::string listen = "127.0.0.1:8686";
  std::string tls_cert, tls_key;  // PEM files; both or none
  int io_threads = 0;             // 0 = min(cores, 4)
  int max_connections = 1024;
  int max_connections_per_address = 64;  // loopback is exempt
  int max_requests_per_connection = 1'000;
  std::size_t max_request_line = 8 * 1024;
  std::size_t max_header_bytes = 16 * 1024;  // all fields of a request together
  int max_header_fields = 100;
  Duration handshake_deadline = std::chrono::seconds(10);  // TLS
  Duration head_deadline = std::chrono::seconds(10);       // request line and header fields
  Duration body_deadline = std::chrono::seconds(30);
  Duration body_grace = std::chrono::seconds(5);  // from then on a body comes at min_body_rate at least
  std::size_t min_body_rate = 1024;               // bytes a second; 0 = as slowly as body_deadline lets it
  Duration idle_deadline = std::chrono::seconds(75);
  Duration write_deadline = std::chrono::seconds(10);  // and 1 s more for each 64 KiB
  std::size_t inflight_body_bytes = std::size_t{64} << 20;
  std::size_t max_admin_body = 256 * 1024;
  int bad_tokens_per_minute = 5;  // of one address, then 429
  // Resident bytes of the process: more, 503; 0 = no limit. A file that does not say starts with 512 MiB; what an
  // embedding program holds besides is its own matter.
  std::uint64_t max_memory = 0;
  Duration commit_deadline = std::chrono::seconds(3);  // then 503
};

/// Where the head of the audit log's chain is put besides the store, so that nobody can rewrite the log unseen.
struct EvidenceConfig {
  std::string head_file;                   // a line is appended to it; better on another machine's disk
  std::string head_url;                    // it is posted there
  Duration every = std::chrono::hours(1);  // and once at the start
  std::string signing_secret;              // "whsec_...": signs what is posted; empty = not signed
  bool allow_private = false;              // of head_url: loopback and private addresses
};

struct Config {
  StoreConfig store;
  ServerConfig server;
  DispatchConfig dispatch;
  RetentionConfig retention;
  EvidenceConfig evidence;
  std::vector<SourceConfig> sources;
  std::vector<TargetConfig> targets;
  std::vector<AlertConfig> alerts;
  ProbeConfig probe;
  std::string log_level = "info";  // debug | info | warn | error

  /// First broken rule, naming the field; ok otherwise.
  [[nodiscard]] Result<void> Validate() const;
};

}  // namespace dlo
