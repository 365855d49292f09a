// Triage from a program: the same acts as the command line and the API, with the same rules and audit records.
// Every act has two forms: Foo() returns a Result, FooOrThrow() raises Failure (this serves S3's tuple and bang forms).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlo/letters.h"
#include "dlo/result.h"

namespace dlo {

/// Who acts and why. Recorded with every act; `name` is mandatory.
struct Actor {
  std::string name;
  std::string role = "admin";
  std::string reason;
};

struct Page {
  std::vector<Letter> items;
  std::optional<std::string> next;  // cursor
};

struct HoldRequest {
  std::string link;  // to the issue that must be fixed; mandatory
  std::string owner;
  std::optional<Time> until;
  std::string wake_on_handler;
};

struct ReplayOptions {
  int batch_size = 100;
  int stagger_ms = 1000;
  std::optional<double> rate;  // events per second instead of batch and stagger
  std::int64_t max = 10'000;   // more than this is refused unless force
  bool force = false;
  bool dry_run = false;
};

/// For a dry run `id` is 0 and nothing changed.
struct ReplayPlan {
  std::int64_t id = 0;
  std::int64_t count = 0;
  bool over_cap = false;
  std::string digest;  // SHA-256 over the ids in order, hex
  std::map<std::string, std::int64_t> by_class, by_type;
  std::optional<Time> oldest;
  double estimated_seconds = 0;
};

struct ReplayProgress {
  std::int64_t id = 0;
  std::string state;  // running | paused | cancelled | done
  std::string kind;   // replay | drain
  Time created_at{};
  std::string actor, reason, filter;  // filter as JSON
  std::int64_t count = 0;             // frozen at creation
  std::int64_t requeued = 0;          // handed to the dispatcher so far
  std::int64_t skipped = 0;           // state changed, poison, or in another replay
  std::int64_t committed = 0;         // effect applied, or seen to be applied
  std::int64_t dead_again = 0;        // back in the dead letters
  std::int64_t parked = 0;            // of dead_again: no longer class exhausted
  std::int64_t remaining = 0;         // not yet final
  std::string digest;
};

struct DrainStats {
  std::int64_t committed = 0, requeued = 0, parked = 0;
  std::int64_t replay_id = 0;
  bool finished = true;
};

/// Days as a person gives them; unset = infinity, which disables.
struct PruneRequest {
  std::optional<double> dead_older_than_days;
  std::optional<double> succeeded_older_than_days;
};

struct PruneReport {
  std::int64_t succeeded = 0;  // pruned: bytes and history are in the archive, the key is still known
  std::int64_t closed = 0;     // likewise, of replayed and resolved events
  std::int64_t letters = 0;    // unresolved: moved to the archive, still listed, counted and replayable
  std::int64_t segments = 0;   // of the journal, moved to the archive
  std::int64_t on_hold = 0;    // segments that were left because of a legal hold
  bool finished = true;        // false: the rest goes on in the background

  [[nodiscard]] std::int64_t pruned() const { return succeeded + closed; }
};

/// What a filter matches is neither pruned nor moved while a legal hold on it lasts.
struct LegalHold {
  std::int64_t id = 0;
  Time created_at{};
  std::string actor, reason, filter;  // filter as JSON
  std::optional<Time> ended_at;
  std::string ended_by, end_reason;
};

struct ArchivedSegment {
  std::int64_t segment = 0;
  EventId first = 0, last = 0;      // receipts
  std::int64_t events = 0;          // when it was moved
  std::int64_t letters = 0;         // of them unresolved then
  std::int64_t pruned = 0;          // of them, by all parts
  std::int64_t parts = 0;           // sidecars
  std::int64_t bytes = 0;           // of its files
  std::int64_t original_bytes = 0;  // of the segment
  Time moved_at{};
  std::string file, sha256, original_sha256;
};

class DeadLetters {
 public:
  virtual ~DeadLetters() = default;

  /// Newest receipt first. `limit` 1..500. Bodies are not read.
  virtual Result<Page> List(const Filter& filter, int limit = 50, const std::string& cursor = {}) = 0;
  /// Exact.
  virtual Result<std::int64_t> Count(const Filter& filter) = 0;
  /// by: fingerprint | type | account | source | class. Largest first.
  virtual Result<std::vector<Group>> Groups(const Filter& filter, const std::string& by = "fingerprint") = 0;
  virtual Result<LetterDetail> Show(EventId id) = 0;
  /// The exact bytes, checked against their digest. Error corrupt when they fail it.
  virtual Result<std::string> Payload(EventId id) = 0;
  virtual Result<std::vector<AuditRecord>> AuditOf(EventId id) = 0;

