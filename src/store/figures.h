// The numbers people watch, read from the store.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/result.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo::store {

struct StateCount {
  std::string source;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::int64_t count = 0;
};

struct SourceAge {
  std::string source;
  Time oldest_unresolved{};  // parked_at of the oldest letter in state dead
  EventId id = 0;
};

struct Figures {
  std::vector<StateCount> counts;  // kept in the transaction that changes a state
  std::vector<SourceAge> oldest;
  std::int64_t receipts = 0;    // records in the journal, from the journal itself
  std::int64_t indexed = 0;     // of them, taken into the index
  std::int64_t duplicates = 0;  // of those, deliveries of a known key with the same content
  std::int64_t pruned = 0;
  std::int64_t held_overdue = 0;  // the sum of holds_overdue
  std::map<std::string, std::int64_t>
      holds_overdue;  // by source: held past their date, or their handler version is out
  std::int64_t audit_head = 0;
  /// indexed - duplicates - pruned - (sum of counts): 0, or events were lost or invented.
  std::int64_t accounting_difference = 0;
  std::optional<std::uint64_t> free_bytes;  // unset: the file system does not say
};

class FigureSource {
 public:
  virtual ~FigureSource() = default;
  virtual Result<Figures> Read() = 0;
  /// As Read, but counts the rows themselves; slow (seconds at millions of events).
  virtual Result<Figures> Recount() = 0;
  /// ok while the store can commit; else why not.
  virtual Result<void> Ready() = 0;
};

}  // namespace dlo::store
