// One act on several letters: each is tried, and the exit code says whether all, some or none worked.
#pragma once

#include <boost/json.hpp>
#include <functional>
#include <string>
#include <vector>

#include "cli/context.h"

namespace dlo::cli {

/// POST /v1/dead-letters/{id}/{act} for each id; prints "id: said(answer)" for each that worked.
int ActOnEach(Context& context, const std::vector<std::string>& id_texts, const std::string& act,
              const boost::json::object& body, const std::function<std::string(const boost::json::value&)>& said);

}  // namespace dlo::cli
