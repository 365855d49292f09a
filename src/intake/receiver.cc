#include "intake/receiver.h"

#include <array>
#include <atomic>
#include <cassert>
#include <map>
#include <utility>

#include "base/log.h"
#include "dlo/states.h"
#include "intake/extract.h"
#include "intake/verify.h"

namespace dlo::intake {
namespace {

constexpr Duration kConflictWarningGap = std::chrono::seconds(1);

// One source with everything that can be prepared before its first delivery.
struct Source {
  SourceConfig config;
  Verifier verifier;
  Extractor extractor;
  Counter* received = nullptr;
  Counter* duplicates = nullptr;
  Counter* conflicts = nullptr;
  Counter* dead_conflict = nullptr;  // arrivals in the dead letters that no attempt made
  Counter* dead_invalid = nullptr;
  Counter* too_large = nullptr;
  Counter* content_encoding = nullptr;
  std::array<Counter*, kRejectReasonCount> rejected{};
  std::vector<std::pair<std::string, Counter*>> old_secrets;  // all but the first
  std::atomic<Duration::rep> next_warning{0};                 // monotonic

  Source(SourceConfig c, Verifier v, Extractor e, Metrics& metrics)
      : config(std::move(c)), verifier(std::move(v)), extractor(std::move(e)) {
    const std::string& name = config.name;
    received = &metrics.counter("dlo_received_total", "Deliveries stored, duplicates included", {{"source", name}});
    duplicates =
        &metrics.counter("dlo_duplicates_total", "Deliveries of a key that was there already", {{"source", name}});
    conflicts =
        &metrics.counter("dlo_conflicts_total", "Deliveries of a known key with other content", {{"source", name}});
    const auto dead = [&](FailureClass failure_class) {
      return &metrics.counter("dlo_dead_lettered_total", "Arrivals in the dead letters",
                              {{"source", name}, {"class", std::string(dlo::Name(failure_class))}});
    };
    dead_conflict = dead(FailureClass::conflict);
    dead_invalid = dead(FailureClass::invalid);
    const auto reject = [&](std::string_view reason) {
      return &metrics.counter("dlo_rejected_total", "Deliveries refused and not stored as events",
                              {{"source", name}, {"reason", std::string(reason)}});
    };
    too_large = reject("too_large");
    content_encoding = reject("content_encoding");
    for (int i = 0; i < kRejectReasonCount; ++i) rejected[i] = reject(Name(static_cast<RejectReason>(i)));
    for (std::size_t i = 1; i < config.secrets.size(); ++i) {
      const auto& id = config.secrets[i].id.empty() ? "secrets[" + std::to_string(i) + "]" : config.secrets[i].id;
      old_secrets.emplace_back(id, &metrics.counter("dlo_secret_used_total",
                                                    "Deliveries that only a secret other than the first one verifies",
                                                    {{"source", name}, {"secret", id}}));
    }
  }
};

// A coded body would have to be decoded before it could be verified or read, and no sender codes them.
bool HasForeignCoding(std::span<const Header> headers) {
  for (const auto& header : headers) {
    if (!EqualIgnoringCase(header.name, "content-encoding")) continue;
    const auto coding = Trimmed(header.value);
    if (!coding.empty() && !EqualIgnoringCase(coding, "identity")) return true;
  }
  return false;
}

}  // namespace

struct Receiver::State {
  std::map<std::string, std::unique_ptr<Source>, std::less<>> sources;
  store::Inbox& inbox;
  store::Quarantine& quarantine;
  Clock& clock;
  Histogram& accept_seconds;

  State(store::Inbox& i, store::Quarantine& q, Clock& c, Metrics& metrics)
      : inbox(i),
        quarantine(q),
        clock(c),
        accept_seconds(metrics.histogram("dlo_accept_seconds", "From a whole request to its durable receipt")) {}

