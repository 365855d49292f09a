#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "server/answer.h"
#include "unit/server/raw_client.h"

namespace dlo::server {
namespace {

using testing::CountOf;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawClient;

/// Answers with what it was sent; remembers whether the canary ran.
class Echo final : public Handler {
 public:
  std::atomic<int> handled{0};
  std::atomic<bool> canary{false};
  std::size_t max_body = 1024;
  std::optional<Duration> answer_within;
  bool keep_silent = false;

  std::expected<Admission, Response> Begin(RequestHead& head) override {
    if (head.path() == "/refused") return std::unexpected(Problem(404, "unknown_source", "none"));
    if (head.path() == "/throws") throw std::runtime_error("begin");
    return Admission{.max_body = max_body, .answer_within = answer_within};
  }
  void Handle(RequestHead head, std::string body, Responder respond) override {
    if (head.path() == "/canary") canary = true;
    if (head.path() == "/fails") throw std::runtime_error("handle");
    Response response;
    response.content_type = "text/plain";
    response.body = head.method + " " + head.target + " [" + body + "]";
    if (keep_silent) {
      const std::lock_guard lock(mutex);
      kept.push_back(std::move(respond));
      ++handled;  // who waits for the count finds it kept
      return;
    }
    ++handled;
    respond(std::move(response));
  }
  std::mutex mutex;
  std::vector<Responder> kept;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void Serve(HttpOptions options = {}, int threads = 2) {
    options.tick = std::chrono::milliseconds(5);
    options.threads = threads;
    server.emplace(options, clock);
    const auto started = server->Start("127.0.0.1:0", echo);
    ASSERT_TRUE(started) << started.error().message;
  }
  RealClock clock;
  Echo echo;
  std::optional<HttpServer> server;  // last: stops before what it uses goes
};

constexpr std::string_view kCanary = "GET /canary HTTP/1.1\r\nHost: a\r\n\r\n";

struct Hostile {
  std::string name;
  std::string bytes;
  int status;
};

std::vector<Hostile> HostileRequests() {
  const std::string post = "POST /a HTTP/1.1\r\nHost: a\r\n";
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string get = "GET /a HTTP/1.1\r\nHost: a\r\n";
  std::string many;
  for (int i = 0; i < 101; ++i) many += "x: y\r\n";
  return {
      {"both lengths", post + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"both lengths, other order", post + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 400},
      {"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400},
      {"two equal lengths", post + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello", 400},
      {"length list", post + "Content-Length: 5, 5\r\n\r\nhello", 400},
      {"negative length", post + "Content-Length: -5\r\n\r\nhello", 400},
      {"signed length", post + "Content-Length: +5\r\n\r\nhello", 400},
      {"hex length", post + "Content-Length: 0x5\r\n\r\nhello", 400},
      {"empty length", post + "Content-Length:\r\n\r\n", 400},
      {"length over 64 bits", post + "Content-Length: 18446744073709551616\r\n\r\n", 400},
      {"length with a space within", post + "Content-Length: 1 1\r\n\r\n", 400},
      {"coding list", post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400},
      {"chunked twice", post + "Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 400},
      {"two codings", post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"unknown coding", post + "Transfer-Encoding: identity\r\n\r\n", 400},
      {"coding that only looks chunked", post + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
      {"coding in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"bare LF lines", "GET /a HTTP/1.1\nHost: a\n\n", 400},
      {"bare LF in one line", "GET /a HTTP/1.1\r\nHost: a\nx: y\r\n\r\n", 400},
      {"bare CR", get + "x: a\rb\r\n\r\n", 400},
      {"CR CR LF", get + "x: a\r\r\n\r\n", 400},
      {"folded line, space", get + "x: a\r\n b\r\n\r\n", 400},
      {"folded line, tab", get + "x: a\r\n\tb\r\n\r\n", 400},
      {"space before the first field", "GET /a HTTP/1.1\r\n Host: a\r\n\r\n", 400},
      {"space before colon", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length : 5\r\n\r\nhello", 400},
      {"tab before colon", get + "x\t: y\r\n\r\n", 400},
      {"NUL in a value", get + std::string("x: a\0b\r\n\r\n", 11), 400},
      {"NUL in a name", get + std::string("x\0: a\r\n\r\n", 9), 400},
      {"NUL in the target", std::string("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n", 31), 400},
      {"DEL in a value", get + "x: a\x7f\r\n\r\n", 400},
      {"empty name", get + ": a\r\n\r\n", 400},
      {"no colon", get + "xyz\r\n\r\n", 400},
      {"empty first line", "\r\n" + get + "\r\n", 400},
      {"two spaces in the request line", "GET  /a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"space at the end of the request line", "GET /a HTTP/1.1 \r\nHost: a\r\n\r\n", 400},
      {"lower-case protocol", "GET /a http/1.1\r\nHost: a\r\n\r\n", 400},
      {"HTTP/2.0", "GET /a HTTP/2.0\r\nHost: a\r\n\r\n", 400},
      {"HTTP/0.9", "GET /a\r\n\r\n", 400},
      {"no host", "GET /a HTTP/1.1\r\n\r\n", 400},
      {"two hosts", get + "Host: b\r\n\r\n", 400},
      {"absolute target", "GET http://a/a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"target without a slash", "GET a HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"asterisk", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"CONNECT", "CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"fragment", "GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"byte over 126 in the target", "GET /\xC3\xA9 HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"TLS hello on the plain port", std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", 13), 400},
      {"other expectation", post + "Expect: 200-ok\r\nContent-Length: 5\r\n\r\nhello", 417},
      {"long request line", "GET /" + std::string(8192, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", 414},
      {"request line without end", "GET /" + std::string(9000, 'a'), 414},
      {"large field", get + "x: " + std::string(16 * 1024, 'y') + "\r\n\r\n", 431},
      {"fields without end", get + "x: " + std::string(20 * 1024, 'y'), 431},
      {"many fields", get + many + "\r\n", 431},
      {"body over the limit, declared", post + "Content-Length: 10737418240\r\n\r\n", 413},
      {"body one over the limit", post + "Content-Length: 1025\r\n\r\n", 413},
      {"chunk over the limit", chunked + "401\r\n", 413},
      {"chunks over the limit", chunked + "400\r\n" + std::string(1024, 'a') + "\r\n1\r\n", 413},
      {"chunk size negative", chunked + "-1\r\n", 400},
      {"chunk size 0x", chunked + "0x1\r\na\r\n0\r\n\r\n", 400},
      {"chunk size signed", chunked + "+1\r\na\r\n0\r\n\r\n", 400},
      {"chunk size with space before", chunked + " 1\r\na\r\n0\r\n\r\n", 400},
      {"chunk size with space after", chunked + "1 \r\na\r\n0\r\n\r\n", 400},
      {"chunk size of 17 digits", chunked + "00000000000000001\r\na\r\n0\r\n\r\n", 400},
      {"chunk size that wraps", chunked + "ffffffffffffffff\r\n", 413},
      {"chunk size missing", chunked + "\r\n", 400},
      {"chunk without CRLF", chunked + "1\r\nab\r\n0\r\n\r\n", 400},
      {"chunk size with bare LF", chunked + "1\na\r\n0\r\n\r\n", 400},
      {"chunk data with bare LF", chunked + "1\r\na\n0\r\n\r\n", 400},
      {"chunk extension", chunked + "1;a=b\r\na\r\n0\r\n\r\n", 400},
      {"extension of the last chunk", chunked + "0;a=b\r\n\r\n", 400},
      {"trailer", chunked + "0\r\nx: y\r\n\r\n", 400},
      {"refused with a body to come", "POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 999\r\n\r\n", 404},
  };
}

TEST_F(HttpServerTest, HostileRequestsAreRefusedClosedAndNothingBehindThemRuns) {
  Serve();
  for (const Hostile& row : HostileRequests()) {
    SCOPED_TRACE(row.name);
    const int before = echo.handled;
    RawClient client(server->port());
    client.Send(row.bytes);
    client.Send(kCanary);
    client.FinishSending();
    client.ReadAll();
    EXPECT_EQ(client.status(), row.status) << client.received().substr(0, 200);
    EXPECT_TRUE(client.closed());
    EXPECT_EQ(CountOf(client.received(), "HTTP/1.1 "), 1);
    EXPECT_THAT(client.received(), HasSubstr("\r\nConnection: close\r\n"));
    EXPECT_THAT(client.received(), HasSubstr("\r\nContent-Type: application/problem+json\r\n"));
    EXPECT_FALSE(echo.canary);
    EXPECT_EQ(echo.handled, before);
  }
}

TEST_F(HttpServerTest, RequestsAtTheLimitsAreTaken) {
  Serve();
  std::string fields = "Host: a\r\nConnection: close\r\n";
  for (int i = 0; i < 98; ++i) fields += "x: y\r\n";
  const std::string line_end = " HTTP/1.1\r\n";
  const std::string line = "GET /" + std::string(8192 - 5 - line_end.size(), 'a') + line_end;
  const std::string small = "Host: a\r\nConnection: close\r\n";
  const struct {
    std::string name, bytes, answer;
  } rows[] = {
      {"100 fields", "GET /a HTTP/1.1\r\n" + fields + "\r\n", "GET /a []"},
      {"request line of 8 KiB", line + small + "\r\n", "GET /aaa"},
      {"fields of 16 KiB",
       "GET /a HTTP/1.1\r\n" + small + "x: " + std::string(16384 - small.size() - 5 - 2, 'y') + "\r\n\r\n",
       "GET /a []"},
      {"body of the limit", "POST /a HTTP/1.1\r\n" + small + "Content-Length: 1024\r\n\r\n" + std::string(1024, 'b'),
       "b]"},
      {"chunks of the limit",
       "POST /a HTTP/1.1\r\n" + small + "Transfer-Encoding: Chunked\r\n\r\n3FF\r\n" + std::string(1023, 'c') +
           "\r\n0001\r\nd\r\n0\r\n\r\n",
       "cd]"},
      {"body of no bytes", "POST /a HTTP/1.1\r\n" + small + "Content-Length: 0\r\n\r\n", "POST /a []"},
      {"chunked body of no bytes", "POST /a HTTP/1.1\r\n" + small + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
       "POST /a []"},
      {"NUL and high bytes in a body",
       "POST /a HTTP/1.1\r\n" + small + "Content-Length: 4\r\n\r\n" + std::string("\0\xff\r\n", 4),
       std::string("[\0\xff\r\n]", 6)},
      {"HTTP/1.0", "GET /a HTTP/1.0\r\n\r\n", "GET /a []"},
      {"high bytes in a value", "GET /a HTTP/1.1\r\n" + small + "x: \xC3\xA9\r\n\r\n", "GET /a []"},
      {"value with tabs around", "GET /a HTTP/1.1\r\n" + small + "x:\t y \t\r\n\r\n", "GET /a []"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    RawClient client(server->port());
    client.Send(row.bytes);
    client.ReadAll();
    EXPECT_EQ(client.status(), 200) << client.received().substr(0, 300);
    EXPECT_THAT(client.received(), HasSubstr(row.answer));
    EXPECT_TRUE(client.closed());
  }
}

TEST_F(HttpServerTest, AnySplitOfTheBytesGivesTheSameAnswer) {
  Serve();
  const std::string request =
      "POST /split HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
  for (std::size_t at = 1; at < request.size(); ++at) {
    RawClient client(server->port());
    client.Send(request.substr(0, at));
    client.Send(request.substr(at));
    ASSERT_THAT(client.ReadAll(), HasSubstr("POST /split [hello world]")) << "split at " << at;
  }
}

TEST_F(HttpServerTest, PipelinedRequestsAreAnsweredInOrder) {
  Serve();
  RawClient client(server->port());
  std::string all;
  for (int i = 0; i < 20; ++i) {
    all += "POST /p" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab";
  }
  client.Send(all + "GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string& got = client.ReadAll();
  std::size_t at = 0;
  for (int i = 0; i < 20; ++i) {
    at = got.find("POST /p" + std::to_string(i) + " [ab]", at);
    ASSERT_NE(at, std::string::npos) << i;
  }
  EXPECT_NE(got.find("GET /last []", at), std::string::npos);
}

TEST_F(HttpServerTest, AnExpectedContinueIsGivenAndARefusalComesInItsPlace) {
  Serve();
  RawClient asks(server->port());
  asks.Send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
  ASSERT_THAT(asks.ReadUntil("\r\n\r\n"), ::testing::StartsWith("HTTP/1.1 100 Continue\r\n\r\n"));
  asks.Send("hello");
  EXPECT_THAT(asks.ReadAll(), HasSubstr("POST /a [hello]"));

  RawClient refused(server->port());
  refused.Send("POST /a HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5000\r\n\r\n");
  EXPECT_THAT(refused.ReadAll(), Not(HasSubstr("100 Continue")));
  EXPECT_EQ(refused.status(), 413);
}

TEST_F(HttpServerTest, HeadGetsNoBodyAndTheConnectionGoesOn) {
  Serve();
  RawClient client(server->port());
  client.Send("HEAD /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  const std::string& got = client.ReadAll();
  EXPECT_THAT(got, HasSubstr("Content-Length: 10\r\nContent-Type: text/plain\r\n\r\nHTTP/1.1 200 OK"));
  EXPECT_THAT(got, HasSubstr("GET /b []"));
}

TEST_F(HttpServerTest, ARefusalWhoseBodyIsHereKeepsTheConnection) {
  Serve();
  RawClient client(server->port());
  client.Send("POST /refused HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nGET GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(client.ReadUntil("GET /b []"), HasSubstr("HTTP/1.1 404 Not Found"));
}

TEST_F(HttpServerTest, AHandlerThatThrowsCostsOneAnswer) {
  Serve();
  for (const char* path : {"/throws", "/fails"}) {
    RawClient client(server->port());
    client.Send("GET " + std::string(path) + " HTTP/1.1\r\nHost: a\r\n\r\n");
    client.ReadAll();
    EXPECT_EQ(client.status(), 500) << path;
    EXPECT_THAT(client.received(), Not(HasSubstr("begin")));
    EXPECT_THAT(client.received(), Not(HasSubstr("\"handle\"")));
  }
}

TEST_F(HttpServerTest, SlowAndSilentClientsAreCut) {
  HttpOptions options;
  options.head_deadline = options.body_deadline = options.idle_deadline = std::chrono::milliseconds(100);
  Serve(options);
  const struct {
    std::string name, bytes;
  } rows[] = {
      {"says nothing", ""},
      {"half a head", "GET /a HTTP/1.1\r\nHost:"},
      {"half a body", "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello"},
      {"half a chunk", "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe"},
      {"idle after an answer", "GET /a HTTP/1.1\r\nHost: a\r\n\r\n"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    RawClient client(server->port());
    client.Send(row.bytes);
    client.ReadAll();
    EXPECT_TRUE(client.closed());
  }
}

TEST_F(HttpServerTest, AnAnswerThatIsLateIsReplacedAndTheLateOneDropped) {
  echo.answer_within = std::chrono::milliseconds(50);
  echo.keep_silent = true;
  Serve();
  RawClient client(server->port());
  client.Send("POST /slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
  const std::string& got = client.ReadUntil("}");
  EXPECT_EQ(client.status(), 503);
  EXPECT_THAT(got, HasSubstr("\r\nRetry-After: "));
  EXPECT_THAT(got, HasSubstr("\"code\":\"commit_timeout\""));
  {
    const std::lock_guard lock(echo.mutex);
    ASSERT_EQ(echo.kept.size(), 1U);
    echo.kept.front()({.body = "late"});
  }
  echo.keep_silent = false;
  client.Send("GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(client.ReadAll(), HasSubstr("GET /next []"));
  EXPECT_THAT(client.received(), Not(HasSubstr("late")));
  echo.kept.clear();
}

TEST_F(HttpServerTest, BodiesInFlightAreBounded) {
  HttpOptions options;
  options.body_bytes = 1000;
  echo.keep_silent = true;
  Serve(options);
  const std::string request = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 600\r\n\r\n" + std::string(600, 'x');
  RawClient first(server->port());
  first.Send(request);
  while (echo.handled == 0) std::this_thread::yield();
  RawClient second(server->port());
  second.Send(request);
  second.ReadAll();
  EXPECT_EQ(second.status(), 503);
  EXPECT_THAT(second.received(), HasSubstr("\r\nRetry-After: "));

  RawClient chunked(server->port());
  chunked.Send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n258\r\n" + std::string(600, 'x') +
               "\r\n");
  chunked.ReadAll();
  EXPECT_EQ(chunked.status(), 503);

  {
    const std::lock_guard lock(echo.mutex);
    echo.kept.front()({});
    echo.kept.clear();
  }
  first.ReadUntil("\r\n\r\n");
  echo.keep_silent = false;
  RawClient third(server->port());
  third.Send(request);
  third.ReadUntil("]");
  EXPECT_EQ(third.status(), 200);
}

TEST_F(HttpServerTest, ConnectionsOverTheCapAreClosed) {
  HttpOptions options;
  options.max_connections = 2;
  Serve(options);
  RawClient a(server->port()), b(server->port());
  for (RawClient* client : {&a, &b}) {
    client->Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    client->ReadUntil("[]");
    EXPECT_EQ(client->status(), 200);
  }
  RawClient c(server->port());
  c.Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  c.ReadAll();
  EXPECT_TRUE(c.closed());
  EXPECT_EQ(c.status(), 0);
  a.Send("GET /b HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_THAT(a.ReadUntil("GET /b []"), HasSubstr("GET /b []"));
}

TEST_F(HttpServerTest, ABodyThatDripsIsCutOff) {
  HttpOptions options;
  options.body_grace = std::chrono::milliseconds(50);
  options.body_rate = 1'000'000;
  Serve(options);
  RawClient declared(server->port()), chunked(server->port());
  declared.Send("POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\nabc");
  chunked.Send("POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  declared.ReadAll();
  chunked.ReadAll();
  EXPECT_TRUE(declared.closed());
  EXPECT_TRUE(chunked.closed());
  EXPECT_EQ(echo.handled, 0);
}

TEST_F(HttpServerTest, AClientThatNeverReadsIsCut) {
  HttpOptions options;
  options.max_requests = 1'000'000;
  options.write_deadline = std::chrono::milliseconds(100);
  Serve(options);
  RawClient client(server->port());
  const std::string request = "GET /" + std::string(4'000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n";
  while (client.Send(request)) {  // until the answers fill what the kernel holds, and the server gives up
  }
  EXPECT_NE(errno, EAGAIN) << "nobody closed it";
  while (server->connections() > 0) std::this_thread::yield();
}

TEST_F(HttpServerTest, TheLimitsOfAHeadAreSettings) {
  HttpOptions options;
  options.head = {.request_line = 300, .header_bytes = 1'000, .header_fields = 10};
  Serve(options);
  const auto fields = [](int count, std::size_t length) {
    std::string out;
    for (int i = 0; i < count; ++i) out += "x: " + std::string(length, 'y') + "\r\n";
    return out;
  };
  const auto line = [](std::size_t length) { return "GET /" + std::string(length - 16, 'a') + " HTTP/1.1\r\n"; };
  const struct {
    std::string name, bytes;
    int status;
  } rows[] = {
      {"line at the limit", line(300) + "Host: a\r\n\r\n", 200},
      {"line over it", line(301) + "Host: a\r\n\r\n", 414},
      {"fields at their number", line(20) + "Host: a\r\n" + fields(9, 1) + "\r\n", 200},
      {"one field more", line(20) + "Host: a\r\n" + fields(10, 1) + "\r\n", 431},
      {"fields at their size", line(20) + "Host: a\r\n" + fields(1, 1'000 - 9 - 5 - 2) + "\r\n", 200},
      {"one byte more", line(20) + "Host: a\r\n" + fields(1, 1'000 - 9 - 5 - 1) + "\r\n", 431},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.name);
    RawClient client(server->port());
    client.Send(row.bytes);
    client.ReadUntil(row.status == 200 ? "[]" : "}");
    EXPECT_EQ(client.status(), row.status) << client.received();
  }
}

TEST_F(HttpServerTest, TheLastRequestOfAConnectionClosesIt) {
  HttpOptions options;
  options.max_requests = 3;
  Serve(options);
  RawClient client(server->port());
  for (int i = 0; i < 5; ++i) client.Send("GET /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\n\r\n");
  client.ReadAll();
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(echo.handled, 3);
  EXPECT_THAT(client.received(), HasSubstr("Connection: close"));
}

TEST_F(HttpServerTest, StopLetsARunningRequestFinish) {
  echo.keep_silent = true;
  Serve({}, 1);  // so that who sees one connection drained knows that all are
  RawClient idle(server->port());
  idle.Send("GET /idle HTTP/1.1\r\nHost: a\r\n\r\n");
  while (echo.handled < 1) std::this_thread::yield();
  RawClient busy(server->port());
  busy.Send("GET /busy HTTP/1.1\r\nHost: a\r\n\r\n");
  while (echo.handled < 2) std::this_thread::yield();
  std::vector<Responder> kept;
  {
    const std::lock_guard lock(echo.mutex);
    kept = std::move(echo.kept);
    echo.kept.clear();
  }
  kept.front()({.body = "first"});
  idle.ReadUntil("first");
  auto stopped = std::async(std::launch::async, [&] { server->Stop(std::chrono::seconds(10)); });
  idle.ReadAll();
  EXPECT_TRUE(idle.closed());
  kept.back()({.body = "second"});
  EXPECT_THAT(busy.ReadAll(), HasSubstr("second"));
  EXPECT_THAT(busy.received(), HasSubstr("Connection: close"));
  stopped.get();
  EXPECT_EQ(server->connections(), 0);
}

TEST_F(HttpServerTest, AnAnswerAfterStopDoesNoHarm) {
  echo.keep_silent = true;
  Serve();
  RawClient client(server->port());
  client.Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
  while (echo.handled == 0) std::this_thread::yield();
  server->Stop(Duration(0));
  server.reset();
  echo.kept.clear();  // answers 500 to nobody
  client.ReadAll();
  EXPECT_TRUE(client.closed());
}

TEST_F(HttpServerTest, AnswersThatComeWhileTheServerStopsDoNoHarm) {
  echo.keep_silent = true;
  for (int round = 0; round < 20; ++round) {
    echo.handled = 0;
    Serve();
    std::vector<std::unique_ptr<RawClient>> clients;
    for (int i = 0; i < 16; ++i) {
      clients.push_back(std::make_unique<RawClient>(server->port()));
      clients.back()->Send("GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    while (echo.handled < 16) std::this_thread::yield();
    auto stopped = std::async(std::launch::async, [&] { server->Stop(Duration(0)); });
    for (Responder& respond : std::exchange(echo.kept, {})) respond({.body = "answered"});
    stopped.get();
    EXPECT_EQ(server->connections(), 0);
  }
}

TEST_F(HttpServerTest, AnswersFromOtherThreadsAllArrive) {
  echo.keep_silent = true;
  Serve();
  constexpr int kClients = 32;
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<RawClient>(server->port()));
    clients.back()->Send("GET /a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
  }
  while (echo.handled < kClients) std::this_thread::yield();
  std::thread other([this] {
    const std::lock_guard lock(echo.mutex);
    for (Responder& respond : echo.kept) respond({.body = "answered"});
    echo.kept.clear();
  });
  other.join();
  for (const auto& client : clients) EXPECT_THAT(client->ReadAll(), HasSubstr("answered"));
}

TEST(HttpServerStart, SaysWhatIsWrongWithListen) {
  RealClock clock;
  Echo echo;
  for (const char* listen : {"", "127.0.0.1", "127.0.0.1:", ":80", "127.0.0.1:x", "127.0.0.1:65536", "127.0.0.1:-1"}) {
    HttpServer server({.threads = 1}, clock);
    const auto started = server.Start(listen, echo);
    ASSERT_FALSE(started) << listen;
    EXPECT_EQ(started.error().kind, ErrorKind::invalid) << listen;
  }
  HttpServer first({.threads = 1}, clock), second({.threads = 1}, clock);
  ASSERT_TRUE(first.Start("127.0.0.1:0", echo));
  const auto taken = second.Start("127.0.0.1:" + std::to_string(first.port()), echo);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().kind, ErrorKind::unavailable);
  HttpServer tls({.threads = 1, .tls_cert = "/nonexistent.pem", .tls_key = "/nonexistent.key"}, clock);
  EXPECT_EQ(tls.Start("127.0.0.1:0", echo).error().code, "tls_cert");
  HttpServer half({.threads = 1, .tls_cert = "/nonexistent.pem"}, clock);
  EXPECT_EQ(half.Start("127.0.0.1:0", echo).error().code, "tls");
}

}  // namespace
}  // namespace dlo::server