  /// Back to the dispatcher with a full retry budget. Errors: not_found, already_replayed, not_dead_lettered.
  virtual Result<Letter> Requeue(EventId id, const Actor& actor) = 0;
  /// Freezes the selection, then replays it oldest receipt first. Error replay_too_large over `max` unless `force`;
  /// a dry run always answers. Only letters in state dead, or held if the filter names that state, are selected.
  virtual Result<ReplayPlan> RequeueWhere(const Filter& filter, const ReplayOptions& options, const Actor& actor) = 0;
  virtual Result<ReplayProgress> Replay(std::int64_t replay_id) = 0;
  virtual Result<std::vector<ReplayProgress>> Replays(int limit = 50) = 0;
  /// One pass over exhausted letters (of one source, or all), oldest first; waits up to `wait` for their outcomes.
  virtual Result<DrainStats> Drain(const std::string& source, Duration wait, const Actor& actor) = 0;

  /// Moves letters parked before so many days to the archive (they stay listed, counted and replayable) and prunes
  /// succeeded events that ended before so many days, whole segments of the journal at a time; waits up to `wait`, then
  /// the rest goes on in the background. Error invalid, "bad_days", for 0 or less.
  virtual Result<PruneReport> PruneOlder(const PruneRequest& request, Duration wait, const Actor& actor) = 0;
  /// As accrue has them: dead letters, succeeded events. `days` unset = infinity: nothing.
  Result<PruneReport> Prune(std::optional<double> days, const Actor& actor) {
    return PruneOlder({.dead_older_than_days = days}, std::chrono::minutes(5), actor);
  }
  Result<PruneReport> PruneSucceeded(std::optional<double> days, const Actor& actor) {
    return PruneOlder({.succeeded_older_than_days = days}, std::chrono::minutes(5), actor);
  }
  /// Ended ones included, newest first.
  virtual Result<std::vector<LegalHold>> LegalHolds() = 0;
  /// The filter takes every event that it matches, in any state unless it names some. The actor's reason is mandatory.
  virtual Result<LegalHold> AddLegalHold(const Filter& filter, const Actor& actor) = 0;
  virtual Result<LegalHold> EndLegalHold(std::int64_t id, const Actor& actor) = 0;

  virtual Result<Letter> Hold(EventId id, const HoldRequest& request, const Actor& actor) = 0;
  virtual Result<Letter> Release(EventId id, const Actor& actor) = 0;
  virtual Result<Letter> Resolve(EventId id, ResolveCode code, const Actor& actor) = 0;
  virtual Result<Letter> Reopen(EventId id, const Actor& actor) = 0;

  Page ListOrThrow(const Filter& f, int limit = 50, const std::string& cursor = {}) {
    return OrThrow(List(f, limit, cursor));
  }
  std::int64_t CountOrThrow(const Filter& f) { return OrThrow(Count(f)); }
  std::vector<Group> GroupsOrThrow(const Filter& f, const std::string& by = "fingerprint") {
    return OrThrow(Groups(f, by));
  }
  LetterDetail ShowOrThrow(EventId id) { return OrThrow(Show(id)); }
  std::string PayloadOrThrow(EventId id) { return OrThrow(Payload(id)); }
  std::vector<AuditRecord> AuditOfOrThrow(EventId id) { return OrThrow(AuditOf(id)); }
  Letter RequeueOrThrow(EventId id, const Actor& a) { return OrThrow(Requeue(id, a)); }
  ReplayPlan RequeueWhereOrThrow(const Filter& f, const ReplayOptions& o, const Actor& a) {
    return OrThrow(RequeueWhere(f, o, a));
  }
  ReplayProgress ReplayOrThrow(std::int64_t id) { return OrThrow(Replay(id)); }
  std::vector<ReplayProgress> ReplaysOrThrow(int limit = 50) { return OrThrow(Replays(limit)); }
  DrainStats DrainOrThrow(const std::string& s, Duration wait, const Actor& a) { return OrThrow(Drain(s, wait, a)); }
  PruneReport PruneOlderOrThrow(const PruneRequest& r, Duration wait, const Actor& a) {
    return OrThrow(PruneOlder(r, wait, a));
  }
  PruneReport PruneOrThrow(std::optional<double> days, const Actor& a) { return OrThrow(Prune(days, a)); }
  PruneReport PruneSucceededOrThrow(std::optional<double> days, const Actor& a) {
    return OrThrow(PruneSucceeded(days, a));
  }
  std::vector<LegalHold> LegalHoldsOrThrow() { return OrThrow(LegalHolds()); }
  LegalHold AddLegalHoldOrThrow(const Filter& f, const Actor& a) { return OrThrow(AddLegalHold(f, a)); }
  LegalHold EndLegalHoldOrThrow(std::int64_t id, const Actor& a) { return OrThrow(EndLegalHold(id, a)); }
  Letter HoldOrThrow(EventId id, const HoldRequest& r, const Actor& a) { return OrThrow(Hold(id, r, a)); }
  Letter ReleaseOrThrow(EventId id, const Actor& a) { return OrThrow(Release(id, a)); }
  Letter ResolveOrThrow(EventId id, ResolveCode c, const Actor& a) { return OrThrow(Resolve(id, c, a)); }
  Letter ReopenOrThrow(EventId id, const Actor& a) { return OrThrow(Reopen(id, a)); }
};

}  // namespace dlo
