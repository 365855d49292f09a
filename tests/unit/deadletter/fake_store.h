// A store that keeps a few letters in memory and remembers what it was asked. For tests of the layers above a store;
// what a real one does is the contract suite's business.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "store/store.h"

namespace dlo::testing {

class FakeStore : public store::Store {
 public:
  // What it holds.
  std::map<EventId, LetterDetail> letters;
  std::map<EventId, std::string> payloads;
  std::vector<store::Token> tokens;
  std::vector<AuditRecord> audit;  // oldest first
  std::vector<store::Rejected> rejected;
  std::vector<store::SourcePause> pauses;
  store::Figures figures;
  std::optional<Error> broken;  // what reads of figures fail with
  int reads = 0;

  // What it was asked.
  std::vector<store::TriageAct> acts;
  Actor last_actor;
  Filter last_filter;
  std::string last_by, last_cursor;
  int last_limit = 0;

  // Replays: a queue of items; `on_release` decides how each ends.
  struct ReplayRun {
    ReplayProgress progress;
    std::deque<EventId> queued;
    store::RunningReplay pace;
  };
  std::map<std::int64_t, ReplayRun> replays;
  std::int64_t next_replay = 1;
  std::vector<EventId> released;
  std::vector<std::pair<Time, int>> batches;
  std::vector<store::ReleaseOrder> orders;
  std::map<std::string, std::int64_t> live_due;
  std::vector<std::tuple<std::int64_t, store::ReplayAct, std::string>> steered;
  std::function<void(ReplayRun&, EventId)> on_release = [](ReplayRun& r, EventId) {
    ++r.progress.committed;
    --r.progress.remaining;
  };

  LetterDetail& Add(EventId id, State state = State::dead, FailureClass failure = FailureClass::exhausted) {
    LetterDetail& d = letters[id];
    d.letter.id = id;
    d.letter.source = "stripe";
    d.letter.key = "evt_" + std::to_string(id);
    d.letter.kind = "invoice.paid";
    d.letter.state = state;
    d.letter.failure_class = failure;
    return d;
  }

  void Close() override {}

  // Inbox
  std::vector<std::shared_ptr<Receipt>> accepted;
  std::vector<store::AcceptDone> unanswered;
  bool answers = true;
  std::optional<Error> accept_error;
  std::mutex accept_mutex;
  void Accept(std::vector<std::shared_ptr<Receipt>> batch, store::AcceptDone done) override {
    std::vector<Accepted> results;
    std::unique_lock lock(accept_mutex);
    for (auto& receipt : batch) {
      accepted.push_back(receipt);
      results.push_back({.id = static_cast<EventId>(accepted.size())});
    }
    if (!answers) {
      unanswered.push_back(std::move(done));
      return;
    }
    const auto error = accept_error;
    lock.unlock();
    error ? done(std::unexpected(*error)) : done(std::move(results));
  }

  // Queue: not used above a store's own tests.
  Result<store::ExchangeResult> Exchange(const store::ExchangeRequest&) override { return store::ExchangeResult{}; }
  Result<std::vector<store::LeaseRef>> Renew(std::span<const store::LeaseRef>, Time) override { return {}; }
  Result<std::vector<RunContext>> ExpiredLeases(Time, int) override { return {}; }
  Result<int> HandBack(std::span<const store::LeaseRef>, Time) override { return 0; }
  Result<int> ExpireAllLeases(Time) override { return 0; }
  void OnWork(std::function<void()>) override {}

