#include "dispatch/http_target.h"

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include "base/encoding.h"
#include "base/log.h"

namespace dlo::dispatch {
namespace {

constexpr std::size_t kMessageBytes = 300;  // of the answer's own words
constexpr std::size_t kNameBytes = 200;     // handler version, effect

bool SameName(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

std::string_view Find(const HttpResponse& response, std::string_view name) {
  for (const Header& header : response.headers) {
    if (SameName(header.name, name)) return header.value;
  }
  return {};
}

// A reason that looks like a code is one: "schema_mismatch", not "the customer was deleted".
bool IsCode(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
  });
}

// The sentence in an error body as APIs write it: {"message"}, {"error":"..."}, {"error":{"message"}}, {"detail"},
// {"title"}.
std::string SentenceOf(std::string_view body) {
  if (!body.starts_with('{')) return {};
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(boost::json::string_view(body.data(), body.size()), error);
  if (error || !parsed.is_object()) return {};
  const boost::json::object* object = &parsed.get_object();
  if (const auto* inner = object->if_contains("error"); inner != nullptr && inner->is_object()) {
    object = &inner->get_object();
  }
  for (const char* name : {"message", "error", "detail", "title"}) {
    const auto* value = object->if_contains(name);
    if (value != nullptr && value->is_string()) return std::string(value->get_string());
  }
  return {};
}

std::string MessageOf(const HttpResponse& response, std::string_view reason) {
  std::string words(IsCode(reason) ? std::string_view() : reason);
  if (words.empty()) words = SentenceOf(response.body);
  if (words.empty()) words = response.body.substr(0, response.body.find_first_of("\r\n"));
  if (words.empty()) words = reason;
  if (words.empty() && response.status >= 300 && response.status < 400) words = "redirects are not followed";
  const std::string status = fmt::format("HTTP {}", response.status);
  return words.empty() ? status : status + ": " + CleanText(words, kMessageBytes);
}

OutcomeKind KindOfStatus(int status, std::string_view reason) {
  if (status >= 200 && status < 300) return OutcomeKind::applied;
  if (status == 409) return OutcomeKind::already_applied;
  if (status == 410 || (status == 404 && reason == "not_found")) return OutcomeKind::gone;
  if (status >= 500 || status == 408 || status == 425 || status == 429) return OutcomeKind::retryable;
  return OutcomeKind::permanent;
}

std::optional<OutcomeKind> KindOfHeader(std::string_view word) {
  static constexpr std::pair<std::string_view, OutcomeKind> kWords[] = {
      {"applied", OutcomeKind::applied},
      {"already-applied", OutcomeKind::already_applied},
      {"retryable", OutcomeKind::retryable},
      {"permanent", OutcomeKind::permanent},
      {"not-applicable", OutcomeKind::not_applicable},
  };
  for (const auto& [name, kind] : kWords) {
    if (SameName(word, name)) return kind;
  }
  return std::nullopt;
}

std::string_view CodeOf(HttpFailure failure) {
  switch (failure) {
    case HttpFailure::blocked_address:
      return "blocked_address";
    case HttpFailure::resolve:
      return "resolve";
    case HttpFailure::connect:
      return "connect";
    case HttpFailure::tls:
      return "tls";
    case HttpFailure::timeout:
      return "timeout";
    case HttpFailure::answer_too_large:
      return "answer_too_large";
    case HttpFailure::invalid_url:
      return "invalid_url";
    case HttpFailure::reset:
    case HttpFailure::none:
    case HttpFailure::stopped:
      break;
  }
  return "reset";
}

// A wrong setting of ours must not cost events, so it is retryable and, as a failure of the whole target, opens its
// breaker; the log says what to do.
void ReportSetting(HttpFailure failure, const std::string& target, const std::string& why) {
  if (failure == HttpFailure::blocked_address) {
    log::Error("target_address_refused",
               {{"target", target},
                {"why", why},
                {"do",
                 "if this private address is meant, set allow_private = true on the target; metadata and reserved "
                 "addresses stay refused"}});
  } else if (failure == HttpFailure::invalid_url) {
    log::Error("target_url_invalid",
               {{"target", target}, {"why", why}, {"do", "correct the target's url and restart"}});
  }
}

std::optional<int> Digits(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.front() == '-') return std::nullopt;
  return value;
}

// "Sun, 06 Nov 1994 08:49:37 GMT": the one date form that may still be sent (RFC 9110, 5.6.7).
std::optional<Time> ParseHttpDate(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                               "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  if (text.size() != 29 || text.substr(3, 2) != ", " || text.substr(25) != " GMT") return std::nullopt;
  if (text[7] != ' ' || text[11] != ' ' || text[16] != ' ' || text[19] != ':' || text[22] != ':') return std::nullopt;
  const auto* const month = std::ranges::find(kMonths, text.substr(8, 3));
  const auto day = Digits(text.substr(5, 2));
  const auto year = Digits(text.substr(12, 4));
  const auto hour = Digits(text.substr(17, 2));
  const auto minute = Digits(text.substr(20, 2));
  const auto second = Digits(text.substr(23, 2));
  if (month == kMonths.end() || !day || !year || !hour || !minute || !second) return std::nullopt;
  if (*hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  const std::chrono::year_month_day date(std::chrono::year(*year),
                                         std::chrono::month(static_cast<unsigned>(month - kMonths.begin() + 1)),
                                         std::chrono::day(static_cast<unsigned>(*day)));
  if (!date.ok()) return std::nullopt;
  return Time(std::chrono::sys_days(date)) + std::chrono::hours(*hour) + std::chrono::minutes(*minute) +
         std::chrono::seconds(*second);
}

}  // namespace

