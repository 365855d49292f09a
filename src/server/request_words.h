// What a caller said, taken apart strictly: each word is taken by name, and one that nobody took is an error that names
// it. So a misspelt filter never widens a selection.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/letters.h"
#include "dlo/result.h"

namespace dlo::server {

/// A query string. "+" is a space, as forms write it.
class Query {
 public:
  /// Error invalid, "bad_query", for a broken percent code or text that is not UTF-8.
  static Result<Query> Parse(std::string_view text);

  /// A word that may be given once.
  Result<std::optional<std::string>> Once(const std::string& name);
  Result<std::int64_t> Number(const std::string& name, std::int64_t otherwise, std::int64_t min, std::int64_t max);
  Result<bool> Flag(const std::string& name);
  /// All filter words: type, source, subject, account, class, state, ids (repeatable), since, until, livemode,
  /// overdue, fingerprint, q, not_judged_by.
  Result<Filter> TakeFilter();
  /// Error invalid, "unknown_word", naming what nobody took.
  [[nodiscard]] Result<void> Finish() const;

 private:
  std::map<std::string, std::vector<std::string>> words_;
};

/// The fields of a JSON object. Reading goes on after a mistake; Finish tells the first one.
class Fields {
 public:
  explicit Fields(const boost::json::object& object) : object_(object) {}

  std::string Text(std::string_view name);  // absent or null: ""
  std::optional<std::string> OptionalText(std::string_view name);
  std::int64_t Number(std::string_view name, std::int64_t otherwise);
  std::optional<double> Decimal(std::string_view name);
  bool Flag(std::string_view name);
  /// Mandatory, an object.
  Filter TakeFilter(std::string_view name);
  /// RFC 3339, or a date.
  std::optional<Time> Moment(std::string_view name);
  Duration Length(std::string_view name, Duration otherwise);
  [[nodiscard]] Result<void> Finish() const;

 private:
  const boost::json::value* Take(std::string_view name);
  void Mistake(std::string_view name, std::string_view takes);

  const boost::json::object& object_;
  std::set<std::string, std::less<>> taken_;
  std::optional<Error> mistake_;
};

}  // namespace dlo::server
