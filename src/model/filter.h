// A Filter as JSON: what audit records and replays keep of a selection, and what the API is sent. Words are those of
// the API: type, source, subject, account, class, state, since, until, livemode, fingerprint, q, ids, overdue,
// not_judged_by.
#pragma once

#include <string>
#include <string_view>

#include "dlo/letters.h"
#include "dlo/result.h"

namespace dlo {

/// Canonical: one text for one meaning. Words in a fixed order, unset ones left out, lists sorted without repeats.
[[nodiscard]] std::string FilterToJson(const Filter& filter);

/// A word may hold one value or a list of them. A date as `until` includes that day. Error invalid, "bad_filter",
/// naming the word and what it takes; unknown words are an error too, so that a misspelt one never widens a selection.
[[nodiscard]] Result<Filter> FilterFromJson(std::string_view json);

}  // namespace dlo
