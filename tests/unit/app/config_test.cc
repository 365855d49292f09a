#include <gtest/gtest.h>

#include <map>
#include <string>

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

}  // namespace
}  // namespace dlo::app
