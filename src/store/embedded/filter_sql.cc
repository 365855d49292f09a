#include "store/embedded/filter_sql.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "model/fingerprint.h"

namespace dlo::store {
namespace {

template <typename T>
bool Has(const std::vector<T>& list, T value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

/// A person who names the class or the letters themselves has decided about poison.
bool NamesPoison(const Filter& filter) {
  return !filter.ids.empty() || Has(filter.classes, FailureClass::poison);
}

/// As SQLite's lower(): ASCII alone.
std::string Lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

}  // namespace

std::string FilterSql::Parameter(Value value) {
  values_.push_back(std::move(value));
  return fmt::format("?{}", values_.size());
}

void FilterSql::And(const std::string& condition) {
  if (!where_.empty()) where_ += " AND ";
  where_ += condition;
}

Result<void> FilterSql::AndListed(const char* before, const std::vector<std::string>& texts, const char* after,
                                  const char* word) {
  if (texts.empty()) return {};
  if (texts.size() > kMaxListed) {
    return Fail(
        ErrorKind::invalid, "bad_filter",
        fmt::format("The filter names {} values for \"{}\"; at most {} are taken.", texts.size(), word, kMaxListed));
  }
  std::string condition = before;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) condition += ", ";
    condition += Parameter(texts[i]);
  }
  And(condition + after);
  return {};
}

Result<void> FilterSql::Add(const Filter& filter) {
  const std::pair<const char*, const std::vector<std::string>*> lists[] = {{"type", &filter.types},
                                                                           {"source", &filter.sources},
                                                                           {"subject", &filter.subjects},
                                                                           {"account", &filter.accounts}};
  const std::pair<const char*, const char*> conditions[] = {
      {"r.kind IN (", ")"},
      {"e.source IN (SELECT n.id FROM names n WHERE n.name IN (", "))"},
      {"r.subject IN (", ")"},
      {"r.account IN (", ")"}};
  reads_receipts_ =
      !filter.types.empty() || !filter.subjects.empty() || !filter.accounts.empty() || filter.livemode || filter.q;
  for (std::size_t i = 0; i < std::size(lists); ++i) {
    auto added = AndListed(conditions[i].first, *lists[i].second, conditions[i].second, lists[i].first);
    if (!added) return added;
  }
  if (!filter.classes.empty()) {
    std::string condition;
    for (const FailureClass c : filter.classes) {
      condition += (condition.empty() ? "" : ", ") + Parameter(static_cast<std::int64_t>(c));
    }
    And("e.class IN (" + condition + ")");
  }
  if (filter.since) And("e.received_at >= " + Parameter(filter.since->time_since_epoch().count()));
  if (filter.until) And("e.received_at < " + Parameter(filter.until->time_since_epoch().count()));
  if (filter.livemode) And("r.livemode = " + Parameter(std::int64_t{*filter.livemode}));
  if (filter.fingerprint) {
    const auto number = FingerprintNumber(*filter.fingerprint);
    if (!number)
      return Fail(ErrorKind::invalid, "bad_filter", "A fingerprint is 16 hex digits, as lists and groups show it.");
    And("e.fingerprint = " + Parameter(*number));
  }
  if (filter.q) {
    // instr, not LIKE: it has no wildcards to escape and does not end at a NUL.
    const std::string q = Parameter(Lower(*filter.q));
    And("(instr(lower(r.key), " + q + ") OR instr(lower(r.subject), " + q + ") OR instr(lower(f.message), " + q + "))");
    reads_failures_ = true;
  }
  if (!filter.ids.empty()) {
    if (filter.ids.size() > kMaxIds) {
      return Fail(ErrorKind::invalid, "bad_filter", fmt::format("The filter names more than {} ids.", kMaxIds));
    }
    std::string list = "[";
    for (const EventId id : filter.ids)
      fmt::format_to(std::back_inserter(list), "{}{}", list.size() > 1 ? "," : "", id);
    And("e.id IN (SELECT value FROM json_each(" + Parameter(list + "]") + "))");
  }
  return {};
}

