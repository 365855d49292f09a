#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "app/config_file.h"

namespace dlo::app {
namespace {

const std::string kGood = R"(
[store]
url = "sqlite:data/dlo.db"
[server]
listen = "127.0.0.1:0"
[[source]]
name = "stripe"
scheme = "stripe"
secrets = ["env:STRIPE_SECRET"]
target = "billing"
max_body = "2MiB"
tolerance = "60s"
on_park = "hold"
[[target]]
name = "billing"
url = "http://127.0.0.1:3000/webhooks"
allow_private = true
retry = ["5s", "250ms"]
)";

std::optional<std::string> Lookup(const std::string& name) {
  if (name == "STRIPE_SECRET") return "whsec_0123456789abcdef0123456789";
  if (name == "EMPTY") return "";
  if (name == "BLANK") return std::string(40, ' ');
  return std::nullopt;
}

Result<Config> Parse(const std::string& text) {
  return ParseConfig(text, "dlo.toml", Lookup);
}

std::string With(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(ConfigFile, ReadsWhatIsWrittenAndKeepsDefaults) {
  const Result<Config> config = Parse(kGood);
  ASSERT_TRUE(config) << config.error().message;
  ASSERT_EQ(config->sources.size(), 1U);
  const SourceConfig& source = config->sources[0];
  EXPECT_EQ(source.secrets.at(0).value, "whsec_0123456789abcdef0123456789");
  EXPECT_EQ(source.secrets.at(0).id, "secrets[0]");
  EXPECT_EQ(source.max_body, std::size_t{2} << 20);
  EXPECT_EQ(source.tolerance_past, std::chrono::seconds(60));
  EXPECT_EQ(source.tolerance_future, std::chrono::seconds(30));
  EXPECT_EQ(source.on_park, OnPark::hold);
  EXPECT_FALSE(source.require_live);
  EXPECT_EQ(config->targets.at(0).retry,
            (std::vector<Duration>{std::chrono::seconds(5), std::chrono::milliseconds(250)}));
  EXPECT_EQ(config->targets.at(0).concurrency, 8);
  EXPECT_EQ(config->server.max_memory, std::uint64_t{512} << 20);
  EXPECT_EQ(Config().server.max_memory, 0U) << "an embedding program's memory is its own";
}

TEST(ConfigFile, WhereTheHeadsOfTheAuditLogGo) {
  const std::string good = R"([evidence]
head_file = "/mnt/other/heads"
head_url = "https://evidence.example/heads"
every = "10m"
signing_secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="
)";
  const auto config = Parse(good + kGood);
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->evidence.head_file, "/mnt/other/heads");
  EXPECT_EQ(config->evidence.every, std::chrono::minutes(10));
  const std::pair<const char*, const char*> wrong[] = {
      {"every = \"1ms\"", "evidence.every"},
      {"head_url = \"ftp://x\"", "evidence.head_url"},
      {"head_url = \"https://e.example\"\nsigning_secret = \"whsec_c2hvcnQ=\"", "evidence: signing_secret"},
      {"signing_secret = \"whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=\"", "no evidence.head_url"},
      {"head_url = \"https://e.example\"\nsigning_secret = \"env:EMPTY\"", "signing_secret is empty"},
      {"heads = 1", "unknown key evidence.heads"},
  };
  for (const auto& [text, said] : wrong) {
    const auto refused = Parse(std::string("[evidence]\n") + text + "\n" + kGood);
    ASSERT_FALSE(refused) << text;
    EXPECT_NE(refused.error().message.find(said), std::string::npos) << refused.error().message;
  }
}

TEST(ConfigFile, LivemodeIsAPointerOrARule) {
  const auto rule = Parse(With("on_park = \"hold\"", "livemode = true"));
  ASSERT_TRUE(rule) << rule.error().message;
  EXPECT_TRUE(rule->sources[0].require_live);
  const auto pointer = Parse(With("on_park = \"hold\"", "livemode = \"/live\""));
  ASSERT_TRUE(pointer) << pointer.error().message;
  EXPECT_EQ(pointer->sources[0].livemode, "/live");
}

