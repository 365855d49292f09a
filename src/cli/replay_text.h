// A replay in words.
#pragma once

#include <boost/json/value.hpp>
#include <string>

namespace dlo::cli {

/// "replay 5: 40 of 100 handed over, 30 committed, 2 dead again, 0 skipped, 68 remaining", with rate and estimated end
/// while it goes on.
[[nodiscard]] std::string ProgressLine(const boost::json::value& progress);
/// done or cancelled
[[nodiscard]] bool Finished(const boost::json::value& progress);
/// paused or stopped: it waits for a person.
[[nodiscard]] bool Halted(const boost::json::value& progress);

}  // namespace dlo::cli
