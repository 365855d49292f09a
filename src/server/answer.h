// Answers as bytes and as problems (RFC 9457).
#pragma once

#include <string>
#include <string_view>

#include "dlo/result.h"
#include "server/http_server.h"

namespace dlo::server {

[[nodiscard]] std::string_view StatusText(int status);

/// Status line and fields, with the empty line. `date` is the value of the Date field.
[[nodiscard]] std::string FormatHead(const Response& response, std::string_view date, bool close);
/// "Sun, 06 Nov 1994 08:49:37 GMT"
[[nodiscard]] std::string HttpDate(Time now);

/// application/problem+json. `code` is for programs and stable, `detail` for people.
[[nodiscard]] Response Problem(int status, std::string_view code, std::string_view detail);
/// As Problem, with Retry-After: between 1 and 5 s, so that senders do not come back together; for a limit that passes
/// slowly between 5 and 60 s.
[[nodiscard]] Response Later(int status, std::string_view code, std::string_view detail, bool slowly = false);
/// The one place where the kind of an error becomes a status.
[[nodiscard]] Response FromError(const Error& error);
/// What the server itself answers to requests that it cannot read.
[[nodiscard]] Response Refusal(int status);

}  // namespace dlo::server
