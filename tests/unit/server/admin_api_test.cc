#include "server/admin_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "base/encoding.h"
#include "deadletter/desk.h"
#include "server/answer.h"
#include "server/view.h"
#include "unit/deadletter/fake_store.h"
#include "unit/server/fake_sink.h"

namespace dlo::server {
namespace {

namespace json = boost::json;
using testing::Ask;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kBootstrap = "bootstrap-token";

class AdminApiTest : public ::testing::Test {
 protected:
  AdminApiTest() {
    for (const auto& [name, role] :
         {std::pair("vera", "viewer"), std::pair("otto", "operator"), std::pair("ada", "admin")}) {
      store.tokens.push_back({std::ssize(store.tokens) + 1, name, role, HashToken(std::string(name) + "-token"),
                              clock.Now(), std::nullopt});
    }
    SourceConfig source{.name = "stripe", .scheme = "hmac", .target = "billing"};
    source.hmac.signature_header = "X-Own";
    sources = {source};
    EXPECT_TRUE(api.Start());
  }

  RequestHead Head(const std::string& method, const std::string& target, const std::string& token) {
    RequestHead head{
        .method = method, .target = target, .headers = {{"Host", "localhost:8686"}}, .remote = "192.0.2.1"};
    if (!token.empty()) head.headers.push_back({"Authorization", "Bearer " + token});
    if (method == "POST") head.headers.push_back({"Content-Type", "application/json"});
    return head;
  }
  Response Get(const std::string& target, const std::string& token = "otto-token") {
    return Ask(api, Head("GET", target, token));
  }
  Response Post(const std::string& target, const std::string& body, const std::string& token = "otto-token") {
    return Ask(api, Head("POST", target, token), body);
  }
  static std::string Code(const Response& response) {
    EXPECT_EQ(response.content_type, "application/problem+json") << response.body;
    return std::string(json::parse(response.body).at("code").as_string());
  }
  static std::string HeaderOf(const Response& response, const std::string& name) {
    for (const Header& h : response.headers) {
      if (h.name == name) return h.value;
    }
    return {};
  }

