#include "cli/json.h"

#include "base/time_text.h"

namespace dlo::cli {

const boost::json::value* Field(const boost::json::value& value, std::string_view name) {
  const boost::json::object* object = value.if_object();
  const boost::json::value* field = object ? object->if_contains(name) : nullptr;
  return field && !field->is_null() ? field : nullptr;
}

std::string Text(const boost::json::value& value, std::string_view name) {
  const boost::json::value* field = Field(value, name);
  if (!field) return {};
  if (const boost::json::string* text = field->if_string()) return {text->data(), text->size()};
  return boost::json::serialize(*field);
}

std::int64_t Number(const boost::json::value& value, std::string_view name) {
  const boost::json::value* field = Field(value, name);
  if (!field || !field->is_number()) return 0;
  boost::json::error_code ec;
  std::int64_t whole = field->to_number<std::int64_t>(ec);
  if (!ec) return whole;
  double inexact = field->is_double() ? field->get_double() : 0;
  return inexact > -9e18 && inexact < 9e18 ? static_cast<std::int64_t>(inexact) : 0;
}

bool Flag(const boost::json::value& value, std::string_view name) {
  const boost::json::value* field = Field(value, name);
  return field && field->is_bool() && field->get_bool();
}

std::optional<Time> When(const boost::json::value& value, std::string_view name) {
  const boost::json::value* field = Field(value, name);
  if (!field || !field->is_string()) return std::nullopt;
  return ParseTime(Text(value, name));
}

const boost::json::array& Items(const boost::json::value& value, std::string_view name) {
  static const boost::json::array kNone;
  if (const boost::json::array* all = value.if_array()) return *all;
  const boost::json::value* field = Field(value, name);
  return field && field->is_array() ? field->get_array() : kNone;
}

}  // namespace dlo::cli
