#include "sim/billing.h"

#include <fmt/format.h>

#include <charconv>

#include "base/encoding.h"

namespace dlo::sim {
namespace {

std::string Value(const HttpRequest& request, std::string_view name) {
  for (const std::string& header : request.headers) {
    if (header.starts_with(name) && header.substr(name.size(), 2) == ": ") return header.substr(name.size() + 2);
  }
  return {};
}

std::int64_t Number(const std::string& text) {
  std::int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

}  // namespace

HttpResponse Billing::Failure(HttpFailure failure, std::string why) {
  HttpResponse response;
  response.failure = failure;
  response.failure_message = std::move(why);
  return response;
}

void Billing::Start(HttpRequest request, Done done) {
  Call call;
  call.number = next_++;
  call.id = Number(Value(request, "Dlo-Event-Id"));
  call.key = Value(request, "Idempotency-Key");
  call.attempt = static_cast<int>(Number(Value(request, "Dlo-Attempt")));
  call.replay = Value(request, "Dlo-Replay") == "true";
  call.body = std::string(request.body);
  call.began = clock_.Now();
  on_start(call);
  open[call.number] = call;
  known_[call.number] = call;
  waiting_[call.number] = std::move(done);

  const Time now = clock_.Now();
  const double luck = healed_ ? 1.0 : random_.Unit();
  const Duration quick(static_cast<Duration::rep>(random_.Unit() * 200'000));
  if (luck < 0.05) {  // never arrives
    due_.emplace(now + quick, Due{call.number, false, Failure(HttpFailure::connect, "refused")});
  } else if (luck < 0.11) {  // takes effect, the answer is lost
    due_.emplace(now + quick, Due{call.number, true, Failure(HttpFailure::reset, "connection reset")});
  } else if (luck < 0.15) {  // takes effect long after the caller gave up
    due_.emplace(now + request.timeout, Due{call.number, false, Failure(HttpFailure::timeout, "timed out")});
    due_.emplace(now + request.timeout + std::chrono::seconds(1 + random_.Next() % 90), Due{call.number, true, {}});
  } else if (luck < 0.18) {  // hangs, then nothing
    due_.emplace(now + request.timeout, Due{call.number, false, Failure(HttpFailure::timeout, "timed out")});
  } else if (luck < 0.25) {  // slow
    due_.emplace(now + std::chrono::seconds(1 + random_.Next() % 25), Due{call.number, true, HttpResponse()});
  } else {
    due_.emplace(now + quick, Due{call.number, true, HttpResponse()});
  }
}

/// What the application makes of an event is decided by its key, so that it answers alike each time until it is healed.
HttpResponse Billing::Judge(const Call& call) {
  HttpResponse response;
  const auto known = applied.find(call.key);
  if (known != applied.end()) {
    response.status = 409;
    return response;
  }
  const auto fate = static_cast<std::uint64_t>(Digest64(call.key)) % 100;
  if (!healed_ && fate < 12) {
    response.status = 422;
    response.body = R"({"message":"unknown plan"})";
    return response;
  }
  if (!healed_ && (fate < 22 || (fate < 45 && call.attempt % 3 != 0))) {
    response.status = 503;
    response.body = "try later";
    return response;
  }
  applied.emplace(call.key, call.body);
  response.status = 200;
  return response;
}

void Billing::Run() {
  while (!due_.empty() && due_.begin()->first <= clock_.Now()) {
    Due due = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    const Call call = known_.at(due.call);
    HttpResponse judged;
    if (due.applies) judged = Judge(call);
    if (!due.answer) continue;
    if (due.answer->failure == HttpFailure::none) due.answer = std::move(judged);
    const auto waiting = waiting_.find(due.call);
    if (waiting == waiting_.end()) continue;
    Done done = std::move(waiting->second);
    waiting_.erase(waiting);
    open.erase(due.call);
    on_answer(call);
    done(std::move(*due.answer));
  }
}

std::optional<Time> Billing::NextDue() const {
  if (due_.empty()) return std::nullopt;
  return due_.begin()->first;
}

void Billing::CallerDied() {
  waiting_.clear();
  open.clear();
}

}  // namespace dlo::sim
