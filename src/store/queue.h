// Work: what is due, who owns it, how it ended. All state writes here are fenced by the lease token.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "model/transition.h"

namespace dlo::store {

struct ClaimWant {
  std::string source;
  std::string target;  // recorded in the attempt row
  int max = 0;
};

/// A claimed event whose bytes cannot be read just now (not: whose bytes are wrong) is handed back for so long.
inline constexpr Duration kUnreadableWait = std::chrono::seconds(60);

struct Claimed {
  std::shared_ptr<const Receipt> receipt;  // with headers and body
  RunContext run;
  bool corrupt = false;  // the stored bytes fail their digest; receipt has no body
};

struct Lease {
  std::string worker;  // fresh random id per process start
  Duration length = std::chrono::seconds(60);
};

struct LeaseRef {
  EventId id = 0;
  std::int64_t token = 0;
  std::optional<Time> due;  // HandBack only: when this one falls due; the attempt is marked deferred
};

struct ExchangeRequest {
  std::span<const Transition> finished;
  std::span<const ClaimWant> wants;
  Lease lease;
  Time now{};
};

struct ExchangeResult {
  std::vector<ApplyStatus> applied;  // one per finished
  std::vector<Claimed> claimed;
  std::optional<Time> next_due;  // of the wanted sources: when the next event that is not behind another falls due
};

using ExchangeDone = std::move_only_function<void(Result<ExchangeResult>)>;

class Queue {
 public:
  virtual ~Queue() = default;
  /// One transaction: applies `finished`, then claims. A claim counts the attempt and writes its row before it returns;
  /// it takes events that are due, oldest due first, at most one per subject, and never one whose subject has an
  /// earlier event that is unfinished or a running one. Its cost does not grow with the backlog.
  virtual Result<ExchangeResult> Exchange(const ExchangeRequest& request) = 0;
  /// As Exchange, without waiting: `done` is called once, on any thread, maybe before this returns. What the request
  /// points to must live until then. Claims may come without their receipt; Load fetches it.
  virtual void StartExchange(const ExchangeRequest& request, ExchangeDone done) { done(Exchange(request)); }
  /// Reads, on the caller's thread, the receipts that StartExchange left out. One that stays without cannot be read
  /// just now: hand it back, due after kUnreadableWait.
  virtual void Load(std::vector<Claimed>& /*claimed*/) {}
  /// Extends leases that are still owned; returns those that are not any more.
  virtual Result<std::vector<LeaseRef>> Renew(std::span<const LeaseRef> leases, Time until) = 0;
  /// Events whose lease ended before `now`, oldest first. The caller runs them through Decide and Exchange.
  virtual Result<std::vector<RunContext>> ExpiredLeases(Time now, int max) = 0;
  /// Back to waiting, due at `due` or when its LeaseRef says; attempt not counted (its row stays, marked handed_back or
  /// deferred). Fenced as Exchange is.
  virtual Result<int> HandBack(std::span<const LeaseRef> leases, Time due) = 0;
  /// At start of a store that one process owns: every lease is an earlier process's. Makes them all expired.
  virtual Result<int> ExpireAllLeases(Time now) = 0;
  /// `ring` is called (on a store thread, must not block) when events may have become claimable.
  virtual void OnWork(std::function<void()> ring) = 0;
};

}  // namespace dlo::store
