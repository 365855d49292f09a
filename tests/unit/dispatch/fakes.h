// A store and an HTTP client in memory, scripted by the tests of the dispatcher.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "env/http_client.h"
#include "store/queue.h"
#include "store/sources.h"

namespace dlo::dispatch {

/// Keeps the rules of Queue for events without subjects: fenced by token, oldest due first, attempts counted at claim.
class FakeQueue final : public store::Queue, public store::Sources {
 public:
  struct Row {
    std::shared_ptr<Receipt> receipt;
    State state = State::waiting;
    FailureClass failure_class = FailureClass::none;
    Time due{};
    Time lease_until{};
    RunContext run;
    bool corrupt = false;
  };

  EventId Add(const std::string& source, Time now) {
    const EventId id = ++last_id_;
    Row row;
    row.receipt = std::make_shared<Receipt>();
    row.receipt->id = id;
    row.receipt->source = source;
    row.receipt->key = "evt_" + std::to_string(id);
    row.receipt->kind = "invoice.paid";
    row.receipt->received_at = now;
    row.receipt->body = "{}";
    row.due = now;
    row.run.id = id;
    row.run.source = source;
    row.run.kind = row.receipt->kind;
    row.run.received_at = now;
    row.run.attempt = row.run.tries = 0;
    rows[id] = std::move(row);
    if (ring) ring();
    return id;
  }
  void AddMany(const std::string& source, int count, Time now) {
    for (int i = 0; i < count; ++i) Add(source, now);
  }
  void Replay(EventId id, Time now) {
    Row& row = rows[id];
    row.state = State::waiting;
    row.due = now;
    row.run.replaying = true;
    row.run.replay_id = 9;
    row.run.tries = row.run.crashes = 0;
    if (ring) ring();
  }
  [[nodiscard]] int Count(State state) const {
    int n = 0;
    for (const auto& [id, row] : rows) n += row.state == state ? 1 : 0;
    return n;
  }
  /// As another process that rescued and took it would.
  void Steal(EventId id) { ++rows[id].run.token; }

  Result<store::ExchangeResult> Exchange(const store::ExchangeRequest& request) override {
    ++exchanges;
    last_lease = request.lease;
    last_wants.assign(request.wants.begin(), request.wants.end());
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    store::ExchangeResult result;
    for (const Transition& t : request.finished) result.applied.push_back(Apply(t));
    for (const store::ClaimWant& want : request.wants) Claim(want, request, result);
    for (const store::ClaimWant& want : request.wants) {
      for (const auto& [id, row] : rows) {
        if (row.state != State::waiting || row.receipt->source != want.source) continue;
        if (!result.next_due || row.due < *result.next_due) result.next_due = row.due;
      }
    }
    return result;
  }
  /// With `late` set the answer waits for Answer. Claims of `unreadable` events come without their receipts.
  void StartExchange(const store::ExchangeRequest& request, store::ExchangeDone done) override {
    auto result = Exchange(request);
    if (result) {
      for (store::Claimed& claimed : result->claimed) {
        if (!cold && !unreadable.contains(claimed.run.id)) continue;
        claimed.receipt = nullptr;
        claimed.run.kind.clear();
      }
    }
    if (!late) return done(std::move(result));
    held_ = std::move(result);
    done_ = std::move(done);
  }
  void Load(std::vector<store::Claimed>& claimed) override {
    for (store::Claimed& one : claimed) {
      if (!one.receipt && !unreadable.contains(one.run.id)) one.receipt = rows[one.run.id].receipt;
    }
  }
  void Answer() { std::exchange(done_, {})(std::move(held_)); }
  [[nodiscard]] bool asked() const { return static_cast<bool>(done_); }
  Result<std::vector<store::LeaseRef>> Renew(std::span<const store::LeaseRef> leases, Time until) override {
    ++renewals;
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    std::vector<store::LeaseRef> lost;
    for (const store::LeaseRef& lease : leases) {
      Row& row = rows[lease.id];
      if (row.state == State::running && row.run.token == lease.token) {
        row.lease_until = until;
      } else {
        lost.push_back(lease);
      }
    }
    return lost;
  }
  Result<std::vector<RunContext>> ExpiredLeases(Time now, int max) override {
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    std::vector<RunContext> expired;
    for (const auto& [id, row] : rows) {
      if (row.state == State::running && row.lease_until < now && std::cmp_less(expired.size(), max)) {
        expired.push_back(row.run);
      }
    }
    return expired;
  }
  Result<int> HandBack(std::span<const store::LeaseRef> leases, Time now) override {
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    for (const store::LeaseRef& lease : leases) {
      Row& row = rows[lease.id];
      if (row.state != State::running || row.run.token != lease.token) continue;
      row.state = State::waiting;
      row.due = lease.due.value_or(now);
      --row.run.tries;
      handed_back.insert(lease.id);
    }
    if (on_hand_back) on_hand_back();
    return static_cast<int>(leases.size());
  }
  Result<int> ExpireAllLeases(Time now) override {
    ++opened;
    for (auto& [id, row] : rows) row.lease_until = now - Duration(1);
    return 0;
  }
  void OnWork(std::function<void()> r) override { ring = std::move(r); }

