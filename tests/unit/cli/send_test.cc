// Samples, signed deliveries and the sample handler.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "cli/billing_app.h"
#include "cli/json.h"
#include "cli/samples.h"
#include "cli_run.h"

namespace dlo::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

const Time kNow{std::chrono::seconds(1'796'000'000)};

TEST(Samples, AreWholeEventsOfTheirKind) {
  SampleMaker maker(1);
  for (std::string_view kind : SampleKinds()) {
    Customer customer = maker.MakeCustomer();
    auto sample = maker.Make(kind, customer, kNow);
    ASSERT_TRUE(sample) << kind;
    boost::json::value event = boost::json::parse(sample->body);
    EXPECT_EQ(Text(event, "type"), kind);
    EXPECT_EQ(Text(event, "id"), sample->id);
    EXPECT_THAT(sample->id, StartsWith("evt_1Q"));
    EXPECT_EQ(Number(event, "created"), 1'796'000'000);
    EXPECT_TRUE(Flag(event, "livemode"));
    EXPECT_TRUE(Field(event, "pending_webhooks"));
    const boost::json::value& object = event.at("data").at("object");
    EXPECT_EQ(Text(object, "customer"), customer.id) << kind;
    if (kind.starts_with("invoice.")) {
      EXPECT_EQ(Text(object, "subscription"), customer.subscription);
    }
    if (kind.starts_with("customer.subscription")) {
      EXPECT_EQ(Text(object, "id"), customer.subscription);
    }
    // All but the tax id are of the size that providers send.
    if (kind != SampleKinds().back()) {
      EXPECT_GT(boost::json::serialize(event).size(), 1000U) << kind;
    }
    EXPECT_LT(sample->body.size(), 6000U) << kind;
  }
  EXPECT_FALSE(maker.Make("no.such", maker.MakeCustomer(), kNow));
}

TEST(Samples, AreTheSameForOneSeedAndNeverRepeatAKey) {
  SampleMaker a(7), b(7), c(8);
  std::set<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    auto x = a.Make("invoice.paid", a.MakeCustomer(), kNow), y = b.Make("invoice.paid", b.MakeCustomer(), kNow);
    EXPECT_EQ(x->body, y->body);
    EXPECT_NE(x->body, c.Make("invoice.paid", c.MakeCustomer(), kNow)->body);
    EXPECT_TRUE(ids.insert(x->id).second) << x->id;
  }
}

class Send : public testing::Test {
 protected:
  Send() { runner.environment["DLO_SERVER"] = server.address(); }
  ScriptedServer server;
  Runner runner;
};

TEST_F(Send, SignsASampleWithoutTheAdminToken) {
  server.On("POST /in/stripe", 200, R"({"status":"stored","id":41})");
  runner.environment["DLO_TOKEN"] = "dlo_admin";
  runner.environment["SECRET"] = "whsec_test_0123456789";
  Ran ran = runner.Run({"send", "--source", "stripe", "--secret", "env:SECRET", "--kind", "charge.refunded"});
  EXPECT_EQ(ran.code, kDone) << ran.err;
  EXPECT_THAT(ran.out, StartsWith("stored 41 charge.refunded evt_1Q"));
  auto head = server.heads().at(0);
  EXPECT_THAT(std::string(head.Find("Stripe-Signature").value_or("")), StartsWith("t=1796000000,v1="));
  EXPECT_FALSE(head.Find("Authorization"));
  EXPECT_EQ(head.Find("Content-Type"), "application/json");
}

TEST_F(Send, EachSchemeWritesItsHeaders) {
  struct Row {
    std::vector<std::string> words;
    std::string header;
  };
  const Row rows[] = {
      {{"--scheme", "github", "--secret", "0123456789abcdef"}, "X-Hub-Signature-256"},
      {{"--scheme", "standard-webhooks", "--secret", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"}, "webhook-signature"},
      {{"--scheme", "hmac", "--secret", "0123456789abcdef", "--signature-header", "X-Sig"}, "X-Sig"},
      {{"--scheme", "none"}, "Content-Type"},
  };
  server.On("POST /in/s", 200, R"({"status":"stored","id":1})");
  for (const Row& row : rows) {
    std::vector<std::string> words = {"send", "--source", "s"};
    words.insert(words.end(), row.words.begin(), row.words.end());
    Ran ran = runner.Run(words);
    EXPECT_EQ(ran.code, kDone) << row.words[1] << ran.err;
    EXPECT_TRUE(server.heads().back().Find(row.header)) << row.words[1];
  }
}

TEST_F(Send, RefusalsSayWhatToDo) {
  struct Row {
    int status;
    std::string body, message;
  };
  const Row rows[] = {{401, R"({"status":"rejected"})", "dlo rejected --source s"},
                      {404, R"({"code":"unknown_source"})", "dlo source list"},
                      {413, "{}", "max_body"},
                      {503, R"({"code":"overloaded"})", "send it again later"}};
  for (const Row& row : rows) {
    ScriptedServer one;
    one.On("POST /in/s", row.status, row.body);
    Ran ran = runner.Run({"send", "--source", "s", "--scheme", "none", "--count", "3", "--server", one.address()});
    EXPECT_EQ(ran.code, kRefused);
    EXPECT_THAT(ran.err, HasSubstr(row.message));
    EXPECT_EQ(std::count(ran.err.begin(), ran.err.end(), '\n'), 1) << "said once: " << ran.err;
    EXPECT_EQ(one.calls().size(), 3U);
  }
}

TEST_F(Send, SomeTakenIsExit4AndOneKeyIsADuplicate) {
  server.On("POST /in/s", 200, R"({"status":"stored","id":1})");
  server.On("POST /in/s", 200, R"({"status":"duplicate","id":1})");
  server.On("POST /in/s", 503, "{}");
  Ran ran = runner.Run({"send", "--source", "s", "--scheme", "none", "--count", "3", "--key", "evt_same"});
  EXPECT_EQ(ran.code, kPartly);
  EXPECT_EQ(ran.out, "stored 1 invoice.paid evt_same\nduplicate 1 invoice.paid evt_same\n");
}

TEST_F(Send, AFileGoesOutByteForByte) {
  server.On("POST /in/s", 200, R"({"status":"stored","id":1})");
  runner.input = std::string("\0\xff{ \n", 5);
  EXPECT_EQ(runner.Run({"send", "--source", "s", "--scheme", "none", "--file", "-"}).code, kDone);
  EXPECT_EQ(server.calls().back(), "POST /in/s " + runner.input);
}

class Billing : public testing::Test {
 protected:
  // A key whose entry the ledger takes at once, after `tries` busy answers.
  server::Response Post(const std::string& key, const std::string& body) {
    server::RequestHead head{.method = "POST", .target = "/webhooks"};
    head.headers = {{"Idempotency-Key", key}};
    return app.Answer(head, body);
  }
  std::string Body(std::string_view kind, Customer customer) { return maker.Make(kind, customer, clock.Now())->body; }
  // Answers until the ledger is not busy, and how many tries that took.
  std::pair<server::Response, int> Until(const std::string& key, const std::string& body) {
    for (int tries = 1;; ++tries) {
      server::Response response = Post(key, body);
      if (response.status != 503) return {response, tries};
    }
  }
  static std::string Named(const server::Response& response, std::string_view name) {
    for (const Header& h : response.headers) {
      if (h.name == name) return h.value;
    }
    return {};
  }
  ManualClock clock{kNow};
  BillingApp app{{}, clock};
  SampleMaker maker{3};
};

TEST_F(Billing, AppliesEachKeyOnce) {
  std::string body = Body("invoice.paid", maker.MakeCustomer());
  auto [first, tries] = Until("s:a", body);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(Named(first, "Dlo-Outcome"), "applied");
  EXPECT_EQ(Named(first, "Dlo-Effect"), "ledger:1");
  EXPECT_EQ(Named(first, "Dlo-Handler-Version"), "1");
  server::Response second = Post("s:a", body);
  EXPECT_EQ(second.status, 200);
  EXPECT_EQ(Named(second, "Dlo-Outcome"), "already-applied");
  EXPECT_EQ(Named(second, "Dlo-Effect"), "ledger:1");
  EXPECT_EQ(Named(Until("s:b", body).first, "Dlo-Effect"), "ledger:2");
}

TEST_F(Billing, VersionTwoCuresCurrencyAndCustomerButNoUnknownKind) {
  Customer abroad = maker.MakeCustomer(), gone = maker.MakeCustomer();
  abroad.currency = "isk";
  gone.id = DeletedCustomers()[0];
  struct Row {
    std::string key, body;
    int before, after;
    std::string reason, message;
  };
  const Row rows[] = {
      {"1", Body("invoice.paid", abroad), 400, 200, "unsupported_currency", "isk"},
      {"2", Body("charge.refunded", gone), 404, 200, "not_found", "No such customer: '" + gone.id + "'"},
      {"3", Body("customer.tax_id.created", maker.MakeCustomer()), 422, 422, "unsupported_kind",
       "customer.tax_id.created"},
      {"4", "not json", 400, 400, "schema_mismatch", "JSON"},
      {"5", R"({"type":"invoice.paid"})", 400, 400, "schema_mismatch", "data.object"},
      {"6", "[]", 400, 400, "schema_mismatch", "type"},
  };
  for (const Row& row : rows) {
    server::Response response = Until(row.key, row.body).first;
    EXPECT_EQ(response.status, row.before) << row.key;
    EXPECT_EQ(Named(response, "Dlo-Reason"), row.reason);
    EXPECT_THAT(response.body, HasSubstr(row.message));
  }
  server::Response fix = app.Answer({.method = "POST", .target = "/fix"}, "");
  EXPECT_EQ(Named(fix, "Dlo-Handler-Version"), "2");
  for (const Row& row : rows) EXPECT_EQ(Post(row.key, row.body).status, row.after) << row.key;
}

TEST_F(Billing, TheLedgerIsBusyForSomeKeysAndThenTakesThem) {
  std::map<int, int> tries;
  std::string body = Body("invoice.paid", maker.MakeCustomer());
  for (int i = 0; i < 300; ++i) ++tries[Until("s:" + std::to_string(i), body).second];
  EXPECT_GT(tries[3], 10);  // two refusals, one key in twelve
  EXPECT_LT(tries[3], 50);
  EXPECT_EQ(tries[1] + tries[3], 300);
  Customer locked = maker.MakeCustomer();
  locked.id = LockedCustomer();
  EXPECT_EQ(Until("s:locked", Body("invoice.paid", locked)).second, 5);  // four refusals, as many as the demo tries
}

TEST_F(Billing, AnOutageEnds) {
  BillingApp down({.fixed = true, .outage = std::chrono::seconds(10)}, clock);
  server::RequestHead head{.method = "POST", .target = "/"};
  std::string body = Body("invoice.paid", maker.MakeCustomer());
  EXPECT_EQ(down.Answer(head, body).status, 503);
  clock.Advance(std::chrono::seconds(10) - Duration(1));
  EXPECT_EQ(down.Answer(head, body).status, 503);
  clock.Advance(Duration(1));
  server::Response response = down.Answer(head, "x");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(Named(response, "Dlo-Handler-Version"), "2");
}

}  // namespace
}  // namespace dlo::cli
