// A Filter as the condition of a query over `events e JOIN receipts r LEFT JOIN failures f`. The shape of the text
// follows which fields are set; every value is bound, none is ever part of the text.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "dlo/letters.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// What a selection for a replay does with letters that another replay has.
struct OtherReplays {
  std::int64_t but = 0;  // which is no other
  bool only = false;     // these alone, instead of all but these
  bool none = false;     // there is no other, so that no letter need be looked up
};

class FilterSql {
 public:
  /// For lists and counts: no states named = dead and held. Error invalid for a fingerprint that is not 16 hex digits
  /// and for a list of more than kMaxListed members.
  static Result<FilterSql> ForLetters(const Filter& filter);
  /// For replays: state dead, or held where the filter names it; never class corrupt; letters at the poison cap only
  /// where the filter names class poison or ids; none that waits its turn in another replay. Error invalid,
  /// "state_not_replayable", when the filter names states and none of them is dead or held.
  static Result<FilterSql> ForReplay(const Filter& filter, const OtherReplays& others = {});

  /// "e.letter NOT NULL AND r.kind IN (?1, ?2)".
  [[nodiscard]] const std::string& where() const { return where_; }
  /// The first parameter number that is free after this condition's own, which begin at 1.
  [[nodiscard]] int next_parameter() const { return static_cast<int>(values_.size()) + 1; }
  /// " CROSS JOIN receipts r ON ..." and the like, to come after `events e`: what the condition reads, and the receipts
  /// if the caller does. CROSS, so that SQLite begins with the events, which have the indexes.
  [[nodiscard]] std::string Joins(bool with_receipts = false) const;
  /// Binds the values. They are not copied: this must live until the statement is reset.
  void BindTo(Statement& statement) const;

  static constexpr std::size_t kMaxListed = 1'000;  // of each list of texts
  static constexpr std::size_t kMaxIds = 1'000'000;

 private:
  using Value = std::variant<std::int64_t, std::string>;
  Result<void> Add(const Filter& filter);
  void And(const std::string& condition);
  std::string Parameter(Value value);
  Result<void> AndListed(const char* before, const std::vector<std::string>& texts, const char* after,
                         const char* word);

  std::string where_;
  std::vector<Value> values_;
  bool reads_receipts_ = false, reads_failures_ = false;
};

/// May a replay of `filter` take this letter? By the rules of ForReplay, asked again when its turn comes: it may have
/// been held, or have failed for another reason, in between.
[[nodiscard]] bool MayReplay(const Filter& filter, State state, FailureClass failure_class, int replays_failed);

/// At the cap: only a person who names it replays it.
[[nodiscard]] bool IsPoison(FailureClass failure_class, int replays_failed);

/// Failed replays after which only a person who names the letter or its class replays it again.
inline constexpr int kMaxFailedReplays = 5;

}  // namespace dlo::store
