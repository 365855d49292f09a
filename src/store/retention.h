// What becomes of events that are over: their bytes and their history move to the archive, then their rows go.
// Unresolved letters keep their rows for ever.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/letters.h"
#include "dlo/result.h"

namespace dlo::store {

/// What may go, by the time at which it ended. Unset: nothing of that sort.
struct RetentionCutoffs {
  std::optional<Time> succeeded;
  std::optional<Time> closed;  // replayed or resolved
  std::optional<Time> cold;    // letters parked before this may move, with all of their segment
  /// A person asked: a segment need not be over as a whole for what is due in it to go.
  bool now = false;

  [[nodiscard]] std::optional<Time> Latest() const;
};

struct ArchiveWork {
  bool worked = false;   // something was done; there may be more
  bool stopped = false;  // `go_on` said so: what was begun goes on with a later call
  PruneReport report;
};

/// Called between small pieces of work with how long the last one took; may sleep. False: stop as soon as possible.
using GoOn = std::function<bool(Duration worked)>;

class Retention {
 public:
  virtual ~Retention() = default;
  /// Does the next thing that is due, at most for one segment: compresses it, or moves it to the archive and prunes
  /// what may be pruned of it. One caller at a time: a second one waits up to `wait`, then gets `worked` false and
  /// error "busy".
  virtual Result<ArchiveWork> ArchiveNext(const RetentionCutoffs& cutoffs, Time now, const GoOn& go_on,
                                          Duration wait) = 0;
  /// Records what a person asked for; `details` is a JSON object.
  virtual Result<void> AuditRetention(const std::string& action, const std::string& details, const Actor& actor,
                                      Time now) = 0;

  /// Newest first, ended ones included.
  virtual Result<std::vector<LegalHold>> LegalHolds() = 0;
  /// Audited, as is the end. A reason is mandatory: error invalid, "reason_missing".
  virtual Result<LegalHold> AddLegalHold(const Filter& filter, const Actor& actor, Time now) = 0;
  /// Errors: not_found; conflict, "already_ended".
  virtual Result<LegalHold> EndLegalHold(std::int64_t id, const Actor& actor, Time now) = 0;

  /// The archive's segments, oldest first, after segment `after`.
  virtual Result<std::vector<ArchivedSegment>> Archive(std::int64_t after, int limit) = 0;
  /// All that the archive has of one event, a JSON object a record. Error not_found.
  virtual Result<std::vector<std::string>> ArchivedRecords(EventId id) = 0;
};

}  // namespace dlo::store
