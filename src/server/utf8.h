// Text of unknown origin on its way into JSON.
#pragma once

#include <string>
#include <string_view>

namespace dlo::server {

/// RFC 3629: no overlong forms, no surrogates, at most U+10FFFF.
[[nodiscard]] bool IsUtf8(std::string_view bytes);
/// `text` as it is if it is UTF-8; else with U+FFFD for each byte that belongs to no character.
[[nodiscard]] std::string ToUtf8(std::string_view text);

}  // namespace dlo::server
