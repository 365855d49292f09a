// What a function that runs inside an index transaction is given. Such functions are called on the index thread, one at
// a time; an error they return rolls back what they wrote and nothing else.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "dlo/result.h"
#include "env/clock.h"
#include "store/embedded/counts.h"
#include "store/embedded/lanes.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Sources, targets and workers by number: the names table, remembered both ways. One connection's thread only.
class Names {
 public:
  /// Adds the name if it is new.
  Result<std::int64_t> Id(Db& db, std::string_view name);
  /// nullopt if nobody was called so yet.
  Result<std::optional<std::int64_t>> Find(Db& db, std::string_view name);
  Result<std::string> Name(Db& db, std::int64_t id);
  /// Was this handler version not met in an answer of the source yet, as far as is remembered? Then it is from now on.
  bool FirstOf(std::int64_t source, std::string_view version);
  /// After a rollback: numbers given since may be given to others.
  void Forget();

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  std::unordered_map<std::string, std::int64_t, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::int64_t, std::string> names_;
  std::unordered_map<std::int64_t, std::unordered_set<std::string, Hash, std::equal_to<>>> versions_;  // by source
};

struct IndexContext {
  Db& db;
  Counts& counts;
  Names& names;
  Lanes& lanes;
  Clock& clock;
  bool work = false;     // set by NotifyWork: the dispatcher is woken after the commit
  bool claimed = false;  // set by the queue, for crash points
  bool applied = false;
  std::optional<bool> wanted;  // set by the queue: a dispatcher would have taken more than there was

  void NotifyWork() { work = true; }
  Result<std::int64_t> NameId(std::string_view name) { return names.Id(db, name); }
};

}  // namespace dlo::store