  [[nodiscard]] Source* Find(std::string_view name) const {
    const auto found = sources.find(name);
    return found == sources.end() ? nullptr : found->second.get();
  }
  void Reject(Source& source, RejectReason reason, Incoming incoming, Time now) const;
  void Count(Source& source, const Accepted& accepted, const Receipt& receipt) const;
  static std::shared_ptr<Receipt> MakeReceipt(const Source& source, Incoming incoming, Verdict verdict, Time now);
};

void Receiver::State::Reject(Source& source, RejectReason reason, Incoming incoming, Time now) const {
  source.rejected[static_cast<std::size_t>(reason)]->Add();
  store::Rejected rejected;
  rejected.at = now;
  rejected.source = source.config.name;
  rejected.reason = Name(reason);
  rejected.remote = std::move(incoming.remote);
  rejected.headers = std::move(incoming.headers);
  rejected.body_bytes = static_cast<std::int64_t>(incoming.body.size());
  rejected.body = std::move(incoming.body);
  quarantine.Keep(std::move(rejected));
}

void Receiver::State::Count(Source& source, const Accepted& accepted, const Receipt& receipt) const {
  source.received->Add();
  if (accepted.status == AcceptStatus::stored && receipt.disposition == Disposition::invalid)
    source.dead_invalid->Add();
  if (accepted.status == AcceptStatus::duplicate) source.duplicates->Add();
  if (accepted.status != AcceptStatus::conflict) return;
  source.conflicts->Add();
  source.dead_conflict->Add();
  const auto now = clock.Monotonic().count();
  auto next = source.next_warning.load();
  if (now < next || !source.next_warning.compare_exchange_strong(next, now + kConflictWarningGap.count())) return;
  log::Warn("event_conflict", {{"source", source.config.name},
                               {"key", receipt.key},
                               {"event", accepted.id},
                               {"first_event", accepted.first_id},
                               {"what", "same key, other content; kept as a dead letter of class conflict"}});
}

std::shared_ptr<Receipt> Receiver::State::MakeReceipt(const Source& source, Incoming incoming, Verdict verdict,
                                                      Time now) {
  auto event = source.extractor.Extract(incoming.headers, incoming.body);
  auto receipt = std::make_shared<Receipt>();
  receipt->source = source.config.name;
  receipt->key = std::move(event.key);
  receipt->kind = std::move(event.kind);
  receipt->subject = std::move(event.subject);
  receipt->account = std::move(event.account);
  receipt->livemode = event.livemode;
  receipt->occurred_at = event.occurred_at;
  receipt->received_at = now;
  receipt->verdict = std::move(verdict);
  receipt->disposition = event.disposition;
  receipt->disposition_reason = std::move(event.reason);
  receipt->headers = std::move(incoming.headers);
  receipt->body = std::move(incoming.body);
  return receipt;
}

Receiver::Receiver(const std::vector<SourceConfig>& sources, store::Inbox& inbox, store::Quarantine& quarantine,
                   Clock& clock, Metrics& metrics)
    : state_(std::make_unique<State>(inbox, quarantine, clock, metrics)) {
  for (const auto& config : sources) {
    auto verifier = OrThrow(Verifier::Compile(config));
    auto extractor = OrThrow(Extractor::Compile(config));
    state_->sources.emplace(config.name,
                            std::make_unique<Source>(config, std::move(verifier), std::move(extractor), metrics));
  }
}

Receiver::~Receiver() = default;

const SourceConfig* Receiver::Find(std::string_view source) const {
  const auto* found = state_->Find(source);
  return found == nullptr ? nullptr : &found->config;
}

void Receiver::Receive(const SourceConfig& config, Incoming incoming, ReceiveDone done) {
  const auto begin = state_->clock.Monotonic();
  const auto now = state_->clock.Now();
  Source* source = state_->Find(config.name);
  if (source == nullptr) {
    done(Fail(ErrorKind::not_found, "not_found", "no such source"));
    return;
  }
  if (HasForeignCoding(incoming.headers)) {
    source->content_encoding->Add();
    done(Fail(ErrorKind::invalid, "content_encoding", "send the body without a content coding"));
    return;
  }
  if (incoming.body.size() > source->config.max_body) {
    source->too_large->Add();
    done(Fail(ErrorKind::too_large, "too_large",
              "the body is over this source's max_body of " + std::to_string(source->config.max_body) + " bytes"));
    return;
  }
  auto verdict = source->verifier.Verify(incoming.headers, incoming.body, now);
  if (!verdict) {
    state_->Reject(*source, verdict.error(), std::move(incoming), now);
    done(Fail(ErrorKind::forbidden, "rejected", "rejected"));
    return;
  }
  for (const auto& [id, counter] : source->old_secrets) {
    if (id == verdict->secret_id) counter->Add();
  }
  auto receipt = State::MakeReceipt(*source, std::move(incoming), std::move(*verdict), now);
  std::vector<std::shared_ptr<Receipt>> batch{receipt};
  // The store answers every accepted batch before it closes, and closes before this Receiver goes: the pointers hold.
  state_->inbox.Accept(std::move(batch), [state = state_.get(), source, begin, receipt = std::move(receipt),
                                          done = std::move(done)](Result<std::vector<Accepted>> accepted) mutable {
    if (accepted) {
      state->accept_seconds.Observe(std::chrono::duration<double>(state->clock.Monotonic() - begin).count());
      for (const auto& one : *accepted) state->Count(*source, one, *receipt);
    }
    done(std::move(accepted));
  });
}

}  // namespace dlo::intake
