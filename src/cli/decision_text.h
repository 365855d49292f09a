// Notes and revisions as people read them.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "cli/table.h"

namespace dlo::cli {

/// Each with who and when, oldest first: as a conversation is read.
[[nodiscard]] std::string NotesText(const boost::json::array& newest_first);
[[nodiscard]] Table RevisionTable(const boost::json::array& newest_first);

}  // namespace dlo::cli