  // Letters
  bool Fits(const Filter& f, const Letter& l) const {
    const auto in = [](const auto& list, const auto& value) {
      return list.empty() || std::ranges::find(list, value) != list.end();
    };
    return in(f.states, l.state) && in(f.classes, l.failure_class) && in(f.sources, l.source) && in(f.types, l.kind);
  }
  Result<Page> List(const Filter& filter, int limit, const std::string& cursor) override {
    last_filter = filter;
    last_limit = limit;
    last_cursor = cursor;
    Page page;
    for (auto it = letters.rbegin(); it != letters.rend(); ++it) {
      if (Fits(filter, it->second.letter)) page.items.push_back(it->second.letter);
    }
    return page;
  }
  Result<std::int64_t> Count(const Filter& filter) override {
    last_filter = filter;
    return std::ranges::count_if(letters, [&](const auto& entry) { return Fits(filter, entry.second.letter); });
  }
  Result<std::vector<Group>> Groups(const Filter& filter, const std::string& by) override {
    last_filter = filter;
    last_by = by;
    return std::vector<Group>{{.value = "v", .count = 2, .sample_id = 1, .failure_class = "exhausted"}};
  }
  Result<LetterDetail> Show(EventId id) override {
    const auto found = letters.find(id);
    if (found == letters.end()) return Fail(ErrorKind::not_found, "not_found", "There is no such event.");
    return found->second;
  }
  Result<std::vector<Attempt>> Attempts(EventId id) override { return letters.at(id).attempts; }
  Result<std::string> Payload(EventId id) override {
    const auto found = payloads.find(id);
    if (found == payloads.end()) return Fail(ErrorKind::not_found, "not_found", "There is no such event.");
    if (found->second == "corrupt") return Fail(ErrorKind::corrupt, "corrupt", "The body fails its digest.");
    return found->second;
  }
  Result<std::vector<EventId>> ReleaseLanes(const std::string&, std::int64_t, Time, const Actor&, Time) override {
    return std::vector<EventId>();
  }
  Result<std::vector<Result<Letter>>> Triage(std::span<const store::TriageAct> list, const Actor& actor,
                                             Time now) override {
    last_actor = actor;
    std::vector<Result<Letter>> results;
    for (const store::TriageAct& act : list) {
      acts.push_back(act);
      Letter& letter = letters.at(act.id).letter;
      const auto to = Target(act.act, letter.state);
      if (!to) {
        results.push_back(Fail(ErrorKind::conflict,
                               letter.state == State::replayed ? "already_replayed" : "not_dead_lettered", "Refused."));
        continue;
      }
      letter.state = *to;
      audit.push_back({.seq = static_cast<std::int64_t>(audit.size()) + 1,
                       .at = now,
                       .actor = actor.name,
                       .role = actor.role,
                       .action = std::string(Name(act.act)),
                       .event_id = act.id,
                       .reason = actor.reason,
                       .details = "{}"});
      results.push_back(letter);
    }
    return results;
  }

  // Replays
  Result<ReplayPlan> Plan(const Filter& filter) override {
    last_filter = filter;
    ReplayPlan plan;
    plan.count = *Count(filter);
    return plan;
  }
  Result<ReplayPlan> Create(const Filter& filter, const ReplayOptions& options, const std::string& kind,
                            const Actor& actor, Time now) override {
    ReplayPlan plan = *Plan(filter);
    if (plan.count > options.max && !options.force) {
      return Fail(ErrorKind::too_large, "replay_too_large", "More letters than max.");
    }
    plan.id = next_replay++;
    plan.digest = "d";
    ReplayRun& r = replays[plan.id];
    r.progress = {.id = plan.id,
                  .state = "running",
                  .kind = kind,
                  .actor = actor.name,
                  .filter = "{}",
                  .count = plan.count,
                  .remaining = plan.count};
    r.pace = {.id = plan.id,
              .batch_size = options.batch_size,
              .stagger = std::chrono::milliseconds(options.stagger_ms),
              .next_batch_at = now};
    for (const auto& [id, detail] : letters) {
      if (Fits(filter, detail.letter)) r.queued.push_back(id);
    }
    return plan;
  }
  Result<std::vector<store::RunningReplay>> Running() override {
    std::vector<store::RunningReplay> running;
    for (const auto& [id, r] : replays) {
      if (r.queued.empty() && !r.pace.canary) continue;
      if (r.progress.state != "running" && r.progress.state != "canary") continue;
      running.push_back(r.pace);
    }
    return running;
  }
  Result<std::int64_t> Release(const store::ReleaseOrder& order) override {
    ReplayRun& r = replays.at(order.replay_id);
    const Time now = order.now;
    const int n = static_cast<int>(order.n);
    orders.push_back(order);
    batches.emplace_back(now, n);
    for (int i = 0; i < n && !r.queued.empty(); ++i) {
      released.push_back(r.queued.front());
      ++r.progress.requeued;
      on_release(r, r.queued.front());
      r.queued.pop_front();
    }
    r.pace.next_batch_at = order.next_batch_at.value_or(now + r.pace.stagger);
    if (r.progress.remaining == 0) r.progress.state = "done";
    return static_cast<std::int64_t>(r.queued.size());
  }
  Result<ReplayProgress> Act(std::int64_t id, store::ReplayAct act, const Actor& actor, Time) override {
    const auto found = replays.find(id);
    if (found == replays.end()) return Fail(ErrorKind::not_found, "replay_not_found", "There is no such replay.");
    last_actor = actor;
    steered.emplace_back(id, act, actor.reason);
    static const char* const kTo[] = {"paused", "running", "cancelled", "stopped", "running"};
    found->second.progress.state = kTo[static_cast<int>(act)];
    found->second.pace.canary = false;
    return found->second.progress;
  }
  ReplayItemFilter last_items;
  Result<ReplayItems> Items(std::int64_t id, const ReplayItemFilter& filter, int limit,
                            const std::string& cursor) override {
    last_items = filter;
    last_limit = limit;
    last_cursor = cursor;
    if (!replays.contains(id)) return Fail(ErrorKind::not_found, "replay_not_found", "There is no such replay.");
    ReplayItems page;
    for (const EventId event : replays.at(id).queued) page.items.push_back({.id = event, .state = "queued"});
    page.next = "7";
    return page;
  }
  Result<std::map<std::string, std::int64_t>> LiveDue(std::span<const std::string>, Time, int) override {
    return live_due;
  }
  Result<ReplayProgress> Get(std::int64_t id) override {
    const auto found = replays.find(id);
    if (found == replays.end()) return Fail(ErrorKind::not_found, "not_found", "There is no such replay.");
    return found->second.progress;
  }
  Result<std::vector<ReplayProgress>> Recent(int limit) override {
    last_limit = limit;
    std::vector<ReplayProgress> recent;
    for (const auto& [id, r] : replays) recent.push_back(r.progress);
    return recent;
  }