TEST(ConfigFile, AheadOfOurClockASenderHas30SecondsUnlessItSaysOtherwise) {
  const struct {
    std::string line;
    int past, future;  // seconds
  } rows[] = {{"", 300, 30},
              {"tolerance = \"600s\"", 600, 30},
              {"tolerance = \"30s\"", 30, 30},
              {"tolerance = \"10s\"", 10, 10},
              {"tolerance = \"0s\"", 0, 0},
              {"tolerance_future = \"300s\"", 300, 300},
              {"tolerance = \"0s\"\ntolerance_future = \"5s\"", 0, 5}};
  for (const auto& row : rows) {
    const auto config = Parse(With("tolerance = \"60s\"", row.line));
    ASSERT_TRUE(config) << row.line << ": " << config.error().message;
    EXPECT_EQ(config->sources[0].tolerance_past, std::chrono::seconds(row.past)) << row.line;
    EXPECT_EQ(config->sources[0].tolerance_future, std::chrono::seconds(row.future)) << row.line;
  }
}

TEST(ConfigFile, EveryMistakeIsNamedWithItsLine) {
  struct Row {
    std::string from, to, want;
  };
  const Row rows[] = {
      {"listen = ", "lisen = ", "dlo.toml:5: unknown key server.lisen; known here: "},
      {"[server]", "[serve]", "unknown key serve"},
      {"max_body = \"2MiB\"", "max_body = \"2 MB\"", "dlo.toml:11: source.max_body must be a size"},
      {"tolerance = \"60s\"", "tolerance = 60", "dlo.toml:12: source.tolerance must be a duration"},
      {"on_park = \"hold\"", "on_park = \"keep\"", "source.on_park must be"},
      {"env:STRIPE_SECRET", "env:NOT_SET", "NOT_SET is not set in the environment"},
      {"env:STRIPE_SECRET", "file:/does/not/exist", "/does/not/exist"},
      {"secrets = [\"env:STRIPE_SECRET\"]", "secrets = []", "secret"},
      {"scheme = \"stripe\"", "scheme = \"stripes\"", "stripes"},
      {"target = \"billing\"", "target = \"biling\"", "there is no [[target]] named biling"},
      {"[[source]]", "[source]", "written as [[source]]"},
      {"\"250ms\"", "\"soon\"", "\"soon\" is not a duration"},
      {"url = \"http://127.0.0.1:3000/webhooks\"", "url = \"ftp://x/\"", "url"},
      {"url = \"http://127.0.0.1:3000/webhooks\"", "", "url is missing"},
      {"sqlite:data/dlo.db", "mysql:data", "store.url must be"},
      {"name = \"stripe\"", "name = \"Stripe!\"", "name must be"},
      {"allow_private = true", "allow_private = \"yes\"", "target.allow_private must be true or false"},
      {"allow_private = true", "concurrency = 0", "target.concurrency must be a whole number from 1 to 256"},
      {"allow_private = true", "signing_secret = \"\"", "target billing: signing_secret is empty"},
      {"allow_private = true", "signing_secret = \"env:EMPTY\"", "target billing: signing_secret is empty"},
      {"allow_private = true", "signing_secret = \"env:BLANK\"", "target billing: signing_secret"},
      {"allow_private = true", "signing_secret = \"whsec_MTIzNDU2Nzg=\"", "signing_secret must be 24 to 64 bytes"},
      {"env:STRIPE_SECRET", "env:BLANK", "secrets[0] is blank"},
      {"env:STRIPE_SECRET", "env:EMPTY", "secrets[0] is empty"},
      {"[store]", "[store", "dlo.toml:2"},
  };
  for (const Row& row : rows) {
    const auto config = Parse(With(row.from, row.to));
    ASSERT_FALSE(config) << row.to;
    EXPECT_NE(config.error().message.find(row.want), std::string::npos) << row.to << "\n" << config.error().message;
  }
}

std::string WithAlert(const std::string& lines) {
  return With("\"250ms\"]", "\"250ms\"]\n[[alert]]\n" + lines);
}

TEST(ConfigFile, AnAlertIsReadWithItsBusinessHours) {
  const auto config = Parse(WithAlert(
      "url = \"https://h/x\"\nformat = \"slack\"\non = [\"depth\"]\nsources = [\"stripe\"]\ndepth_over = 0\n"
      "outside = \"hold\"\nbusiness_hours = {days = [\"sun\", \"sat\"], from = \"08:30\", to = \"24:00\", zone = "
      "\"Europe/Berlin\"}\n[probe]\nevery = \"24h\""));
  ASSERT_TRUE(config) << config.error().message;
  const AlertConfig& alert = config->alerts.at(0);
  EXPECT_EQ(alert.format, "slack");
  EXPECT_EQ(alert.on, std::vector<std::string>{"depth"});
  EXPECT_EQ(alert.depth_over, 0);
  ASSERT_TRUE(alert.business_hours);
  EXPECT_EQ(alert.business_hours->days, (std::vector<int>{0, 6}));
  EXPECT_EQ(alert.business_hours->from, std::chrono::minutes(510));
  EXPECT_EQ(alert.business_hours->to, std::chrono::hours(24));
  EXPECT_EQ(config->probe.every, std::chrono::hours(24));
}

