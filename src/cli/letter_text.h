// A letter in words: its row in a table, its failure in a line, and what can be done with it next.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "cli/context.h"
#include "cli/table.h"

namespace dlo::cli {

/// On a narrow terminal without the subject, so that kind and failure can be read.
[[nodiscard]] Table LetterTable(const Context& context);
/// `letter` as the API gives it.
void AddLetter(Table& table, const boost::json::value& letter, const Context& context);
/// "state" with its class: "dead (exhausted)".
[[nodiscard]] std::string StateText(const boost::json::value& letter);
[[nodiscard]] Colour StateColour(const std::string& state);
/// "code: message", either alone, or "".
[[nodiscard]] std::string FailureText(const boost::json::value& letter);
/// The same in less room: the message, or the code where there is none.
[[nodiscard]] std::string BriefFailure(const boost::json::value& letter);
/// The commands that make sense in this state, one a line, each with its reason; empty if there is nothing to do.
[[nodiscard]] std::string NextSteps(const boost::json::value& letter);

}  // namespace dlo::cli
