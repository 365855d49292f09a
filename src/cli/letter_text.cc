#include "cli/letter_text.h"

#include <fmt/format.h>

#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {

Table LetterTable() {
  return Table({{"ID", true},
                {"AGE", true},
                {"STATE"},
                {"CLASS"},
                {"SOURCE", false, true},
                {"KIND", false, true},
                {"SUBJECT", false, true},
                {"TRIES", true},
                {"FAILURE", false, true}});
}

void AddLetter(Table& table, const boost::json::value& letter, const Context& context) {
  std::string state = Text(letter, "state");
  std::optional<Time> parked = When(letter, "parked_at");
  table.Add({Text(letter, "id"),
             context.Ago(parked ? parked : When(letter, "received_at")),
             {state, StateColour(state)},
             Text(letter, "class") == "none" ? "" : Text(letter, "class"),
             Text(letter, "source"),
             Text(letter, "kind"),
             Text(letter, "subject"),
             Text(letter, "attempt_number"),
             FailureText(letter)});
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