TEST(ConfigFile, EveryMistakeOfAnAlertIsNamed) {
  const std::string url = "url = \"https://h/x\"\n";
  const std::pair<std::string, std::string> rows[] = {
      {"", "alert.url is missing"},
      {"url = \"ftp://x\"", "alert x: url"},
      {url + "colour = \"red\"", "unknown key alert.colour; known here: "},
      {url + "format = \"teams\"", "format must be json, slack or alertmanager"},
      {url + "on = []", "alert.on is empty"},
      {url + "on = [\"attempts\"]", "there is no \"attempts\"; known: arrivals, depth"},
      {url + "sources = [\"strip\"]", "there is no [[source]] named strip"},
      {url + "depth_over = -1", "alert.depth_over must be a whole number"},
      {url + "arrivals_every = \"10ms\"", "arrivals_every is 10ms"},
      {url + "secret = \"whsec_MTIzNDU2Nzg=\"", "secret must be 24 to 64 bytes"},
      {url + "secret = \"\"", "alert.secret is empty"},
      {url + "secret = \"env:NOT_SET\"", "NOT_SET is not set"},
      {url + "outside = \"hold\"", "business_hours, which are not set"},
      {url + "business_hours = {zone = \"Mars/Olympus\"}", "not a zone"},
      {url + "business_hours = {days = [\"funday\"]}", "\"funday\" is not one of"},
      {url + "business_hours = {from = \"9\"}", "is not a time of day"},
      {url + "business_hours = {from = \"09:60\"}", "is not a time of day"},
      {url + "business_hours = {from = \"22:00\", to = \"06:00\"}", "from must be before to"},
      {url + "outside = \"nobody\"\nbusiness_hours = {}", "outside must be \"ticket\""},
      {url + "[[alert]]\n" + url, "two alerts are named h"},
      {url + "[probe]\nevery = \"1s\"", "probe.every is shorter than 1m"},
      {url + "[[target]]\nname = \"dlo-probe\"\nurl = \"http://h/\"", "the probe's own"},
  };
  for (const auto& [lines, want] : rows) {
    const auto config = Parse(WithAlert(lines));
    ASSERT_FALSE(config) << lines;
    EXPECT_NE(config.error().message.find(want), std::string::npos) << lines << "\n" << config.error().message;
  }
}

