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
  /// So many letters of each failure group (fingerprint) go first; the others only if these hold. 0 = no canary.
  int canary = 0;
  /// It stops itself when more than this share of the last 20 that ended (of a canary: of all of it) is dead again.
  int stop_percent = 50;
};

/// For a dry run `id` is 0 and nothing changed.
struct ReplayPlan {
  std::int64_t id = 0;
  std::int64_t count = 0;
  bool over_cap = false;
  std::string digest;                // SHA-256 over the ids in order, hex
  std::int64_t in_other_replay = 0;  // letters that the filter selects and another replay has; not in count
  std::int64_t canary = 0;           // of count: go first
  std::map<std::string, std::int64_t> by_class, by_type;  // by_type: 1,000 kinds, the rest is "(others)"
  std::optional<Time> oldest;
  double estimated_seconds = 0;
};

/// What a replay has done so far. queued + running + committed + dead_again + skipped = count, at every moment.
struct ReplayProgress {
  std::int64_t id = 0;
  std::string state;  // plan | canary | running | paused | stopped | cancelled | done
  std::string kind;   // replay | drain
  Time created_at{};
  std::optional<Time> finished_at;
  std::string actor, reason, filter;  // filter as JSON
  std::string word, word_of;          // why it is paused, stopped or cancelled, and who said so
  std::int64_t count = 0;             // frozen at creation
  std::int64_t in_other_replay = 0;   // left out then, since another replay had them
  std::int64_t requeued = 0;          // handed to the dispatcher so far
  std::int64_t queued = 0;            // no attempt of theirs is under way: not handed over, due, or waiting for a retry
  std::int64_t running = 0;           // in the handler's hands
  std::int64_t skipped = 0;           // state changed, poison, in another replay, erased or cancelled
  std::int64_t committed = 0;         // effect applied, or seen to be applied; the answer is committed
  std::int64_t already_applied = 0;   // of committed: the handler had applied it before
  std::int64_t dead_again = 0;        // back in the dead letters
  std::int64_t parked = 0;            // of dead_again: no longer class exhausted
  std::int64_t remaining = 0;         // not yet final
  std::int64_t canary = 0;            // letters of each group that went first; 0 = no canary
  int stop_percent = 50;
  std::int64_t notifications_suppressed = 0;  // of committed: the handler was told to send none
  double per_second = 0;                      // ended, of late
  std::optional<Time> estimated_end;          // at that rate
  std::string digest;
};

/// One letter of a replay.
struct ReplayItem {
  EventId id = 0;
  std::string state;  // queued | running | ended
  bool handed_over = false;
  std::string result;  // committed | already_applied | gone | resolved | dead_again | skipped; empty until it ended
  std::string
      reason;  // skipped: state | poison | in another replay | erased | cancelled; dead again: class and failure
};

/// Empty words: all.
struct ReplayItemFilter {
  std::string state, result;
};

struct ReplayItems {
  std::vector<ReplayItem> items;    // oldest receipt first
  std::optional<std::string> next;  // cursor
};

struct DrainStats {
  std::int64_t committed = 0, requeued = 0, parked = 0;
  std::int64_t replay_id = 0;
  bool finished = true;
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

  /// Back to the dispatcher with a full retry budget. Errors: not_found, already_replayed, not_dead_lettered,
  /// in_replay (a letter is in one replay at a time; the message names it).
  virtual Result<Letter> Requeue(EventId id, const Actor& actor) = 0;
  /// Freezes the selection, then replays it oldest receipt first. Error replay_too_large over `max` unless `force`;
  /// a dry run always answers. Only letters in state dead, or held if the filter names that state, are selected.
  virtual Result<ReplayPlan> RequeueWhere(const Filter& filter, const ReplayOptions& options, const Actor& actor) = 0;
  virtual Result<ReplayProgress> Replay(std::int64_t replay_id) = 0;
  virtual Result<std::vector<ReplayProgress>> Replays(int limit = 50) = 0;
  /// How each letter of a replay stands. `limit` 1..500.
  virtual Result<ReplayItems> Items(std::int64_t replay_id, const ReplayItemFilter& filter = {}, int limit = 50,
                                    const std::string& cursor = {}) = 0;
  /// Nothing more is handed over until Resume; what was handed over ends. Errors: replay_not_found; conflict
  /// replay_not_running, replay_ended.
  virtual Result<ReplayProgress> Pause(std::int64_t replay_id, const Actor& actor) = 0;
  /// Of a paused one, or of one that stopped itself: it goes on, and stops again if the next 20 fail as well. Errors:
  /// replay_not_found; conflict replay_not_paused, replay_ended.
  virtual Result<ReplayProgress> Resume(std::int64_t replay_id, const Actor& actor) = 0;
  /// For good: what was handed over ends, the others stay dead letters. Errors: replay_not_found; conflict
  /// replay_ended.
  virtual Result<ReplayProgress> Cancel(std::int64_t replay_id, const Actor& actor) = 0;
  /// One pass over exhausted letters (of one source, or all), oldest first; waits up to `wait` for their outcomes.
  virtual Result<DrainStats> Drain(const std::string& source, Duration wait, const Actor& actor) = 0;

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
  ReplayItems ItemsOrThrow(std::int64_t id, const ReplayItemFilter& f = {}, int limit = 50,
                           const std::string& cursor = {}) {
    return OrThrow(Items(id, f, limit, cursor));
  }
  ReplayProgress PauseOrThrow(std::int64_t id, const Actor& a) { return OrThrow(Pause(id, a)); }
  ReplayProgress ResumeOrThrow(std::int64_t id, const Actor& a) { return OrThrow(Resume(id, a)); }
  ReplayProgress CancelOrThrow(std::int64_t id, const Actor& a) { return OrThrow(Cancel(id, a)); }
  DrainStats DrainOrThrow(const std::string& s, Duration wait, const Actor& a) { return OrThrow(Drain(s, wait, a)); }
  Letter HoldOrThrow(EventId id, const HoldRequest& r, const Actor& a) { return OrThrow(Hold(id, r, a)); }
  Letter ReleaseOrThrow(EventId id, const Actor& a) { return OrThrow(Release(id, a)); }
  Letter ResolveOrThrow(EventId id, ResolveCode c, const Actor& a) { return OrThrow(Resolve(id, c, a)); }
  Letter ReopenOrThrow(EventId id, const Actor& a) { return OrThrow(Reopen(id, a)); }
};

}  // namespace dlo
