// What alerts are made from and the outbox that they leave by. The rules stand above (observe/alarm_rules.h); the store
// keeps that nothing is told twice by one pass and nothing is forgotten between two.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo::store {

/// Letters of one cause that came in since the last pass.
struct Arrival {
  std::string source;
  std::string fingerprint;
  FailureClass failure_class = FailureClass::none;
  std::int64_t n = 0;
  Time first_at{}, last_at{};
  EventId sample = 0;  // the newest
  std::string kind, code, message;
};

/// Something that fires, as one receiver knows it.
struct AlarmCondition {
  std::string receiver, rule, name, source;
  std::string route;  // page | ticket | outside
  Time since{};
  std::optional<Time> clear_since;  // unset: fires now. Arrivals: when the newest came
  std::optional<Time> told_at;
  std::int64_t pending = 0;  // arrivals that were not told
  std::int64_t total = 0;
  std::string what;
  EventId sample = 0;
  friend bool operator==(const AlarmCondition&, const AlarmCondition&) = default;
};

struct Alert {
  std::int64_t id = 0;
  std::string alert;  // the id that receivers see; the same at each attempt
  std::string receiver, rule, name, source, route;
  std::string status;  // firing | resolved | test
  Time since{}, created_at{};
  std::int64_t n = 0;  // letters it tells of for the first time
  std::int64_t total = 0;
  std::string what;
  EventId sample = 0;
  int attempts = 0;
  Time next_at{};
  std::optional<Time> sent_at;
  std::string answer;  // to the newest attempt
};

struct AlarmsNow {
  std::int64_t pass = 0;
  std::vector<Arrival> arrivals;  // at most 1,000; the rest is there at the next pass
  std::vector<AlarmCondition> conditions;
  std::optional<Time> last_arrival_at, last_probe_at;
  std::string probe_failed;  // why the newest probe failed; empty = it did not
};

/// What one pass changes, in one transaction.
struct AlarmPass {
  std::int64_t pass = 0;                // of the AlarmsNow that it was made from
  std::vector<Arrival> taken;           // counted down by n: more may have come meanwhile
  std::optional<Time> last_arrival_at;  // set: newer than before
  std::vector<AlarmCondition> changed;
  std::vector<AlarmCondition> ended;
  std::vector<Alert> alerts;
};

struct OverdueHold {
  std::string source;
  std::int64_t n = 0;
  EventId sample = 0;
};

struct LastReceipt {
  std::string source;  // empty: whoever is not named has sent nothing since `at`
  Time at{};
};

class Alarms {
 public:
  virtual ~Alarms() = default;
  virtual Result<AlarmsNow> ReadAlarms() = 0;
  /// Fenced by the number of the pass: false, and nothing is written, when another pass came first. An alert takes the
  /// place of an unsent one of the same receiver, rule, name and route, and its count is added.
  virtual Result<bool> CommitAlarms(const AlarmPass& pass) = 0;
  /// The first unsent one of the receiver that is due.
  virtual Result<std::optional<Alert>> DueAlert(const std::string& receiver, Time now) = 0;
  /// How an attempt ended: sent when `retry_at` is unset. An alert that is gone (a later one took its place) is no
  /// error.
  virtual Result<void> AlertAttempted(std::int64_t id, const std::string& answer, Time now,
                                      std::optional<Time> retry_at) = 0;
  /// A test, with its audit record, durable. Returns the row's id.
  virtual Result<std::int64_t> QueueTestAlert(const Alert& alert, const Actor& actor, Time now) = 0;
  virtual Result<Alert> GetAlert(std::int64_t id) = 0;
  /// Newest first; `before` 0 = from the newest. The newest 1,000 sent ones are kept.
  virtual Result<std::vector<Alert>> Alerts(bool pending_only, std::int64_t before, int limit) = 0;
  virtual Result<std::int64_t> PendingAlerts() = 0;
  /// Conditions and unsent alerts of receivers that are not in the configuration any more. Returns how many alerts were
  /// dropped.
  virtual Result<std::int64_t> KeepReceivers(const std::vector<std::string>& names) = 0;

  /// Held letters whose date is past, by source; looks at no more than 1,000.
  virtual Result<std::vector<OverdueHold>> OverdueHolds(Time now) = 0;
  /// Of each source, from the newest 10,000 events; see LastReceipt for the others.
  virtual Result<std::vector<LastReceipt>> LastReceipts() = 0;
  virtual Result<void> NoteProbe(Time at, const std::string& failed) = 0;
};

}  // namespace dlo::store
