#include "cli/decision_text.h"

#include <fmt/format.h>

#include <ranges>

#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {

std::string NotesText(const boost::json::array& newest_first) {
  std::string text;
  for (const boost::json::value& note : std::views::reverse(newest_first)) {
    std::string said = EscapeBlock(Text(note, "text"));
    for (std::size_t at = 0; (at = said.find('\n', at)) != std::string::npos; at += 3) said.replace(at, 1, "\n  ");
    text += fmt::format("{} {}\n  {}\n", Text(note, "at"), EscapeLine(Text(note, "actor")), said);
  }
  return text;
}

Table RevisionTable(const boost::json::array& newest_first) {
  Table table({{"#", true}, {"WHEN"}, {"WHO"}, {"BYTES", true}, {"SHA-256", false, true}, {"REASON", false, true}});
  for (const boost::json::value& revision : newest_first) {
    const bool original = Flag(revision, "original");
    table.Add({Text(revision, "number"), Text(revision, "at"), Text(revision, "actor"),
               original ? "original" : Text(revision, "body_bytes"), Text(revision, "body_sha256"),
               Text(revision, "reason")});
  }
  return table;
}

}  // namespace dlo::cli