  testing::FakeStore store;
  ManualClock clock{Time(std::chrono::seconds(1'800'000'000))};
  Metrics metrics;
  observe::Scrape scrape{metrics, store, clock};
  observe::Health health{store};
  deadletter::ReplayPacer pacer{store};
  deadletter::Desk desk{{.store = store,
                         .clock = clock,
                         .pacer = pacer,
                         .holds_lane = {},
                         .wait = [this](Duration by) { clock.Advance(by); },
                         .ring = {}}};
  std::vector<SourceConfig> sources;
  std::string resumed;
  AdminApi api{{.letters = desk,
                .store = store,
                .clock = clock,
                .scrape = scrape,
                .health = health,
                .sources = sources,
                .breakers = [] { return std::vector<dispatch::BreakerView>{{"billing", "open", std::nullopt}}; },
                .resumed = [this](const std::string& source) { resumed = source; },
                .bootstrap_token = kBootstrap}};
};

std::string Filled(std::string_view pattern) {
  std::string path(pattern);
  for (std::size_t at; (at = path.find('{')) != std::string::npos;) path.replace(at, path.find('}') - at + 1, "1");
  return path;
}

TEST_F(AdminApiTest, EveryRouteTakesExactlyTheRolesItNames) {
  const struct {
    std::string token;
    int rank;  // 0 = nobody known
  } callers[] = {{"", 0},           {"unknown-token", 0}, {"vera-token", 1},
                 {"otto-token", 2}, {"ada-token", 3},     {kBootstrap, 3}};
  for (const Route& route : AllRoutes()) {
    for (const auto& caller : callers) {
      SCOPED_TRACE(std::string(route.method) + " " + std::string(route.pattern) + " as \"" + caller.token + "\"");
      clock.Advance(std::chrono::minutes(1));  // past the limit on unknown tokens
      const Response response = Ask(api, Head(std::string(route.method), Filled(route.pattern), caller.token),
                                    route.method == "POST" ? "{}" : "");
      const int needed = static_cast<int>(route.permission);
      if (caller.rank >= needed) {
        EXPECT_NE(response.status, 401);
        EXPECT_NE(response.status, 403);
      } else if (caller.rank == 0) {
        EXPECT_EQ(response.status, 401);
        EXPECT_EQ(Code(response), "unauthorized");
        EXPECT_THAT(HeaderOf(response, "WWW-Authenticate"), HasSubstr("Bearer"));
      } else {
        EXPECT_EQ(response.status, 403);
        EXPECT_EQ(Code(response), "forbidden");
      }
      for (const char* method : {"PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"}) {
        const Response refused = Ask(api, Head(method, Filled(route.pattern), caller.token));
        EXPECT_EQ(refused.status, 405) << method;
        EXPECT_THAT(HeaderOf(refused, "Allow"), HasSubstr(std::string(route.method)));
      }
    }
  }
}

TEST_F(AdminApiTest, OnlyTheAgreedRoutesAreOpenAndOnlyPostChanges) {
  std::set<std::string> open;
  std::set<std::pair<std::string, std::string>> seen;
  for (const Route& route : AllRoutes()) {
    EXPECT_TRUE(route.method == "GET" || route.method == "POST");
    EXPECT_TRUE(seen.emplace(route.method, route.pattern).second) << route.pattern;
    if (route.permission == Permission::open) open.insert(std::string(route.pattern));
    if (route.method == "POST") {
      EXPECT_GE(route.permission, Permission::operator_) << route.pattern;
    }
  }
  EXPECT_EQ(open, (std::set<std::string>{"/metrics", "/healthz", "/readyz"}));
}

TEST_F(AdminApiTest, ReadingChangesNothing) {
  store.Add(1);
  for (const Route& route : AllRoutes()) {
    if (route.method != "GET") continue;
    (void)Get(Filled(route.pattern), "ada-token");
    (void)Ask(api, Head("HEAD", Filled(route.pattern), "ada-token"));
  }
  EXPECT_TRUE(store.acts.empty());
  EXPECT_TRUE(store.audit.empty());
  EXPECT_TRUE(store.replays.empty());
  EXPECT_EQ(store.tokens.size(), 3U);
}

TEST_F(AdminApiTest, FiveUnknownTokensAMinuteThen429WhileKnownOnesPass) {
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(Get("/v1/stats", "guess" + std::to_string(i)).status, 401) << i;
  clock.Advance(std::chrono::milliseconds(12'500));
  const Response sixth = Get("/v1/stats", "guess6");
  EXPECT_EQ(sixth.status, 429);
  EXPECT_EQ(HeaderOf(sixth, "Retry-After"), "48") << "until the minute is over";
  EXPECT_EQ(Get("/v1/stats", "vera-token").status, 200);
  RequestHead elsewhere = Head("GET", "/v1/stats", "guess");
  elsewhere.remote = "192.0.2.2";
  EXPECT_EQ(Ask(api, elsewhere).status, 401);
  clock.Advance(std::chrono::milliseconds(47'499));
  EXPECT_EQ(HeaderOf(Get("/v1/stats", "guess7"), "Retry-After"), "1");
  clock.Advance(std::chrono::milliseconds(1));
  EXPECT_EQ(Get("/v1/stats", "guess8").status, 401);
}

TEST_F(AdminApiTest, AFloodOfAddressesFillsNoMemoryAndLocksNobodyOut) {
  RequestHead head = Head("GET", "/v1/stats", "guess");
  for (int i = 0; i < 10'000; ++i) {
    head.remote = std::to_string(i);
    EXPECT_EQ(Ask(api, head).status, 401);
  }
  head.remote = "one more";
  EXPECT_EQ(Ask(api, head).status, 429) << "the table is full";
  RequestHead known = Head("GET", "/v1/stats", "vera-token");
  known.remote = "one more";
  EXPECT_EQ(Ask(api, known).status, 200);
  clock.Advance(std::chrono::minutes(1));
  EXPECT_EQ(Ask(api, head).status, 401);
}

TEST_F(AdminApiTest, ATokenIsShownOnceWorksAtOnceAndEndsAtOnce) {
  const Response made = Post("/v1/tokens", R"({"name":"ci","role":"viewer"})", "ada-token");
  ASSERT_EQ(made.status, 200) << made.body;
  const std::string secret(json::parse(made.body).at("token").as_string());
  EXPECT_TRUE(secret.starts_with("dlo_"));
  EXPECT_EQ(secret.size(), 47U);
  EXPECT_EQ(secret.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
            std::string::npos);
  EXPECT_EQ(HeaderOf(made, "Cache-Control"), "no-store");
  EXPECT_EQ(store.tokens.back().hash, HexEncode(Sha256(secret)));
  EXPECT_THAT(Get("/v1/tokens", "ada-token").body, Not(HasSubstr(store.tokens.back().hash)));
  EXPECT_EQ(Get("/v1/stats", secret).status, 200);
  EXPECT_EQ(store.last_actor.name, "ada");

  EXPECT_EQ(Code(Post("/v1/tokens", R"({"name":"ci","role":"viewer"})", "ada-token")), "name_taken");
  for (const char* bad : {R"({"name":"","role":"viewer"})", R"({"name":"a b","role":"viewer"})",
                          R"({"name":"x","role":"root"})", R"({"name":"bootstrap","role":"admin"})", "{}"}) {
    EXPECT_EQ(Post("/v1/tokens", bad, "ada-token").status, 400) << bad;
  }
  EXPECT_EQ(Post("/v1/tokens/ci/revoke", "", "ada-token").status, 200);
  EXPECT_EQ(Get("/v1/stats", secret).status, 401);
  EXPECT_EQ(Post("/v1/tokens/ci/revoke", "", "ada-token").status, 404);
}

TEST_F(AdminApiTest, OnLoopbackOnlyLocalNamesAreServed) {
  const struct {
    const char* host;
    int status;
  } rows[] = {{"localhost", 200},
              {"localhost:8686", 200},
              {"LOCALHOST:1", 200},
              {"127.0.0.1", 200},
              {"127.0.0.1:8686", 200},
              {"[::1]", 200},
              {"[::1]:8686", 200},
              {"evil.example", 421},
              {"localhost.evil", 421},
              {"127.0.0.1.nip.io", 421},
              {"", 421},
              {"[::1].evil", 421},
              {"[::1", 421},
              {"0.0.0.0", 421}};
  for (const auto& row : rows) {
    for (const bool loopback : {true, false}) {
      RequestHead head = Head("GET", "/v1/stats", "vera-token");
      head.headers[0].value = row.host;
      head.listens_on_loopback = loopback;
      EXPECT_EQ(Ask(api, head).status, loopback ? row.status : 200) << row.host;
    }
  }
}

TEST_F(AdminApiTest, UnknownPathsWordsAndFieldsAreNamed) {
  EXPECT_EQ(Code(Get("/v1/nothing")), "no_such_path");
  EXPECT_EQ(Get("/").status, 404);
  EXPECT_EQ(Get("/v1/dead-letters/").status, 404);
  EXPECT_EQ(Get("//v1/stats").status, 404);
  EXPECT_EQ(Get("/v1/../v1/stats").status, 404);
  const Response word = Get("/v1/dead-letters?colour=red");
  EXPECT_EQ(Code(word), "unknown_word");
  EXPECT_THAT(word.body, HasSubstr("colour"));
  store.Add(1);
  const Response field = Post("/v1/dead-letters/1/replay", R"({"reason":"r","colour":1})");
  EXPECT_EQ(Code(field), "unknown_field");
  EXPECT_THAT(field.body, HasSubstr("colour"));
  EXPECT_TRUE(store.acts.empty());
}

TEST_F(AdminApiTest, BodiesAreJsonObjects) {
  store.Add(1);
  EXPECT_EQ(Code(Post("/v1/dead-letters/1/replay", "{")), "bad_json");
  EXPECT_EQ(Code(Post("/v1/dead-letters/1/replay", "[]")), "bad_json");
  EXPECT_EQ(Code(Post("/v1/dead-letters/1/replay", "\xff")), "bad_json");
  EXPECT_EQ(Code(Post("/v1/dead-letters/1/replay", std::string(100'000, '['))), "bad_json");
  RequestHead form = Head("POST", "/v1/dead-letters/1/replay", "otto-token");
  form.headers.back().value = "text/plain";  // what a foreign page may send without asking
  EXPECT_EQ(Code(Ask(api, form, "{}")), "not_json");
  EXPECT_TRUE(store.acts.empty());
  EXPECT_EQ(Post("/v1/dead-letters/1/replay", "").status, 202);
}

TEST_F(AdminApiTest, ALetterIsShownWholeWithoutItsSecrets) {
  LetterDetail& d = store.Add(7);
  d.letter.attempts = 6;
  d.letter.key = "evt_\xff";
  d.verdict = {.verified = true, .scheme = "stripe", .secret_id = "secrets[0]", .signed_at = clock.Now()};
  d.body_sha256 = "ab";
  d.headers = {{"Authorization", "canary"},         {"COOKIE", "canary"},          {"Stripe-Signature", "canary"},
               {"X-Auth-Token", "canary"},          {"X-Client-Secret", "canary"}, {"X-Own", "canary"},
               {"X-Shopify-Hmac-Sha256", "canary"}, {"X-Plain", "shown"}};
  d.attempts = {{.number = 2, .outcome = OutcomeKind::retryable, .code = "http_500", .http_status = 500},
                {.number = 1}};
  const Response response = Get("/v1/events/7", "vera-token");
  ASSERT_EQ(response.status, 200);
  EXPECT_THAT(response.body, Not(HasSubstr("canary")));
  const json::value event = json::parse(response.body);
  EXPECT_EQ(event.at("id").as_int64(), 7);
  EXPECT_EQ(event.at("state").as_string(), "dead");
  EXPECT_EQ(event.at("class").as_string(), "exhausted");
  EXPECT_EQ(event.at("key").as_string(), "evt_\xEF\xBF\xBD");
  EXPECT_EQ(event.at("attempts").as_int64(), 6);
  EXPECT_EQ(event.at("received_at").as_string(), "1970-01-01T00:00:00Z");
  EXPECT_TRUE(event.at("parked_at").is_null());
  EXPECT_EQ(event.at("verdict").at("secret_id").as_string(), "secrets[0]");
  EXPECT_EQ(event.at("timeline").as_array().size(), 2U);
  EXPECT_EQ(event.at("timeline").at(0).at("outcome").as_string(), "retryable");
  EXPECT_EQ(event.at("headers").at(7).at("value").as_string(), "shown");
  EXPECT_EQ(json::parse(Get("/v1/dead-letters").body).at("items").at(0).at("attempts").as_int64(), 6);
  EXPECT_EQ(Get("/v1/events/8").status, 404);
  EXPECT_EQ(Get("/v1/events/x").status, 404);
  EXPECT_EQ(Get("/v1/events/99999999999999999999").status, 404);
}

TEST_F(AdminApiTest, APayloadIsGivenAsBytesThatNoBrowserRuns) {
  store.payloads[1] = "<script>alert(1)</script>";
  store.payloads[2] = std::string("\xff\0", 2);
  store.payloads[3] = "corrupt";
  const Response text = Get("/v1/events/1/payload");
  EXPECT_EQ(text.body, store.payloads[1]);
  EXPECT_EQ(text.content_type, "text/plain; charset=utf-8");
  EXPECT_EQ(HeaderOf(text, "X-Content-Type-Options"), "nosniff");
  EXPECT_THAT(HeaderOf(text, "Content-Disposition"), HasSubstr("attachment"));
  EXPECT_EQ(HeaderOf(text, "Dlo-Sha256"), HexEncode(Sha256(text.body)));
  EXPECT_EQ(Get("/v1/events/2/payload").content_type, "application/octet-stream");
  const Response corrupt = Get("/v1/events/3/payload");
  EXPECT_EQ(corrupt.status, 500);
  EXPECT_EQ(Code(corrupt), "corrupt");
}

TEST_F(AdminApiTest, TheActsOnOneLetter) {
  store.Add(1);
  store.Add(2, State::replayed);
  store.Add(3, State::waiting);
  const struct {
    std::string path, body;
    int status;
    std::string code;  // of the problem, or the state of the answer
  } rows[] = {
      {"1/hold", R"({"owner":"ada"})", 400, "link_missing"},
      {"1/hold", R"({"link":"https://x","until":"2020-01-01"})", 400, "until_past"},
      {"1/hold", R"({"link":"https://x","until":"later"})", 400, "bad_field"},
      {"1/hold", R"({"link":"https://x","owner":"ada","until":"2199-01-01","wake_on_handler":"v2","reason":"r"})", 200,
       "held"},
      {"1/hold", R"({"link":"https://x"})", 409, "not_dead_lettered"},
      {"1/release", R"({})", 200, "dead"},
      {"1/resolve", R"({"code":"gone"})", 400, "bad_field"},
      {"1/resolve", R"({})", 400, "bad_field"},
      {"1/resolve", R"({"code":"other"})", 400, "reason_missing"},
      {"1/resolve", R"({"code":"duplicate","reason":"r"})", 200, "resolved"},
      {"1/reopen", R"({"reason":"mistake"})", 200, "dead"},
      {"1/replay", R"({"reason":"fixed"})", 202, "requeued"},
      {"2/replay", R"({})", 409, "already_replayed"},
      {"3/replay", R"({})", 409, "not_dead_lettered"},
      {"4/replay", R"({})", 404, "not_found"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.path + " " + row.body);
    const Response response = Post("/v1/dead-letters/" + row.path, row.body);
    EXPECT_EQ(response.status, row.status) << response.body;
    if (response.status >= 400) {
      EXPECT_EQ(Code(response), row.code);
    } else if (response.status == 202) {
      EXPECT_EQ(response.body, R"({"requeued":1})");
    } else {
      EXPECT_EQ(json::parse(response.body).at("state").as_string(), row.code);
    }
  }
  EXPECT_EQ(store.last_actor.name, "otto");
  EXPECT_EQ(store.last_actor.role, "operator");
  const json::value audit = json::parse(Get("/v1/events/1/audit").body);
  EXPECT_EQ(audit.at("items").as_array().size(), 5U);
  EXPECT_EQ(audit.at("items").at(0).at("reason").as_string(), "fixed");
}

TEST_F(AdminApiTest, AReplayOfMany) {
  for (EventId id = 1; id <= 3; ++id) store.Add(id);
  const Response dry = Post("/v1/replays", R"({"filter":{},"max":2,"dry_run":true,"canary":0,"rate":null})");
  ASSERT_EQ(dry.status, 200) << dry.body;
  EXPECT_EQ(json::parse(dry.body).at("would_requeue").as_int64(), 3);
  EXPECT_TRUE(json::parse(dry.body).at("over_cap").as_bool());
  const Response large = Post("/v1/replays", R"({"filter":{},"max":2})");
  EXPECT_EQ(large.status, 409);
  EXPECT_EQ(Code(large), "replay_too_large");
  const Response done = Post("/v1/replays", R"({"filter":{"type":"invoice.paid"},"reason":"fixed"})");
  ASSERT_EQ(done.status, 202) << done.body;
  const json::value plan = json::parse(done.body);
  EXPECT_EQ(plan.at("count").as_int64(), 3);
  EXPECT_EQ(plan.at("id").as_int64(), 1);
  EXPECT_TRUE(plan.as_object().contains("digest"));
  EXPECT_EQ(json::parse(Get("/v1/replays/1").body).at("remaining").as_int64(), 3);
  EXPECT_EQ(json::parse(Get("/v1/replays").body).at("items").as_array().size(), 1U);
  EXPECT_EQ(Get("/v1/replays/2").status, 404);
  EXPECT_EQ(Post("/v1/replays", "{}").status, 400);
  EXPECT_EQ(Post("/v1/replays", R"({"filter":{"typ":"x"}})").status, 400);
  EXPECT_EQ(Post("/v1/replays", R"({"filter":{},"canary":101})").status, 400);
  EXPECT_EQ(Post("/v1/replays", R"({"filter":{},"stop_percent":0})").status, 400);
  EXPECT_EQ(Post("/v1/replays", R"({"filter":{},"batch_size":0})").status, 400);
}

TEST_F(AdminApiTest, AReplayIsSteeredAndItsLettersListed) {
  store.Add(1);
  store.Add(2);
  ASSERT_EQ(Post("/v1/replays", R"({"filter":{},"canary":3,"rate":5})").status, 202);
  const auto page = json::parse(Get("/v1/replays/1/items?state=queued&result=&limit=2&cursor=1").body);
  EXPECT_EQ(page.at("items").as_array().size(), 2U);
  EXPECT_EQ(page.at("items").at(0).at("state").as_string(), "queued");
  EXPECT_EQ(page.at("next").as_string(), "7");
  EXPECT_EQ(store.last_cursor, "1");
  for (const char* bad : {"?limit=0", "?limit=501", "?stat=x", "?state=a&state=b"})
    EXPECT_EQ(Get(std::string("/v1/replays/1/items") + bad).status, 400) << bad;
  EXPECT_EQ(Get("/v1/replays/9/items").status, 404);
  EXPECT_EQ(Get("/v1/replays/x/items").status, 404);
  const struct {
    const char* act;
    const char* state;
  } rows[] = {{"pause", "paused"}, {"resume", "running"}, {"cancel", "cancelled"}};
  for (const auto& row : rows) {
    const auto answer = Post(std::string("/v1/replays/1/") + row.act, R"({"reason":"tea"})");
    EXPECT_EQ(answer.status, 200) << row.act;
    EXPECT_EQ(json::parse(answer.body).at("state").as_string(), row.state);
    EXPECT_EQ(store.last_actor.reason, "tea");
    EXPECT_EQ(Post(std::string("/v1/replays/9/") + row.act, "{}").status, 404);
    EXPECT_EQ(Post(std::string("/v1/replays/1/") + row.act, R"({"why":"x"})").status, 400);
    EXPECT_EQ(Post(std::string("/v1/replays/1/") + row.act, R"({"reason":7})").status, 400);
  }
}

TEST_F(AdminApiTest, ADrainAnswersItsThreeNumbersOrItsReplay) {
  EXPECT_EQ(Post("/v1/drain", "{}").body, R"({"committed":0,"requeued":0,"parked":0})");
  for (EventId id = 1; id <= 2; ++id) store.Add(id);
  const Response done = Post("/v1/drain", R"({"source":"stripe","wait":"5s","reason":"fixed"})");
  EXPECT_EQ(done.status, 200);
  EXPECT_EQ(done.body, R"({"committed":2,"requeued":0,"parked":0})");
  store.on_release = [](testing::FakeStore::ReplayRun&, EventId) {};
  const Response goes_on = Post("/v1/drain", R"({"wait":"1s"})");
  EXPECT_EQ(goes_on.status, 202);
  EXPECT_EQ(json::parse(goes_on.body).at("id").as_int64(), 2);
  EXPECT_EQ(Post("/v1/drain", R"({"source":"nobody"})").status, 404);
  EXPECT_EQ(Post("/v1/drain", R"({"wait":30})").status, 400);
}

TEST_F(AdminApiTest, SourcesStatsAndRejected) {
  store.figures.counts = {{"stripe", State::dead, FailureClass::permanent, 3}, {"stripe", State::waiting, {}, 4}};
  store.figures.oldest = {{"stripe", clock.Now() - std::chrono::seconds(90), 5}};
  store.pauses = {{"stripe", "0123456789abcdef", "no such column", clock.Now()}};
  const json::value sources_json = json::parse(Get("/v1/sources", "vera-token").body).at("items");
  EXPECT_EQ(sources_json.at(0).at("state").as_string(), "paused");
  EXPECT_EQ(sources_json.at(0).at("counts").at("dead").as_int64(), 3);
  EXPECT_EQ(sources_json.at(0).at("paused").at("message").as_string(), "no such column");

  EXPECT_EQ(Post("/v1/sources/stripe/resume", R"({"reason":"deployed"})").status, 200);
  EXPECT_EQ(resumed, "stripe");
  EXPECT_EQ(store.last_actor.reason, "deployed");
  EXPECT_EQ(Code(Post("/v1/sources/stripe/resume", "{}")), "not_paused");

  const json::value stats = json::parse(Get("/v1/stats?recount=true", "vera-token").body);
  EXPECT_EQ(stats.at("waiting").as_int64(), 4);
  EXPECT_EQ(stats.at("oldest").at(0).at("seconds").as_int64(), 90);
  EXPECT_EQ(stats.at("breakers").at(0).at("state").as_string(), "open");
  EXPECT_EQ(stats.at("accounting").at("difference").as_int64(), 0);
  EXPECT_TRUE(stats.at("accounting").at("recounted").as_bool());
  EXPECT_EQ(Get("/v1/stats?recount=1").status, 400);

  store.rejected = {{.id = 1,
                     .source = "stripe",
                     .reason = "no_match",
                     .headers = {{"X-Own", "canary"}},
                     .body = "\xff",
                     .body_bytes = 1}};
  const Response rejected = Get("/v1/rejected/1");
  EXPECT_THAT(rejected.body, Not(HasSubstr("canary")));
  EXPECT_EQ(json::parse(rejected.body).at("body_base64").as_string(), "/w==");
  EXPECT_EQ(json::parse(Get("/v1/rejected").body).at("items").at(0).at("reason").as_string(), "no_match");
}

TEST_F(AdminApiTest, HealthNeedsNoToken) {
  EXPECT_EQ(Get("/healthz", "").status, 200);
  EXPECT_EQ(Get("/readyz", "").status, 200);
  EXPECT_THAT(Get("/metrics", "").body, HasSubstr("dlo_accounting_difference 0"));
  store.broken = Error{ErrorKind::unavailable, "disk_full", "full"};
  EXPECT_EQ(Get("/readyz", "").status, 503);
  EXPECT_EQ(Get("/healthz", "").status, 200);
  const Response stats = Get("/v1/stats");
  EXPECT_EQ(stats.status, 503);
  EXPECT_NE(HeaderOf(stats, "Retry-After"), "");
}

TEST(Answers, EachKindOfErrorHasItsStatus) {
  const struct {
    ErrorKind kind;
    std::string code;
    int status;
  } rows[] = {{ErrorKind::unavailable, "stopping", 503}, {ErrorKind::conflict, "already_replayed", 409},
              {ErrorKind::not_found, "not_found", 404},  {ErrorKind::invalid, "bad_filter", 400},
              {ErrorKind::corrupt, "corrupt", 500},      {ErrorKind::forbidden, "forbidden", 403},
              {ErrorKind::too_large, "body", 413},       {ErrorKind::too_large, "replay_too_large", 409}};
  for (const auto& row : rows) {
    const Response response = FromError({row.kind, row.code, "what to do"});
    const json::value problem = json::parse(response.body);
    EXPECT_EQ(response.status, row.status) << row.code;
    EXPECT_EQ(response.content_type, "application/problem+json");
    EXPECT_EQ(problem.at("status").as_int64(), row.status);
    EXPECT_EQ(problem.at("code").as_string(), row.code);
    EXPECT_EQ(problem.at("detail").as_string(), "what to do");
    EXPECT_EQ(problem.at("type").as_string(), "about:blank");
    EXPECT_EQ(problem.at("title").as_string(), std::string(StatusText(row.status)));
  }
}

TEST(Answers, DatesAreThoseOfHttp) {
  EXPECT_EQ(HttpDate(Time(std::chrono::seconds(784111777))), "Sun, 06 Nov 1994 08:49:37 GMT");
}

}  // namespace
}  // namespace dlo::server
