#include "deadletter/probe.h"

#include <fmt/format.h>

#include <future>
#include <utility>

#include "base/time_text.h"

namespace dlo::deadletter {
namespace {

constexpr const char* kCode = "dlo_probe";
constexpr Duration kLook = std::chrono::milliseconds(5);
constexpr Duration kAgainAfterFailure = std::chrono::minutes(10);
constexpr int kSweepAtMost = 100;

bool StoreFailed(const Error& error) {
  return error.kind == ErrorKind::unavailable || error.kind == ErrorKind::corrupt;
}

}  // namespace

Config WithProbe(Config config) {
  SourceConfig source;
  source.name = kProbeName;
  source.scheme = "none";
  source.target = kProbeName;
  source.key = "/id";
  source.kind = "/type";
  source.subject = "";
  source.account = "";
  config.sources.push_back(std::move(source));
  TargetConfig target;
  target.name = kProbeName;
  target.type = TargetType::in_process;
  target.handler = [](const Delivery&) {
    return Outcome::Permanent(kCode, "a probe of ours, refused on purpose: the dead-letter path must take it");
  };
  target.concurrency = 1;
  config.targets.push_back(std::move(target));
  return config;
}

struct Probe::Going {
  std::string key;
  Duration until{};
  ProbeReport report;
};

bool Probe::TimeIsUp(const Going& going) const {
  return stopping_.load() || deps_.clock.Monotonic() >= going.until;
}

bool Probe::Due(Duration every, std::optional<Time> last_arrival, std::optional<Time> last_probe, bool failed,
                Time now) {
  if (every == Duration(0)) return false;
  if (failed && last_probe) return now - *last_probe >= std::min(every, kAgainAfterFailure);
  const std::optional<Time> last = std::max(last_arrival, last_probe);  // unset is less than any
  return !last || now - *last >= every;
}

Result<ProbeReport> Probe::Run(const Actor& actor) {
  const std::unique_lock lock(one_at_a_time_, std::try_to_lock);
  if (!lock) return Fail(ErrorKind::conflict, "probe_running", "A probe is under way already; try again in a moment.");
  if (auto refusal = deps_.refusal ? deps_.refusal() : std::nullopt) return std::unexpected(std::move(*refusal));
  Going going{.key = fmt::format("probe_{:016x}", deps_.random.Next()), .until = deps_.clock.Monotonic() + kLongest};
  const Result<int> swept = Sweep(actor);
  if (!swept) return std::unexpected(swept.error());
  going.report.left_over = *swept;
  Result<void> done = Receive(going);
  if (done) done = AwaitDeath(going);
  if (done) {
    const Duration began = deps_.clock.Monotonic();
    done = Resolve(going.report.id, actor);
    going.report.resolve = deps_.clock.Monotonic() - began;
  }
  if (!done) going.report.failed = done.error().message;
  if (!done && stopping_.load()) return std::unexpected(done.error());  // says nothing about the path
  if (Result<void> noted = deps_.store.NoteProbe(deps_.clock.Now(), going.report.failed); !noted && done) {
    return std::unexpected(noted.error());
  }
  return going.report;
}

Result<int> Probe::Sweep(const Actor& actor) {
  Filter filter;
  filter.sources = {kProbeName};
  filter.states = {State::dead, State::held};
  const Result<Page> left = deps_.store.List(filter, kSweepAtMost, {});
  if (!left) return std::unexpected(left.error());
  int resolved = 0;
  for (const Letter& letter : left->items) {
    Result<void> done = Resolve(letter.id, actor);
    if (!done && StoreFailed(done.error())) return std::unexpected(done.error());
    if (done) ++resolved;  // else somebody else did
  }
  return resolved;
}

Result<void> Probe::Receive(Going& going) {
  const SourceConfig* source = deps_.receiver.Find(kProbeName);
  if (source == nullptr) return Fail(ErrorKind::not_found, "no_probe", "this office has no probe source");
  const Duration began = deps_.clock.Monotonic();
  auto promise = std::make_shared<std::promise<Result<std::vector<Accepted>>>>();
  auto answer = promise->get_future();
  deps_.receiver.Receive(*source,
                         {.headers = {{"Content-Type", "application/json"}},
                          .body = fmt::format(R"({{"id":"{}","type":"dlo.probe"}})", going.key),
                          .remote = "probe"},
                         [promise](Result<std::vector<Accepted>> result) { promise->set_value(std::move(result)); });
  while (answer.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
    if (TimeIsUp(going)) {
      return Fail(ErrorKind::unavailable, "probe_receipt", "receipt: the store did not answer in time");
    }
    deps_.wait(kLook);
  }
  Result<std::vector<Accepted>> accepted = answer.get();
  if (!accepted) return Fail(accepted.error().kind, accepted.error().code, "receipt: " + accepted.error().message);
  going.report.id = accepted->front().id;
  going.report.receipt = deps_.clock.Monotonic() - began;
  return {};
}

Result<void> Probe::AwaitDeath(Going& going) {
  std::string seen = "it was never dispatched";
  for (;;) {
    const Result<LetterDetail> shown = deps_.store.Show(going.report.id);
    if (!shown) return Fail(shown.error().kind, shown.error().code, "dispatch: " + shown.error().message);
    const Letter& letter = shown->letter;
    if (!shown->attempts.empty()) seen = "its handler was called, and it is " + std::string(Name(letter.state));
    if (letter.state == State::dead) {
      if (letter.code != kCode || letter.failure_class != FailureClass::permanent || shown->attempts.empty()) {
        return Fail(ErrorKind::corrupt, "probe_dead",
                    fmt::format("dead letter: it died as {} {}, not of what its handler said",
                                Name(letter.failure_class), letter.code));
      }
      going.report.dispatch = shown->attempts.back().started_at - letter.received_at;
      going.report.dead = letter.parked_at.value_or(letter.received_at) - shown->attempts.back().started_at;
      return {};
    }
    if (letter.state != State::waiting && letter.state != State::running) {
      return Fail(ErrorKind::corrupt, "probe_dead",
                  "dead letter: a refused event ended as " + std::string(Name(letter.state)));
    }
    if (TimeIsUp(going)) {
      return Fail(
          ErrorKind::unavailable, "probe_dead",
          fmt::format("dead letter: not within {}; {} (event {})", FormatDuration(kLongest), seen, going.report.id));
    }
    deps_.wait(kLook);
  }
}

Result<void> Probe::Resolve(EventId id, const Actor& actor) {
  Actor who = actor;
  who.reason = "synthetic probe of the dead-letter path";
  const store::TriageAct act{.id = id, .act = Act::resolve, .hold = {}, .resolve_code = ResolveCode::test_event};
  auto done = deps_.store.Triage(std::span(&act, 1), who, deps_.clock.Now());
  if (!done) return Fail(done.error().kind, done.error().code, "resolve: " + done.error().message);
  if (!done->front())
    return Fail(done->front().error().kind, done->front().error().code, "resolve: " + done->front().error().message);
  return {};
}

}  // namespace dlo::deadletter