  // Access
  Result<store::Token> CreateToken(const std::string& name, const std::string& role, const std::string& hash,
                                   const Actor& actor, Time now) override {
    last_actor = actor;
    for (const store::Token& t : tokens) {
      if (t.name == name && !t.revoked_at) return Fail(ErrorKind::conflict, "name_taken", "Choose another name.");
    }
    tokens.push_back({static_cast<std::int64_t>(tokens.size()) + 1, name, role, hash, now, std::nullopt});
    return tokens.back();
  }
  Result<store::Token> RevokeToken(const std::string& name, const Actor& actor, Time now) override {
    last_actor = actor;
    for (store::Token& t : tokens) {
      if (t.name != name || t.revoked_at) continue;
      t.revoked_at = now;
      return t;
    }
    return Fail(ErrorKind::not_found, "not_found", "There is no such token.");
  }
  Result<std::vector<store::Token>> Tokens() override { return tokens; }
  Result<std::vector<AuditRecord>> Audit(EventId event_id, std::int64_t before, int limit) override {
    std::vector<AuditRecord> records;
    for (auto it = audit.rbegin(); it != audit.rend() && std::ssize(records) < limit; ++it) {
      if ((event_id == 0 || it->event_id == event_id) && (before == 0 || it->seq < before)) records.push_back(*it);
    }
    return records;
  }

  // Quarantine
  void Keep(store::Rejected one) override {
    const std::lock_guard lock(accept_mutex);
    rejected.push_back(std::move(one));
  }
  Result<std::vector<store::Rejected>> RejectedList(const std::string&, std::int64_t, int) override { return rejected; }
  Result<store::Rejected> RejectedOne(std::int64_t id) override {
    for (const store::Rejected& one : rejected) {
      if (one.id == id) return one;
    }
    return Fail(ErrorKind::not_found, "not_found", "There is no such delivery.");
  }

  // Sources
  Result<void> Pause(const store::SourcePause& pause, const Actor&) override {
    pauses.push_back(pause);
    return {};
  }
  Result<void> Resume(const std::string& source, const Actor& actor, Time) override {
    last_actor = actor;
    if (std::erase_if(pauses, [&](const auto& p) { return p.source == source; }) == 0) {
      return Fail(ErrorKind::not_found, "not_paused", "This source is not paused.");
    }
    return {};
  }
  Result<std::vector<store::SourcePause>> Pauses() override { return pauses; }

  // Figures
  Result<store::Figures> Read() override {
    ++reads;
    if (broken) return std::unexpected(*broken);
    return figures;
  }
  Result<store::Figures> Recount() override { return Read(); }
  Result<void> Ready() override {
    if (broken) return std::unexpected(*broken);
    return {};
  }
};

}  // namespace dlo::testing
