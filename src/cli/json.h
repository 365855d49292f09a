// Lenient reading of the API's answers: a field that is absent, null or of another type reads as nothing, so that an
// older command line shows a newer server's answers as far as it knows them.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dlo/time.h"

namespace dlo::cli {

/// nullptr when `value` is no object, or has no such field, or it is null.
[[nodiscard]] const boost::json::value* Field(const boost::json::value& value, std::string_view name);
/// Strings as they are; numbers and booleans as JSON writes them.
[[nodiscard]] std::string Text(const boost::json::value& value, std::string_view name);
[[nodiscard]] std::int64_t Number(const boost::json::value& value, std::string_view name);
[[nodiscard]] bool Flag(const boost::json::value& value, std::string_view name);
[[nodiscard]] std::optional<Time> When(const boost::json::value& value, std::string_view name);
/// The array under `name`, or `value` itself if it is one; else an empty one.
[[nodiscard]] const boost::json::array& Items(const boost::json::value& value, std::string_view name = "items");

}  // namespace dlo::cli
