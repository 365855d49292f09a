// What the API shows: the words of include/dlo/letters.h in snake_case, times in RFC 3339, ids as numbers.
#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <string_view>

#include "dlo/dead_letters.h"
#include "store/access.h"
#include "store/figures.h"
#include "store/quarantine.h"

namespace dlo::server {

[[nodiscard]] std::string_view Name(OutcomeKind kind);

[[nodiscard]] boost::json::object View(const Letter& letter);
/// The letter's fields, and `timeline`: its attempts, newest first. (`attempts` is the count of live tries everywhere.)
[[nodiscard]] boost::json::object View(const LetterDetail& detail, std::string_view signature_header);
[[nodiscard]] boost::json::object View(const Attempt& attempt);
[[nodiscard]] boost::json::object View(const AuditRecord& record);
[[nodiscard]] boost::json::object View(const Group& group);
[[nodiscard]] boost::json::object View(const ReplayPlan& plan);
[[nodiscard]] boost::json::object View(const ReplayItem& item);
boost::json::object View(const ReplayProgress& progress);
[[nodiscard]] boost::json::object View(const store::Token& token);  // without the hash
[[nodiscard]] boost::json::object View(const store::Rejected& rejected, std::string_view signature_header);

/// [{"name","value"}], with "[redacted]" for what may let somebody in: Authorization, Proxy-Authorization, Cookie,
/// Set-Cookie, any name with "signature", "secret", "token", "password", "api-key", "apikey" or "hmac" in it, and
/// `signature_header`, the one that the source's scheme is configured with (empty = none).
[[nodiscard]] boost::json::array ViewHeaders(const std::vector<Header>& headers, std::string_view signature_header);
[[nodiscard]] bool IsSecretHeader(std::string_view name);

template <typename T>
[[nodiscard]] boost::json::array ViewAll(const std::vector<T>& items) {
  boost::json::array out;
  out.reserve(items.size());
  for (const T& item : items) out.push_back(View(item));
  return out;
}

}  // namespace dlo::server
