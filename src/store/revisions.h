// Corrected payloads beside the originals, which the journal keeps unchanged.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"

namespace dlo::store {

struct RevisionRequest {
  EventId id = 0;
  std::optional<std::string> body;  // unset: the original again
  std::optional<int> after;         // the newest revision that the caller has seen
};

class Revisions {
 public:
  virtual ~Revisions() = default;
  /// Audited. A letter that was parked because a revision of it was damaged, and whose original is whole, gets class
  /// permanent, so that it can be replayed again. Errors: not_found; conflict: not_dead_lettered, in_replay,
  /// "revised_meanwhile" (request.after is not the newest), "no_revision" (nothing to withdraw), "too_many_revisions".
  virtual Result<Revision> Revise(const RevisionRequest& request, const Actor& actor, Time now) = 0;
  /// Newest first.
  virtual Result<std::vector<Revision>> ListRevisions(EventId id) = 0;
  /// The exact bytes; number 0 and a withdrawal are the original. Errors: not_found, "no_such_revision"; corrupt.
  virtual Result<std::string> RevisionPayload(EventId id, int number) = 0;
};

inline constexpr int kMaxRevisions = 100;  // of one event

}  // namespace dlo::store
