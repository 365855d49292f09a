// Text from outside made fit for a terminal. What senders and handlers write (keys, subjects, messages) is hostile
// until shown otherwise: it must not move the cursor, hide text, turn its direction or break a table's lines.
#pragma once

#include <string>
#include <string_view>

namespace dlo::cli {

/// One line of visible characters: controls, escapes, bidirectional and invisible characters and bytes that are not
/// UTF-8 come out as visible escapes ("\n", "\x1b", "\u202e").
[[nodiscard]] std::string EscapeLine(std::string_view text);
/// As EscapeLine, but newlines and tabs stay: for bodies on a terminal.
[[nodiscard]] std::string EscapeBlock(std::string_view text);
/// Columns that escaped text takes on a terminal: wide characters take 2, combining marks 0.
[[nodiscard]] int DisplayWidth(std::string_view text);
/// At most `width` columns; a cut text ends in "…".
[[nodiscard]] std::string Shorten(std::string_view text, int width);
/// One word of a shell command that people may copy: as it is where that is safe, else quoted. Never paste text from
/// outside into a command without it.
[[nodiscard]] std::string ShellWord(std::string_view text);
/// JSON with line breaks and two spaces a level; every token keeps its own bytes, so no digit of a number changes. Text
/// that is not JSON (or nested deeper than 32) comes back as it is.
[[nodiscard]] std::string PrettyJson(std::string_view text);

}  // namespace dlo::cli