std::string FilterSql::Joins(bool with_receipts) const {
  std::string joins;
  if (reads_receipts_ || with_receipts) joins += " CROSS JOIN receipts r ON r.id = e.id";
  if (reads_failures_) joins += " LEFT JOIN failures f ON f.event_id = e.id";
  return joins;
}

Result<FilterSql> FilterSql::ForLetters(const Filter& filter) {
  FilterSql sql;
  const bool dead = Has(filter.states, State::dead), held = Has(filter.states, State::held);
  const bool letters_only = std::all_of(filter.states.begin(), filter.states.end(),
                                        [](State s) { return s == State::dead || s == State::held; });
  if (letters_only) {
    // Spelled as in the partial indexes, or SQLite does not use them.
    sql.And("e.letter NOT NULL");
    if (dead != held)
      sql.And("e.state = " + sql.Parameter(static_cast<std::int64_t>(dead ? State::dead : State::held)));
  } else {
    std::string states;
    for (int s = 0; s < kStateCount; ++s) {
      if (Has(filter.states, static_cast<State>(s)))
        states += (states.empty() ? "" : ", ") + sql.Parameter(std::int64_t{s});
    }
    sql.And("e.state IN (" + states + ")");
  }
  if (auto added = sql.Add(filter); !added) return std::unexpected(added.error());
  return sql;
}

Result<FilterSql> FilterSql::ForReplay(const Filter& filter, const OtherReplays& others) {
  const bool held = Has(filter.states, State::held);
  const bool dead = filter.states.empty() || Has(filter.states, State::dead);
  if (!dead && !held) {
    return Fail(ErrorKind::invalid, "state_not_replayable",
                "Only letters in state dead or held can be replayed; leave \"state\" out or name one of them.");
  }
  FilterSql sql;
  sql.And("e.letter NOT NULL");
  if (!(dead && held))
    sql.And("e.state = " + sql.Parameter(static_cast<std::int64_t>(dead ? State::dead : State::held)));
  sql.And("e.class <> " + sql.Parameter(static_cast<std::int64_t>(FailureClass::corrupt)));
  if (!NamesPoison(filter)) {
    sql.And("e.class <> " + sql.Parameter(static_cast<std::int64_t>(FailureClass::poison)));
    sql.And("e.replays_failed < " + sql.Parameter(std::int64_t{kMaxFailedReplays}));
  }
  // Those already handed over are waiting or running; these are still letters.
  if (!others.none)
    sql.And(fmt::format(
        "{} (SELECT 1 FROM replays o INDEXED BY replays_holding CROSS JOIN replay_items i ON i.replay_id = o.id "
        "AND i.source = e.source AND i.event_id = e.id AND i.state = 0 "
        "WHERE o.state IN ('plan', 'canary', 'running', 'paused', 'stopped') AND o.queued > 0 AND o.id <> {})",
        others.only ? "EXISTS" : "NOT EXISTS", sql.Parameter(others.but)));
  if (auto added = sql.Add(filter); !added) return std::unexpected(added.error());
  return sql;
}

void FilterSql::BindTo(Statement& statement) const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const int parameter = static_cast<int>(i) + 1;
    if (const auto* number = std::get_if<std::int64_t>(&values_[i])) {
      statement.Bind(parameter, *number);
    } else {
      statement.Bind(parameter, std::string_view(std::get<std::string>(values_[i])));
    }
  }
}

bool MayReplay(const Filter& filter, State state, FailureClass failure_class, int replays_failed) {
  const bool state_taken = state == State::held
                               ? Has(filter.states, State::held)
                               : state == State::dead && (filter.states.empty() || Has(filter.states, State::dead));
  if (!state_taken || failure_class == FailureClass::corrupt) return false;
  if (!filter.classes.empty() && !Has(filter.classes, failure_class)) return false;
  return NamesPoison(filter) || !IsPoison(failure_class, replays_failed);
}

bool IsPoison(FailureClass failure_class, int replays_failed) {
  return failure_class == FailureClass::poison || replays_failed >= kMaxFailedReplays;
}

}  // namespace dlo::store
