// A stable name for a cause of failure: the same for events that failed the same way, whatever their ids, amounts and
// times. Groups, the systemic breaker and standing decisions all read it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dlo/states.h"

namespace dlo {

/// Replaces what differs between two failures of one cause: numbers, hex runs, uuids, quoted text, provider ids
/// ("sub_1Nxyz"), e-mail addresses, times. At most 200 bytes, valid UTF-8. "No such subscription: sub_1N" and
/// "... sub_2M" give one text.
[[nodiscard]] std::string NormaliseMessage(std::string_view message);

/// 16 hex digits: 64 bits of SHA-256 over class, code, normalised message and kind. Retryable failures that have not
/// yet exhausted their budget use class `exhausted`, so that a letter keeps its fingerprint when it dies.
[[nodiscard]] std::string Fingerprint(FailureClass failure_class, std::string_view code, std::string_view message,
                                      std::string_view kind);

/// 16 hex digits as the number that the index keeps; nullopt for anything else.
[[nodiscard]] std::optional<std::int64_t> FingerprintNumber(std::string_view hex);

}  // namespace dlo