  Result<void> Pause(const store::SourcePause& pause, const Actor& actor) override {
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    pauses.push_back(pause);
    actors.push_back(actor.name);
    return {};
  }
  Result<void> Resume(const std::string& source, const Actor& actor, Time) override {
    if (failing) return Fail(ErrorKind::unavailable, "store_failed", "scripted");
    if (std::erase_if(pauses, [&](const auto& p) { return p.source == source; }) == 0) {
      return Fail(ErrorKind::not_found, "not_paused", "scripted");
    }
    actors.push_back(actor.name);
    return {};
  }
  Result<std::vector<store::SourcePause>> Pauses() override { return pauses; }

  std::map<EventId, Row> rows;
  std::vector<Transition> transitions;  // applied ones, in order
  std::set<EventId> handed_back;
  std::function<void()> on_hand_back;
  std::vector<store::ClaimWant> last_wants;
  store::Lease last_lease;
  std::vector<store::SourcePause> pauses;
  std::vector<std::string> actors;
  std::function<void()> ring;
  bool failing = false;
  bool late = false;
  bool cold = false;  // no claim comes with its receipt
  std::set<EventId> unreadable;
  int exchanges = 0, renewals = 0, opened = 0;

 private:
  ApplyStatus Apply(const Transition& t) {
    Row& row = rows[t.id];
    if (row.state != State::running || row.run.token != t.token) return ApplyStatus::late;
    row.state = t.to;
    row.failure_class = t.failure_class;
    row.run.crashes = t.crashes;
    row.run.replays_failed = t.replays_failed;
    if (t.due_at) row.due = *t.due_at;
    transitions.push_back(t);
    return ApplyStatus::applied;
  }
  void Claim(const store::ClaimWant& want, const store::ExchangeRequest& request, store::ExchangeResult& result) {
    int left = want.max;
    std::vector<Row*> due;
    for (auto& [id, row] : rows) {
      if (row.state == State::waiting && row.receipt->source == want.source && row.due <= request.now)
        due.push_back(&row);
    }
    std::ranges::stable_sort(due, {}, &Row::due);
    for (Row* row : due) {
      if (left-- == 0) return;
      row->state = State::running;
      row->lease_until = request.now + request.lease.length;
      ++row->run.token;
      ++row->run.tries;
      ++row->run.attempt;
      result.claimed.push_back({row->receipt, row->run, row->corrupt});
    }
  }
  EventId last_id_ = 0;
  Result<store::ExchangeResult> held_;
  store::ExchangeDone done_;
};

/// Holds what was sent until the test answers it.
class FakeHttp final : public HttpClient {
 public:
  struct Call {
    HttpRequest request;
    Done done;
  };
  void Start(HttpRequest request, Done done) override {
    ++started;
    calls.push_back({std::move(request), std::move(done)});
  }
  void Answer(int status, std::vector<Header> headers = {}, const std::string& body = {}) {
    HttpResponse response;
    response.status = status;
    response.headers = std::move(headers);
    response.body = body;
    Answer(std::move(response));
  }
  void Fail(HttpFailure failure) {
    HttpResponse response;
    response.failure = failure;
    Answer(std::move(response));
  }
  void Answer(HttpResponse response) {
    Call call = std::move(calls.front());
    calls.pop_front();
    call.done(std::move(response));
  }
  void AnswerAll(int status) {
    while (!calls.empty()) Answer(status);
  }

  std::deque<Call> calls;
  int started = 0;
};

}  // namespace dlo::dispatch
