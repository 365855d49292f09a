#include "model/filter.h"

#include <algorithm>
#include <boost/json.hpp>
#include <charconv>

#include "base/time_text.h"

namespace dlo {
namespace {

namespace json = boost::json;

// Texts from outside may hold any bytes; they must come back as they were.
json::parse_options Lenient() {
  json::parse_options options;
  options.allow_invalid_utf8 = true;
  return options;
}

template <typename T>
std::vector<T> SortedOnce(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
  return values;
}

template <typename T, typename ToValue>
void PutList(json::object& out, std::string_view word, const std::vector<T>& values, ToValue to_value) {
  if (values.empty()) return;
  json::array list;
  for (const T& value : SortedOnce(values)) list.push_back(to_value(value));
  out[word] = std::move(list);
}

std::unexpected<Error> Bad(std::string_view word, std::string_view takes) {
  return Fail(ErrorKind::invalid, "bad_filter",
              "The filter word \"" + std::string(word) + "\" takes " + std::string(takes) + ".");
}

/// Calls `take` for the value, or for each member of a list; false from it ends with an error.
template <typename Take>
Result<void> Each(std::string_view word, const json::value& value, std::string_view takes, Take take) {
  if (const json::array* list = value.if_array()) {
    for (const json::value& member : *list) {
      if (!take(member)) return Bad(word, takes);
    }
    return {};
  }
  if (!take(value)) return Bad(word, takes);
  return {};
}

std::optional<std::string> AsText(const json::value& value) {
  const json::string* text = value.if_string();
  if (text == nullptr) return std::nullopt;
  return std::string(text->data(), text->size());
}

Result<void> ReadTexts(std::string_view word, const json::value& value, std::vector<std::string>& out) {
  return Each(word, value, "a text or a list of texts", [&](const json::value& member) {
    auto text = AsText(member);
    if (!text) return false;
    out.push_back(std::move(*text));
    return true;
  });
}

template <typename T, typename ByName>
Result<void> ReadNames(std::string_view word, const json::value& value, std::string_view takes, ByName by_name,
                       std::vector<T>& out) {
  return Each(word, value, takes, [&](const json::value& member) {
    const auto text = AsText(member);
    const auto found = text ? by_name(*text) : std::nullopt;
    if (found) out.push_back(*found);
    return found.has_value();
  });
}

Result<void> ReadTime(std::string_view word, const json::value& value, bool inclusive, std::optional<Time>& out) {
  const auto text = AsText(value);
  auto time = text ? ParseTime(*text) : std::nullopt;
  if (!time) return Bad(word, "a time like 2026-11-30T13:23:29Z or a date like 2026-11-30");
  if (inclusive && IsDate(*text)) *time += std::chrono::hours(24);
  out = time;
  return {};
}

std::optional<EventId> AsId(const json::value& value) {
  if (value.is_int64()) return value.as_int64();
  const auto text = AsText(value);
  if (!text) return std::nullopt;
  EventId id = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), id);
  if (error != std::errc() || end != text->data() + text->size()) return std::nullopt;
  return id;
}

Result<void> ReadWord(std::string_view word, const json::value& value, Filter& out) {
  if (word == "type") return ReadTexts(word, value, out.types);
  if (word == "source") return ReadTexts(word, value, out.sources);
  if (word == "subject") return ReadTexts(word, value, out.subjects);
  if (word == "account") return ReadTexts(word, value, out.accounts);
  if (word == "class") {
    return ReadNames(word, value, "exhausted, permanent, poison, crashed, conflict, invalid or corrupt",
                     FailureClassByName, out.classes);
  }
  if (word == "state") {
    return ReadNames(word, value, "waiting, running, succeeded, dead, held, replayed or resolved", StateByName,
                     out.states);
  }
  if (word == "since") return ReadTime(word, value, false, out.since);
  if (word == "until") return ReadTime(word, value, true, out.until);
  if (word == "livemode") {
    if (!value.is_bool()) return Bad(word, "true or false");
    out.livemode = value.as_bool();
    return {};
  }
  if (word == "fingerprint" || word == "q" || word == "not_judged_by") {
    auto text = AsText(value);
    if (!text) return Bad(word, "a text");
    (word == "q" ? out.q : word == "fingerprint" ? out.fingerprint : out.not_judged_by) = std::move(text);
    return {};
  }
  if (word == "overdue") {
    // false says nothing: it is how a form leaves the word out. A time is what a kept filter was resolved to.
    if (value.is_string()) return ReadTime(word, value, false, out.overdue);
    if (!value.is_bool()) return Bad(word, "true or false");
    if (value.as_bool()) out.overdue = Time{};
    return {};
  }
  if (word == "ids") {
    return Each(word, value, "an event's number or a list of them", [&](const json::value& member) {
      const auto id = AsId(member);
      if (id) out.ids.push_back(*id);
      return id.has_value();
    });
  }
  return Fail(ErrorKind::invalid, "bad_filter",
              "There is no filter word \"" + std::string(word) +
                  "\". Words: type, source, subject, account, class, state, since, until, livemode, fingerprint, q, "
                  "ids, overdue, not_judged_by.");
}

}  // namespace

bool Filter::Empty() const {
  return types.empty() && sources.empty() && subjects.empty() && accounts.empty() && classes.empty() &&
         states.empty() && !since && !until && !livemode && !fingerprint && !q && ids.empty() && !overdue &&
         !not_judged_by;
}

std::string FilterToJson(const Filter& filter) {
  const auto text = [](const std::string& value) { return json::value(value); };
  const auto name = [](auto value) { return json::value(Name(value)); };
  json::object out;
  PutList(out, "type", filter.types, text);
  PutList(out, "source", filter.sources, text);
  PutList(out, "subject", filter.subjects, text);
  PutList(out, "account", filter.accounts, text);
  PutList(out, "class", filter.classes, name);
  PutList(out, "state", filter.states, name);
  if (filter.since) out["since"] = FormatTime(*filter.since);
  // Always with a time of day: a bare date would be read as inclusive.
  if (filter.until) out["until"] = FormatTime(*filter.until);
  if (filter.livemode) out["livemode"] = *filter.livemode;
  if (filter.fingerprint) out["fingerprint"] = *filter.fingerprint;
  if (filter.q) out["q"] = *filter.q;
  PutList(out, "ids", filter.ids, [](EventId id) { return json::value(id); });
  if (filter.overdue)
    out["overdue"] = *filter.overdue == Time{} ? json::value(true) : json::value(FormatTime(*filter.overdue));
  if (filter.not_judged_by) out["not_judged_by"] = *filter.not_judged_by;
  return json::serialize(out);
}

Result<Filter> FilterFromJson(std::string_view text) {
  boost::system::error_code error;
  const json::value value = json::parse({text.data(), text.size()}, error, {}, Lenient());
  const json::object* object = error ? nullptr : value.if_object();
  if (object == nullptr) return Fail(ErrorKind::invalid, "bad_filter", "A filter is a JSON object, {} for everything.");
  Filter out;
  for (const auto& [word, member] : *object) {
    if (member.is_null()) continue;  // unset
    if (auto read = ReadWord({word.data(), word.size()}, member, out); !read) return std::unexpected(read.error());
  }
  return out;
}

}  // namespace dlo
