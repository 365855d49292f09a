#include "deadletter/checks.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/time_text.h"

namespace dlo::deadletter {

std::unexpected<Error> Invalid(std::string code, std::string message) {
  return Fail(ErrorKind::invalid, std::move(code), std::move(message));
}

std::size_t Length(std::string_view utf8) {
  return static_cast<std::size_t>(
      std::ranges::count_if(utf8, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

bool Blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Result<void> Check(const Actor& actor) {
  if (Blank(actor.name)) return Invalid("no_actor", "An act needs the name of who acts, for the audit log.");
  if (Length(actor.reason) > kMaxReason) {
    return Invalid("reason_too_long",
                   fmt::format("The reason is longer than {} characters; put the rest behind a link.", kMaxReason));
  }
  return {};
}

Result<void> CheckId(EventId id) {
  if (id < 1) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", id));
  return {};
}

Result<void> CheckLimit(int limit) {
  if (limit < 1 || limit > kMaxPage) {
    return Invalid("bad_limit", fmt::format("limit is {}; it must be from 1 to {}.", limit, kMaxPage));
  }
  return {};
}

Result<void> CheckHold(const HoldRequest& request, Time now) {
  if (Blank(request.link)) {
    return Invalid("link_missing", "A hold needs `link`: the issue whose fix this letter waits for.");
  }
  if (Length(request.link) > kMaxLink || Length(request.owner) > kMaxName ||
      Length(request.wake_on_handler) > kMaxName) {
    return Invalid("hold_too_long",
                   fmt::format("link takes at most {} characters, owner and wake_on_handler {}.", kMaxLink, kMaxName));
  }
  if (request.until && *request.until <= now) {
    return Invalid("until_past", "`until` is " + FormatTime(*request.until) + ", which is over already.");
  }
  return {};
}

}  // namespace dlo::deadletter