// Every limit that a file can set: read into its field, and refused outside its range with the setting's name.
TEST(ConfigFile, EveryLimitIsReadAndItsRangeIsNamed) {
  struct Row {
    std::string section, key, good;
    std::function<bool(const Config&)> taken;
    std::string bad, want;
  };
  using std::chrono::milliseconds;
  using std::chrono::seconds;
  constexpr std::size_t kKiB = 1024;
  const std::vector<Row> rows = {
      {"[server]", "max_connections", "7", [](const Config& c) { return c.server.max_connections == 7; }, "0",
       "server.max_connections must be a whole number from 1 to 100000"},
      {"[server]", "max_connections_per_address", "7",
       [](const Config& c) { return c.server.max_connections_per_address == 7; }, "0",
       "server.max_connections_per_address must be a whole number from 1"},
      {"[server]", "max_requests_per_connection", "7",
       [](const Config& c) { return c.server.max_requests_per_connection == 7; }, "-1",
       "server.max_requests_per_connection must be a whole number from 1"},
      {"[server]", "max_request_line", "\"1KiB\"", [](const Config& c) { return c.server.max_request_line == kKiB; },
       "\"1MiB\"", "server.max_request_line is 1MiB; it must be from 256 bytes to 64KiB"},
      {"[server]", "max_header_bytes", "\"2KiB\"",
       [](const Config& c) { return c.server.max_header_bytes == 2 * kKiB; }, "10",
       "server.max_header_bytes is 10 bytes; it must be from 1KiB to 256KiB"},
      {"[server]", "max_header_fields", "20", [](const Config& c) { return c.server.max_header_fields == 20; }, "9",
       "server.max_header_fields must be a whole number from 10 to 1000"},
      {"[server]", "handshake_deadline", "\"3s\"",
       [](const Config& c) { return c.server.handshake_deadline == seconds(3); }, "\"0s\"",
       "server.handshake_deadline is 0s; it must be from 100ms to 1h"},
      {"[server]", "head_deadline", "\"3s\"", [](const Config& c) { return c.server.head_deadline == seconds(3); }, "3",
       "server.head_deadline must be a duration"},
      {"[server]", "body_deadline", "\"3s\"", [](const Config& c) { return c.server.body_deadline == seconds(3); },
       "\"2h\"", "server.body_deadline is 2h; it must be from 100ms to 1h"},
      {"[server]", "body_grace", "\"0s\"", [](const Config& c) { return c.server.body_grace == seconds(0); }, "\"2h\"",
       "server.body_grace is 2h; it must be from 0s to 1h"},
      {"[server]", "min_body_rate", "0", [](const Config& c) { return c.server.min_body_rate == 0; }, "\"1GiB\"",
       "server.min_body_rate is 1GiB; it must be from 1 bytes to 100MiB, or 0 for no limit"},
      {"[server]", "idle_deadline", "\"3s\"", [](const Config& c) { return c.server.idle_deadline == seconds(3); },
       "\"1ms\"", "server.idle_deadline is 1ms; it must be from 100ms to 1h"},
      {"[server]", "write_deadline", "\"3s\"", [](const Config& c) { return c.server.write_deadline == seconds(3); },
       "\"1ms\"", "server.write_deadline is 1ms"},
      {"[server]", "commit_deadline", "\"3s\"", [](const Config& c) { return c.server.commit_deadline == seconds(3); },
       "\"2m\"", "server.commit_deadline is 2m; it must be from 100ms to 1m"},
      {"[server]", "inflight_body_bytes", "\"2MiB\"",
       [](const Config& c) { return c.server.inflight_body_bytes == 2048 * kKiB; }, "\"1MiB\"",
       "server.inflight_body_bytes is less than max_body of source stripe"},
      {"[server]", "max_admin_body", "\"64KiB\"", [](const Config& c) { return c.server.max_admin_body == 64 * kKiB; },
       "\"1GiB\"", "server.max_admin_body is 1GiB; it must be from 1KiB to 32MiB"},
      {"[server]", "bad_tokens_per_minute", "9", [](const Config& c) { return c.server.bad_tokens_per_minute == 9; },
       "0", "server.bad_tokens_per_minute must be a whole number from 1 to 1000"},
      {"[server]", "max_memory", "0", [](const Config& c) { return c.server.max_memory == 0; }, "4096",
       "server.max_memory is 4KiB; it must be from 1MiB to 1024GiB, or 0 for no limit"},
      {"[store]", "max_waiting", "9", [](const Config& c) { return c.store.max_waiting == 9; }, "0",
       "store.max_waiting must be a whole number from 1"},
      {"[store]", "min_free", "0", [](const Config& c) { return c.store.min_free == 0; }, "\"much\"",
       "store.min_free must be a size"},
      {"[store]", "min_free_percent", "2.5", [](const Config& c) { return c.store.min_free_percent == 2.5; }, "51",
       "store.min_free_percent must be a number from 0 to 50"},
      {"[store]", "warn_free_percent", "0", [](const Config& c) { return c.store.warn_free_percent == 0; }, "4",
       "store.warn_free_percent (4) is less than store.min_free_percent (5)"},
      {"[[target]]", "connect_timeout", "\"1s\"",
       [](const Config& c) { return c.targets[0].connect_timeout == seconds(1); }, "\"0s\"",
       "target billing: connect_timeout is 0s; it must be from 10ms to 10m"},
      {"[[target]]", "timeout", "\"1s\"", [](const Config& c) { return c.targets[0].timeout == seconds(1); }, "\"1h\"",
       "target billing: timeout must be from 100ms to 10m"},
      {"[[target]]", "concurrency", "64", [](const Config& c) { return c.targets[0].concurrency == 64; }, "257",
       "target.concurrency must be a whole number from 1 to 256"},
      {"[[target]]", "retry_after_max", "\"90s\"",
       [](const Config& c) { return c.targets[0].retry_after_max == seconds(90); }, "\"48h\"",
       "target billing: retry_after_max is 2d; it must be from 0s to 1d"},
      {"[[target]]", "retry_budget_percent", "20",
       [](const Config& c) { return c.targets[0].retry_budget_percent == 20; }, "101",
       "target.retry_budget_percent must be a number from 0 to 100"},
      {"[[target]]", "retry_budget_min", "0.5", [](const Config& c) { return c.targets[0].retry_budget_min == 0.5; },
       "-1", "target.retry_budget_min must be a number from 0 to 1000"},
      {"[[target]]", "breaker_failures", "3", [](const Config& c) { return c.targets[0].breaker_failures == 3; }, "0",
       "target.breaker_failures must be a whole number from 1 to 1000"},
      {"[[target]]", "breaker_percent", "80", [](const Config& c) { return c.targets[0].breaker_percent == 80; }, "0",
       "target.breaker_percent must be a whole number from 1 to 100"},
      {"[[target]]", "breaker_open", "\"250ms\"",
       [](const Config& c) { return c.targets[0].breaker_open == milliseconds(250); }, "\"6m\"",
       "target billing: breaker_open_max is shorter than breaker_open"},
      {"[[target]]", "breaker_open_max", "\"1h\"",
       [](const Config& c) { return c.targets[0].breaker_open_max == seconds(3'600); }, "\"2d\"",
       "target billing: breaker_open_max is 2d; it must be from 100ms to 1d"},
      {"[[target]]", "max_answer_header_bytes", "\"8KiB\"",
       [](const Config& c) { return c.targets[0].max_answer_header_bytes == 8 * kKiB; }, "0",
       "target billing: max_answer_header_bytes is 0; it must be from 1KiB to 1MiB"},
      {"[[target]]", "max_answer_body_bytes", "\"8KiB\"",
       [](const Config& c) { return c.targets[0].max_answer_body_bytes == 8 * kKiB; }, "\"1KiB\"",
       "target billing: max_answer_body_bytes is 1KiB; it must be from 4KiB to 16MiB"},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.key);
    const auto with = [&](const std::string& value) {
      return Parse(With(row.section + "\n", row.section + "\n" + row.key + " = " + value + "\n"));
    };
    const auto good = with(row.good);
    ASSERT_TRUE(good) << good.error().message;
    EXPECT_TRUE(row.taken(*good));
    const auto bad = with(row.bad);
    ASSERT_FALSE(bad);
    EXPECT_NE(bad.error().message.find(row.want), std::string::npos) << bad.error().message;
  }
}

TEST(ConfigFile, TheTotalOfRunningAttemptsHoldsTheLargestTarget) {
  const auto good = Parse("[dispatch]\nmax_running = 8\n" + kGood);
  ASSERT_TRUE(good) << good.error().message;
  EXPECT_EQ(good->dispatch.max_running, 8);
  const auto bad = Parse("[dispatch]\nmax_running = 7\n" + kGood);
  ASSERT_FALSE(bad);
  EXPECT_NE(bad.error().message.find("target billing: concurrency 8 is more than dispatch.max_running 7"),
            std::string::npos)
      << bad.error().message;
}

TEST(ConfigFile, AllMistakesAreToldAtOnce) {
  std::string text = With("listen = ", "lisen = ");
  text.replace(text.find("\"60s\""), 5, "60");
  const auto config = Parse(text);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("lisen"), std::string::npos);
  EXPECT_NE(config.error().message.find("tolerance"), std::string::npos);
}

