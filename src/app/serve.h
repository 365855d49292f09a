// `dlo serve` and `dlo config check`.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "app/config_file.h"
#include "dlo/time.h"

namespace dlo::app {

/// Serves until `wait` says that the process was asked to stop. Returns the exit code: 0 after a clean stop, 1 when it
/// could not start (the reason is on stderr) or its store failed for good (a restart recovers).
int Serve(const std::string& config_path, const Environment& environment, const std::function<bool(Duration)>& wait);

/// Prints what is wrong, all of it, or a summary. Returns 0 or 1.
int CheckConfig(const std::string& config_path, const Environment& environment, std::ostream& out);

}  // namespace dlo::app
