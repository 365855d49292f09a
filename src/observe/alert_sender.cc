#include "observe/alert_sender.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <mutex>

#include "base/encoding.h"
#include "base/log.h"
#include "observe/alarm_rules.h"
#include "observe/alert_formats.h"

namespace dlo::observe {
namespace {

constexpr Duration kFirstWait = std::chrono::seconds(2);
constexpr Duration kLongestWait = std::chrono::minutes(5);
constexpr Duration kRetryAfterMax = std::chrono::hours(1);
constexpr std::size_t kAnswerShown = 300;

std::optional<Duration> RetryAfter(const HttpResponse& response) {
  for (const Header& header : response.headers) {
    if (header.name.size() != 11 ||
        !std::ranges::equal(header.name, std::string_view("retry-after"), [](char a, char b) {
          return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
        })) {
      continue;
    }
    int seconds = 0;
    const char* last = header.value.data() + header.value.size();
    const auto [end, error] = std::from_chars(header.value.data(), last, seconds);
    if (error == std::errc() && end == last && seconds >= 0) return std::chrono::seconds(seconds);
  }
  return std::nullopt;
}

std::string AnswerText(const HttpResponse& response) {
  if (response.failure != HttpFailure::none) return response.failure_message;
  const std::string body = CleanText(response.body, kAnswerShown);
  return fmt::format("HTTP {}{}{}", response.status, body.empty() ? "" : ": ", body);
}

/// Answers on their way from the client's thread. Outlives the sender where a call still holds it.
struct Answers {
  std::mutex mutex;
  std::vector<std::pair<std::size_t, HttpResponse>> came;  // receiver, answer
};

struct Receiver {
  AlertConfig config;
  std::string name;
  std::optional<intake::Signer> signer;
  std::optional<store::Alert> sending;
  std::optional<HttpResponse> answer;  // to `sending`, until it is marked
  bool failing = false;
};

}  // namespace

struct AlertSender::State {
  explicit State(AlertSenderDeps d)
      : deps(std::move(d)),
        sent(deps.metrics.counter("dlo_alerts_sent_total", "Alerts sent, by how it ended", {{"result", "ok"}})),
        failed(deps.metrics.counter("dlo_alerts_sent_total", "Alerts sent, by how it ended", {{"result", "failed"}})) {
    deps.metrics.gauge("dlo_alerts_pending", "Alerts that their receiver has not taken yet",
                       [n = pending] { return std::vector<Sample>{{{}, static_cast<double>(n->load())}}; });
  }

  Result<void> Mark(Receiver& receiver, Time now);
  void Start(std::size_t index, Time now);

  AlertSenderDeps deps;
  Counter& sent;
  Counter& failed;
  std::shared_ptr<std::atomic<std::int64_t>> pending = std::make_shared<std::atomic<std::int64_t>>(0);
  std::vector<Receiver> receivers;
  std::shared_ptr<Answers> answers = std::make_shared<Answers>();
};

/// Until this is committed the receiver gets nothing else: a disk that refuses must not make us repeat ourselves.
Result<void> AlertSender::State::Mark(Receiver& receiver, Time now) {
  const store::Alert& alert = *receiver.sending;
  const HttpResponse& answer = *receiver.answer;
  const bool ok = answer.failure == HttpFailure::none && answer.status >= 200 && answer.status < 300;
  if (answer.failure == HttpFailure::stopped) {
    receiver.sending.reset();
    receiver.answer.reset();
    return {};
  }
  std::optional<Time> again;
  // A test asked once and has its answer.
  if (!ok && alert.status != "test") again = now + Backoff(alert.attempts, deps.random.Unit(), RetryAfter(answer));
  const std::string text = AnswerText(answer);
  if (Result<void> marked = deps.store.AlertAttempted(alert.id, text, now, again); !marked) return marked;
  (ok ? sent : failed).Add();
  if (ok == receiver.failing) {
    if (ok)
      log::Info("alerts.receiver_back", {{"receiver", receiver.name}});
    else
      log::Warn("alerts.not_taken",
                {{"receiver", receiver.name}, {"answer", text}, {"then", "tried again, less and less often"}});
  }
  receiver.failing = !ok;
  receiver.sending.reset();
  receiver.answer.reset();
  return {};
}

void AlertSender::State::Start(std::size_t index, Time now) {
  Receiver& receiver = receivers[index];
  Outgoing out = Format(receiver.config, receiver.signer, *receiver.sending, now);
  HttpRequest request;
  request.url = std::move(out.url);
  request.headers = std::move(out.headers);
  const auto body = std::make_shared<const std::string>(std::move(out.body));
  request.body = *body;
  request.body_owner = body;
  request.timeout = receiver.config.timeout;
  request.connect_timeout = std::min<Duration>(request.connect_timeout, receiver.config.timeout);
  request.allow_private = receiver.config.allow_private;
  deps.http.Start(std::move(request), [index, to = answers, ring = deps.ring](HttpResponse response) {
    {
      const std::lock_guard lock(to->mutex);
      to->came.emplace_back(index, std::move(response));
    }
    if (ring) ring();
  });
}

AlertSender::AlertSender(const std::vector<AlertConfig>& receivers, AlertSenderDeps deps)
    : state_(std::make_unique<State>(std::move(deps))) {
  for (const AlertConfig& config : receivers) {
    Receiver receiver{.config = config, .name = ReceiverName(config)};
    if (!config.secret.empty())
      receiver.signer = OrThrow(intake::Signer::Compile("standard-webhooks", {}, config.secret));
    state_->receivers.push_back(std::move(receiver));
  }
}

AlertSender::~AlertSender() = default;

Result<void> AlertSender::RunOnce(Time now) {
  State& s = *state_;
  {
    const std::lock_guard lock(s.answers->mutex);
    for (auto& [index, answer] : s.answers->came) {
      s.deps.crash_points.At("alert.after_send");
      s.receivers[index].answer = std::move(answer);
    }
    s.answers->came.clear();
  }
  for (std::size_t i = 0; i < s.receivers.size(); ++i) {
    Receiver& receiver = s.receivers[i];
    if (receiver.answer) {
      if (Result<void> marked = s.Mark(receiver, now); !marked) return marked;
    }
    if (receiver.sending) continue;
    Result<std::optional<store::Alert>> due = s.deps.store.DueAlert(receiver.name, now);
    if (!due) return std::unexpected(due.error());
    if (!*due) continue;
    receiver.sending = std::move(**due);
    s.Start(i, now);
  }
  const Result<std::int64_t> pending = s.deps.store.PendingAlerts();
  if (pending) s.pending->store(*pending);
  return {};
}

Duration AlertSender::Backoff(int attempts, double chance, std::optional<Duration> retry_after) {
  const Duration step = std::min(kLongestWait, kFirstWait * (std::int64_t{1} << std::clamp(attempts, 0, 20)));
  const auto wait = Duration(static_cast<Duration::rep>(static_cast<double>(step.count()) * (0.5 + chance)));
  return std::max(wait, std::min(retry_after.value_or(Duration(0)), kRetryAfterMax));
}

}  // namespace dlo::observe