TEST(ConfigFile, TwoOfOneNameAreRefused) {
  const std::string source = "[[source]]\nname = \"stripe\"\nscheme = \"none\"\ntarget = \"billing\"\n";
  const auto config = Parse(kGood + source);
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("two sources are named stripe"), std::string::npos) << config.error().message;
}

TEST(ConfigFile, AnEmptyFileIsValidAndReceivesNothing) {
  const auto config = Parse("");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_TRUE(config->sources.empty());
}

TEST(Config, RetentionIsPeriodsOrInfinity) {
  const auto defaults = Parse(kGood);
  ASSERT_TRUE(defaults);
  EXPECT_EQ(defaults->retention.succeeded, std::chrono::days(14));
  EXPECT_EQ(defaults->retention.closed, std::chrono::days(90));
  EXPECT_EQ(defaults->retention.cold_after, std::chrono::days(90));
  const auto set = Parse(kGood + "[retention]\nsucceeded = \"2d\"\nclosed = \"infinity\"\narchive = \"cold\"\n");
  ASSERT_TRUE(set) << set.error().message;
  EXPECT_EQ(set->retention.succeeded, std::chrono::days(2));
  EXPECT_EQ(set->retention.closed, std::nullopt);
  EXPECT_EQ(set->retention.archive, "cold");
  for (const char* wrong : {"succeeded = \"forever\"", "closed = 90", "succeeded = \"0s\"", "kept = \"1d\""}) {
    const auto refused = Parse(kGood + "[retention]\n" + wrong + "\n");
    ASSERT_FALSE(refused) << wrong;
    EXPECT_NE(refused.error().message.find("retention."), std::string::npos) << refused.error().message;
  }
}

}  // namespace
}  // namespace dlo::app
