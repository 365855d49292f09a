#include "cli/letter_text.h"

#include <fmt/format.h>

#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {

Table LetterTable(const Context& context) {
  std::vector<Column> columns = {{"ID", true}, {"AGE", true}, {"STATE"}, {"CLASS"}, {"SOURCE", false, true}};
  columns.push_back({"KIND", false, true, 2});
  if (!context.Narrow()) columns.push_back({"SUBJECT", false, true});
  columns.push_back({"TRIES", true});
  columns.push_back({"FAILURE", false, true, 3});
  return Table(std::move(columns));
}

void AddLetter(Table& table, const boost::json::value& letter, const Context& context) {
  std::string state = Text(letter, "state"), failure_class = Text(letter, "class");
  std::optional<Time> parked = When(letter, "parked_at");
  std::vector<Cell> row = {Text(letter, "id"),          context.Ago(parked ? parked : When(letter, "received_at")),
                           {state, StateColour(state)}, failure_class == "none" ? "" : failure_class,
                           Text(letter, "source"),      Text(letter, "kind")};
  if (!context.Narrow()) row.push_back(Text(letter, "subject"));
  row.push_back(Text(letter, "attempt_number"));
  row.push_back(context.Narrow() ? BriefFailure(letter) : FailureText(letter));
  table.Add(std::move(row));
}

std::string StateText(const boost::json::value& letter) {
  std::string failure_class = Text(letter, "class");
  return Text(letter, "state") +
         (failure_class.empty() || failure_class == "none" ? "" : fmt::format(" ({})", failure_class));
}

Colour StateColour(const std::string& state) {
  if (state == "dead") return Colour::red;
  if (state == "held" || state == "waiting" || state == "running") return Colour::yellow;
  return Colour::green;
}

std::string FailureText(const boost::json::value& letter) {
  std::string code = Text(letter, "code"), message = Text(letter, "message");
  if (code.empty() || message.empty()) return code + message;
  return code + ": " + message;
}

std::string BriefFailure(const boost::json::value& letter) {
  std::string message = Text(letter, "message");
  return message.empty() ? Text(letter, "code") : message;
}

std::string NextSteps(const boost::json::value& letter) {
  std::string state = Text(letter, "state"), failure_class = Text(letter, "class"), id = Text(letter, "id");
  std::string replay = fmt::format("dlo replay {}    hand it to the handler again, with the whole retry budget\n", id);
  std::string hold = fmt::format("dlo hold {} --link URL    keep it until a fix is out\n", id);
  std::string resolve = fmt::format("dlo resolve {} --code CODE --reason TEXT    it needs no effect\n", id);
  if (state == "dead" && failure_class == "conflict") {
    return fmt::format("dlo show {}    the first event of this key, to compare\n", Text(letter, "conflict_of")) +
           resolve + replay;
  }
  if (state == "dead" && (failure_class == "invalid" || failure_class == "corrupt")) return resolve + hold + replay;
  if (state == "dead") return replay + hold + resolve;
  if (state == "held") return fmt::format("dlo release {}    back to the dead letters\n", id) + replay + resolve;
  if (state == "resolved") return fmt::format("dlo reopen {}    if it was resolved by mistake\n", id);
  if (state == "waiting" && Flag(letter, "behind")) {
    return fmt::format("dlo list --subject {}    it waits behind an earlier event of this subject\n",
                       ShellWord(Text(letter, "subject")));
  }
  return {};
}

}  // namespace dlo::cli
