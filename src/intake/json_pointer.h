// JSON pointers (RFC 6901), compiled: a path of unescaped names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "dlo/result.h"

namespace dlo::intake {

/// Bodies nested deeper than this are not read as JSON.
inline constexpr std::size_t kMaxJsonDepth = 64;

using JsonPath = std::vector<std::string>;

/// "/a/b~1c/0" -> {"a", "b/c", "0"}. Error invalid when it does not begin with '/', or a '~' is not ~0 or ~1.
Result<JsonPath> ParsePointer(std::string_view text);

/// A UTF-8 byte order mark is not part of the JSON text that follows it.
[[nodiscard]] std::string_view WithoutByteOrderMark(std::string_view body);

}  // namespace dlo::intake