std::optional<Duration> ParseRetryAfter(std::string_view value, Time now) {
  if (!value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos) {
    // More digits than this is more than the cap of any wait.
    return std::chrono::seconds(Digits(value.substr(0, 9)).value_or(0));
  }
  if (const auto date = ParseHttpDate(value)) return *date - now;
  return std::nullopt;
}

std::optional<Outcome> OutcomeOf(const HttpResponse& response, Time now) {
  if (response.failure == HttpFailure::stopped) return std::nullopt;
  if (response.failure != HttpFailure::none) {
    return Outcome::Retryable(std::string(CodeOf(response.failure)), response.failure_message);
  }
  const std::string_view reason = Find(response, "Dlo-Reason");
  Outcome outcome;
  outcome.http_status = response.status;
  outcome.kind = KindOfStatus(response.status, reason);
  outcome.handler_version = CleanText(Find(response, "Dlo-Handler-Version"), kNameBytes);
  outcome.effect = CleanText(Find(response, "Dlo-Effect"), kNameBytes);
  const std::string_view word = Find(response, "Dlo-Outcome");
  if (const auto kind = KindOfHeader(word)) {
    outcome.kind = *kind;
  } else if (!word.empty()) {
    log::Warn("dlo_outcome_unknown",
              {{"value", CleanText(word, 64)},
               {"do", "answer applied, already-applied, retryable, permanent or not-applicable"}});
  }

  switch (outcome.kind) {
    case OutcomeKind::applied:
      outcome.code = "applied";
      break;
    case OutcomeKind::already_applied:
      outcome.code = "already_applied";
      break;
    case OutcomeKind::not_applicable:
      outcome.code = "not_applicable";
      outcome.message = reason;
      break;
    case OutcomeKind::gone:
      outcome.code = "not_found";
      outcome.message = MessageOf(response, reason);
      break;
    default:
      outcome.code = IsCode(reason) ? std::string(reason) : fmt::format("http_{}", response.status);
      outcome.message = MessageOf(response, reason);
      break;
  }
  const bool failed = outcome.kind >= OutcomeKind::retryable;
  if (failed) outcome.detail = response.body;
  if (outcome.kind == OutcomeKind::retryable) outcome.retry_after = ParseRetryAfter(Find(response, "Retry-After"), now);
  return outcome;
}

HttpTarget::HttpTarget(const TargetConfig& config, HttpClient& http, Clock& clock)
    : name_(config.name),
      url_(config.url),
      timeout_(config.timeout),
      connect_timeout_(config.connect_timeout),
      allow_private_(config.allow_private),
      concurrency_(config.concurrency),
      max_header_bytes_(config.max_answer_header_bytes),
      max_body_bytes_(config.max_answer_body_bytes),
      http_(http),
      clock_(clock) {
  if (config.signing_secret.empty()) return;
  auto signer = intake::Signer::Compile("standard-webhooks", {}, config.signing_secret);
  if (signer) {
    signer_ = std::move(*signer);
    return;
  }
  signer_error_ = signer.error().message;
  log::Error("target_signing_secret_invalid",
             {{"target", name_}, {"why", signer_error_}, {"do", "correct signing_secret and restart"}});
}

void HttpTarget::Start(Delivery delivery, Done done) {
  const Time now = clock_.Now();
  if (stopping_) {
    done({});
    return;
  }
  if (!signer_error_.empty()) {
    // An unsigned request would be refused by a handler that verifies, which would cost the event.
    done({Outcome::Retryable("signing_secret_invalid", signer_error_), {}, now});
    return;
  }
  HttpRequest request;
  request.url = url_;
  request.headers = BuildHeaders(delivery, signer_ ? &*signer_ : nullptr, now);
  request.body = delivery.receipt->body;
  request.body_owner = std::move(delivery.receipt);
  request.timeout = timeout_;
  request.connect_timeout = connect_timeout_;
  request.allow_private = allow_private_;
  request.max_header_bytes = max_header_bytes_;
  request.max_body_bytes = max_body_bytes_;
  http_.Start(std::move(request),
              [name = name_, done = std::move(done), &clock = clock_](const HttpResponse& response) mutable {
                const Time at = clock.Now();
                ReportSetting(response.failure, name, response.failure_message);
                done({OutcomeOf(response, at), response.took, at});
              });
}

}  // namespace dlo::dispatch
