#include "server/request_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/json.hpp>
#include <charconv>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/filter.h"
#include "server/utf8.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

std::optional<std::string> Decode(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out += ' ';
    } else if (text[i] != '%') {
      out += text[i];
    } else {
      const auto byte = i + 2 < text.size() ? HexDecode(text.substr(i + 1, 2)) : std::nullopt;
      if (!byte) return std::nullopt;
      out += *byte;
      i += 2;
    }
  }
  if (!IsUtf8(out)) return std::nullopt;
  return out;
}

std::unexpected<Error> BadWord(std::string_view name, std::string_view takes) {
  return Fail(ErrorKind::invalid, "bad_query", fmt::format("The word \"{}\" takes {}.", name, takes));
}

}  // namespace

Result<Query> Query::Parse(std::string_view text) {
  Query query;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view part = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (part.empty()) continue;
    const std::size_t equals = std::min(part.find('='), part.size());
    const auto name = Decode(part.substr(0, equals));
    const auto value = Decode(equals < part.size() ? part.substr(equals + 1) : std::string_view());
    if (!name || !value) {
      return Fail(ErrorKind::invalid, "bad_query", "The query has a broken percent code, or is not UTF-8.");
    }
    query.words_[*name].push_back(*value);
  }
  return query;
}

Result<std::optional<std::string>> Query::Once(const std::string& name) {
  auto found = words_.extract(name);
  if (found.empty()) return std::nullopt;
  if (found.mapped().size() > 1) return BadWord(name, "one value, and is given more than once");
  return std::move(found.mapped().front());
}

Result<std::int64_t> Query::Number(const std::string& name, std::int64_t otherwise, std::int64_t min,
                                   std::int64_t max) {
  const auto text = Once(name);
  if (!text) return std::unexpected(text.error());
  if (!*text) return otherwise;
  std::int64_t number = 0;
  const char* last = (*text)->data() + (*text)->size();
  const auto [end, error] = std::from_chars((*text)->data(), last, number);
  if (error != std::errc() || end != last || number < min || number > max) {
    return BadWord(name, fmt::format("a number from {} to {}", min, max));
  }
  return number;
}

Result<bool> Query::Flag(const std::string& name) {
  const auto text = Once(name);
  if (!text) return std::unexpected(text.error());
  if (!*text || **text == "false") return false;
  if (**text == "true") return true;
  return BadWord(name, "true or false");
}

Result<Filter> Query::TakeFilter() {
  static constexpr std::array kLists = {"type", "source", "subject", "account", "class", "state", "ids"};
  static constexpr std::array kSingles = {"since", "until", "livemode", "overdue", "fingerprint", "q", "not_judged_by"};
  json::object filter;
  for (const char* name : kLists) {
    auto found = words_.extract(name);
    if (!found.empty()) filter[name] = json::value_from(found.mapped());
  }
  for (const std::string name : kSingles) {
    auto text = Once(name);
    if (!text) return std::unexpected(text.error());
    if (!*text) continue;
    std::string& value = **text;
    if (name == "livemode" || name == "overdue") {
      if (value != "true" && value != "false") return BadWord(name, "true or false");
      filter[name] = value == "true";
      continue;
    }
    // A "+" of a time zone that was not percent-encoded.
    if (name == "since" || name == "until") std::ranges::replace(value, ' ', '+');
    filter[name] = value;
  }
  return FilterFromJson(json::serialize(filter));
}

Result<void> Query::Finish() const {
  if (words_.empty()) return {};
  std::string names;
  for (const auto& [name, values] : words_) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
  return Fail(ErrorKind::invalid, "unknown_word", "Unknown words in the query: " + names + ".");
}

const json::value* Fields::Take(std::string_view name) {
  taken_.emplace(name);
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value != nullptr && !value->is_null() ? value : nullptr;
}

void Fields::Mistake(std::string_view name, std::string_view takes) {
  if (mistake_) return;
  mistake_ = Error{ErrorKind::invalid, "bad_field", fmt::format("The field \"{}\" takes {}.", name, takes)};
}

std::optional<std::string> Fields::OptionalText(std::string_view name) {
  const json::value* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (const json::string* text = value->if_string()) return std::string(text->data(), text->size());
  Mistake(name, "a text");
  return std::nullopt;
}

std::string Fields::Text(std::string_view name) {
  return OptionalText(name).value_or(std::string());
}

std::int64_t Fields::Number(std::string_view name, std::int64_t otherwise) {
  const json::value* value = Take(name);
  if (value == nullptr) return otherwise;
  if (value->is_int64()) return value->as_int64();
  Mistake(name, "a whole number");
  return otherwise;
}

std::optional<double> Fields::Decimal(std::string_view name) {
  const json::value* value = Take(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_number()) return value->to_number<double>();
  Mistake(name, "a number");
  return std::nullopt;
}

bool Fields::Flag(std::string_view name) {
  const json::value* value = Take(name);
  if (value == nullptr) return false;
  if (value->is_bool()) return value->as_bool();
  Mistake(name, "true or false");
  return false;
}

Filter Fields::TakeFilter(std::string_view name) {
  const json::value* value = Take(name);
  if (value == nullptr || !value->is_object()) {
    Mistake(name, "an object, {} for every letter");
    return {};
  }
  auto filter = FilterFromJson(json::serialize(*value));
  if (filter) return std::move(*filter);
  if (!mistake_) mistake_ = filter.error();
  return {};
}

std::optional<Time> Fields::Moment(std::string_view name) {
  const auto text = OptionalText(name);
  if (!text) return std::nullopt;
  const auto time = ParseTime(*text);
  if (!time) Mistake(name, "a time like 2026-11-30T13:23:29Z or a date");
  return time;
}

Duration Fields::Length(std::string_view name, Duration otherwise) {
  const auto text = OptionalText(name);
  if (!text) return otherwise;
  const auto length = ParseDuration(*text);
  if (!length) Mistake(name, "a length of time like \"30s\" or \"5m\"");
  return length.value_or(otherwise);
}

Result<void> Fields::Finish() const {
  if (mistake_) return std::unexpected(*mistake_);
  std::string names;
  for (const auto& field : object_) {
    const std::string_view name(field.key().data(), field.key().size());
    if (!taken_.contains(name)) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name);
  }
  if (names.empty()) return {};
  return Fail(ErrorKind::invalid, "unknown_field", "Unknown fields: " + names + ".");
}

}  // namespace dlo::server
