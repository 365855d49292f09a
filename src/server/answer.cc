#include "server/answer.h"

#include <fmt/format.h>

#include <array>
#include <atomic>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <chrono>
#include <iterator>

#include "base/encoding.h"

namespace dlo::server {
namespace {

constexpr std::size_t kMaxDetail = 4096;

int NextRetryAfter(bool slowly) {
  static std::atomic<unsigned> turn{0};
  const unsigned next = turn.fetch_add(1, std::memory_order_relaxed);
  // 23 and 56 have no factor in common: neighbours come back far apart.
  return static_cast<int>(slowly ? 5 + next % 56 * 23 % 56 : next % 5 + 1);
}

}  // namespace

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 410:
      return "Gone";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 421:
      return "Misdirected Request";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

std::string FormatHead(const Response& response, std::string_view date, bool close) {
  std::string out;
  out.reserve(192 + response.body.size());
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\nDate: {}\r\nContent-Length: {}\r\n", response.status,
                 StatusText(response.status), date, response.body.size());
  if (!response.content_type.empty()) {
    fmt::format_to(std::back_inserter(out), "Content-Type: {}\r\n", response.content_type);
  }
  for (const Header& h : response.headers) fmt::format_to(std::back_inserter(out), "{}: {}\r\n", h.name, h.value);
  if (close) out += "Connection: close\r\n";
  out += "\r\n";
  return out;
}

std::string HttpDate(Time now) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const auto day = std::chrono::floor<std::chrono::days>(now);
  const std::chrono::year_month_day date{day};
  const std::chrono::hh_mm_ss time{std::chrono::floor<std::chrono::seconds>(now - day)};
  return fmt::format("{}, {:02} {} {:04} {:02}:{:02}:{:02} GMT", kDays.at(std::chrono::weekday{day}.c_encoding()),
                     static_cast<unsigned>(date.day()), kMonths.at(static_cast<unsigned>(date.month()) - 1),
                     static_cast<int>(date.year()), time.hours().count(), time.minutes().count(),
                     time.seconds().count());
}

Response Problem(int status, std::string_view code, std::string_view detail) {
  const boost::json::value body = {{"type", "about:blank"},
                                   {"title", std::string(StatusText(status))},
                                   {"status", status},
                                   {"code", std::string(code)},
                                   {"detail", CleanText(detail, kMaxDetail)}};
  Response response;
  response.status = status;
  response.content_type = "application/problem+json";
  response.body = boost::json::serialize(body);
  return response;
}

Response Later(int status, std::string_view code, std::string_view detail, bool slowly) {
  Response response = Problem(status, code, detail);
  response.headers.push_back({"Retry-After", std::to_string(NextRetryAfter(slowly))});
  return response;
}

Response FromError(const Error& error) {
  switch (error.kind) {
    case ErrorKind::unavailable:
      return Later(503, error.code, error.message);
    case ErrorKind::conflict:
      return Problem(409, error.code, error.message);
    case ErrorKind::not_found:
      return Problem(404, error.code, error.message);
    case ErrorKind::invalid:
      return Problem(400, error.code, error.message);
    case ErrorKind::corrupt:
      return Problem(500, "corrupt", error.message);
    case ErrorKind::forbidden:
      return Problem(403, error.code, error.message);
    case ErrorKind::too_large:
      return Problem(error.code == "replay_too_large" || error.code == "too_many" ? 409 : 413, error.code,
                     error.message);
  }
  return Problem(500, "internal", "The server met an error of a kind that it does not know.");
}

Response Refusal(int status) {
  Response response;
  switch (status) {
    case 413:
      response = Problem(413, "body_too_large", "The body is larger than this address accepts.");
      break;
    case 414:
      response = Problem(414, "request_line_too_long", "The request line is longer than this server takes.");
      break;
    case 417:
      response = Problem(417, "expectation_failed", "Only `Expect: 100-continue` is understood.");
      break;
    case 431:
      response =
          Problem(431, "headers_too_large", "The header fields are larger together, or more, than this server takes.");
      break;
    case 500:
      response = Problem(500, "internal", "The request could not be handled; the server's log has more.");
      break;
    case 503:
      response = Later(503, "overloaded", "The server holds too much unanswered work. Try again.");
      break;
    default:
      response = Problem(400, "bad_request", "The request is not well-formed HTTP/1.1.");
      break;
  }
  response.close = true;
  return response;
}

}  // namespace dlo::server
