// What differs between two payloads, for people. JSON is compared by path, on the very tokens that were sent: 1.0 and
// 1.00 differ, and no digit goes through a binary number. Anything else is compared by lines, or by bytes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dlo {

struct PathChange {
  std::string path;           // JSON pointer; of a text, "line 7"
  std::string before, after;  // as they were sent, cut to kShownBytes; empty where there is nothing
  bool added = false, removed = false;
};

struct PayloadDiff {
  std::string kind;  // json | text | binary
  std::vector<PathChange> changes;
  bool cut = false;  // there are more changes than kMaxChanges
};

inline constexpr std::size_t kMaxChanges = 500;
inline constexpr std::size_t kShownBytes = 1'000;

[[nodiscard]] PayloadDiff DiffPayloads(std::string_view before, std::string_view after);

}  // namespace dlo
