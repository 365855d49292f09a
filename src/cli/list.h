// The tables of `dlo list` and `dlo groups`, for commands that end by showing them.
#pragma once

#include "cli/context.h"

namespace dlo::cli {

/// The newest `limit` dead letters of a source. Returns an Exit.
int ShowDeadLetters(Context& context, const std::string& source, int limit);
int ShowGroups(Context& context, const std::string& source);

}  // namespace dlo::cli
