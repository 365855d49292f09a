// Configuration from TOML: every key is checked, unknown ones are errors with their line, secrets are resolved.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "dlo/config.h"
#include "dlo/result.h"

namespace dlo::app {

/// Looks up an environment variable; nullopt = not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;

/// Error invalid: the message is a list of "file:line: what is wrong and what to write instead", all that were found.
/// Warnings (a literal secret) are logged. Secrets are "env:NAME", "file:PATH" (one trailing newline is dropped) or a
/// literal. Relative paths are relative to the working folder.
Result<Config> ParseConfig(const std::string& text, const std::string& name, const Environment& environment);
Result<Config> LoadConfig(const std::string& path, const Environment& environment);

}  // namespace dlo::app
