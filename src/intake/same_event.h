// Two deliveries of one key: the same event sent again, or two events that claim one key?
#pragma once

#include <span>
#include <string_view>

#include "intake/json_pointer.h"

namespace dlo::intake {

/// True for equal bytes, and for two JSON texts that differ only in white space, in how a string is escaped, and in
/// what is at `volatile_fields` (present or not). The order of keys, repeated keys and the digits of numbers
/// count: 1.0, 1 and 1e0 differ. A body that is not JSON, or nested deeper than 64, is compared byte for byte.
[[nodiscard]] bool SameEvent(std::span<const JsonPath> volatile_fields, std::string_view first,
                             std::string_view second);

}  // namespace dlo::intake
