// Where the chains of the audit log and of the journal stand. Whoever kept one outside of the store can show later what
// was there up to it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dlo/time.h"

namespace dlo::store {

struct EvidenceHead {
  std::int64_t seq = 0;            // of the newest audit record; 0 = none yet
  std::string hash;                // its hash, hex
  Time at{};                       // when this was read
  std::int64_t segment = 0;        // newest closed segment of the journal; 0 = none yet
  std::int64_t segment_bytes = 0;  // of them used
  std::string segment_sha256;      // over those bytes, hex
};

/// One line: {"seq":…,"hash":…,"at":…,"journal":{"segment":…,"bytes":…,"sha256":…}}, `journal` null before its first
/// segment is closed.
[[nodiscard]] std::string HeadToJson(const EvidenceHead& head);
/// nullopt for anything else than such a line.
[[nodiscard]] std::optional<EvidenceHead> HeadFromJson(std::string_view line);

}  // namespace dlo::store
