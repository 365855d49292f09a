// The rules of a [[source]], for the check of a configuration at start.
#pragma once

#include <string>
#include <string_view>

#include "dlo/config.h"
#include "dlo/result.h"
#include "intake/scheme.h"

namespace dlo::intake {

inline constexpr std::size_t kMinSecretBytes = 16;  // once decoded; Standard Webhooks demands 24..64
inline constexpr std::size_t kMaxBodyCeiling = std::size_t{32} << 20;

/// What makes a secret that compiles one that a guess could find, as "is ..."; empty: nothing.
[[nodiscard]] std::string WeakSecret(const Scheme& scheme, std::string_view value);

/// The first broken rule, as `source "name": field rule`; ok otherwise. Targets and names used twice are not looked at.
[[nodiscard]] Result<void> CheckSource(const SourceConfig& source);

}  // namespace dlo::intake
