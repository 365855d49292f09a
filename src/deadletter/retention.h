// When retention acts: the configured periods as times, and the pace of the archive's thread.
#pragma once

#include "dlo/config.h"
#include "dlo/time.h"
#include "store/retention.h"

namespace dlo::deadletter {

/// What may go at `now`.
[[nodiscard]] store::RetentionCutoffs CutoffsAt(const RetentionConfig& config, Time now);

/// After work that took so long the archive rests three times as long: under load it is never more than a quarter of a
/// core, and whoever waits for the disk or the index comes first.
[[nodiscard]] Duration RestAfter(Duration worked);

class Archivist {
 public:
  Archivist(store::Retention& store, RetentionConfig config, store::GoOn go_on)
      : store_(store), config_(std::move(config)), go_on_(std::move(go_on)) {}
  /// One thing that is due; returns when to call again. Trouble is logged, once for each sort.
  Time RunOnce(Time now);

 private:
  void Tell(const store::ArchiveWork& work);

  store::Retention& store_;
  const RetentionConfig config_;
  const store::GoOn go_on_;
  std::string trouble_;
};

}  // namespace dlo::deadletter
