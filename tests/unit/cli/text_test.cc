#include "cli/text.h"

#include <gtest/gtest.h>

#include "cli/table.h"

namespace dlo::cli {
namespace {

TEST(EscapeLine, ShowsWhatWouldDriveTheTerminal) {
  struct Row {
    std::string text, shown;
  };
  const Row rows[] = {
      {"plain é 漢 🙂", "plain é 漢 🙂"},
      {"\x1b[2J\x1b]0;title\x07", "\\x1b[2J\\x1b]0;title\\x07"},
      {"a\nb\tc\rd", "a\\nb\\tc\\rd"},
      {std::string("nul\0end", 7), "nul\\x00end"},
      {"\x7f", "\\x7f"},
      {"\xc2\x9b"
       "31m",
       "\\u009b31m"},  // CSI as one C1 character
      {"\xe2\x80\xae"
       "gnp.exe",
       "\\u202egnp.exe"},                              // right-to-left override
      {"\xe2\x81\xa6\xe2\x81\xa9", "\\u2066\\u2069"},  // isolates
      {"zero\xe2\x80\x8bwidth", "zero\\u200bwidth"},
      {"\xe2\x80\xa8line", "\\u2028line"},
      {"\xf3\xa0\x81\x81", "\\ue0041"},     // tag character
      {"\xff\xfe", "\\xff\\xfe"},           // not UTF-8
      {"\xc0\xaf", "\\xc0\\xaf"},           // overlong
      {"\xed\xa0\x80", "\\xed\\xa0\\x80"},  // surrogate
      {"cut\xe6\xbc", "cut\\xe6\\xbc"},     // ends within a character
      {"", ""},
  };
  for (const Row& row : rows) EXPECT_EQ(EscapeLine(row.text), row.shown);
}

TEST(EscapeBlock, KeepsLinesAndTabsOnly) {
  EXPECT_EQ(EscapeBlock("a\n\tb\x1b[m"), "a\n\tb\\x1b[m");
}

TEST(DisplayWidth, CountsColumnsNotBytes) {
  EXPECT_EQ(DisplayWidth("abc"), 3);
  EXPECT_EQ(DisplayWidth("é"), 1);
  EXPECT_EQ(DisplayWidth("e\xcc\x81"), 1);  // combining acute
  EXPECT_EQ(DisplayWidth("漢字"), 4);
  EXPECT_EQ(DisplayWidth("🙂"), 2);
}

TEST(Shorten, CutsAtAColumnAndSaysSo) {
  struct Row {
    std::string text;
    int width;
    std::string shown;
  };
  const Row rows[] = {{"abcdef", 7, "abcdef"}, {"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"abcdef", 1, "…"},
                      {"abcdef", 0, ""},       {"漢字漢", 5, "漢字…"},  {"漢字漢", 4, "漢…"}};
  for (const Row& row : rows) EXPECT_EQ(Shorten(row.text, row.width), row.shown) << row.text << " " << row.width;
}

TEST(PrettyJson, KeepsEveryDigitAndEscape) {
  EXPECT_EQ(PrettyJson(R"({"amount":1.10000000000000000001e5,"s":"a, \"b\": {\u00e9}","e":[],"o":{ },"l":[1,2]})"),
            "{\n  \"amount\": 1.10000000000000000001e5,\n  \"s\": \"a, \\\"b\\\": {\\u00e9}\",\n  \"e\": [],\n"
            "  \"o\": {},\n  \"l\": [\n    1,\n    2\n  ]\n}");
  EXPECT_EQ(PrettyJson("12345678901234567890.10"), "12345678901234567890.10");
  EXPECT_EQ(PrettyJson("{not json"), "{not json");
  EXPECT_EQ(PrettyJson(""), "");
}

TEST(ShellWord, CanBePasted) {
  EXPECT_EQ(ShellWord("sub_1Q.x"), "sub_1Q.x");
  EXPECT_EQ(ShellWord("x'; rm -rf ~; '"), R"('x'\''; rm -rf ~; '\''')");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("$(id)"), "'$(id)'");
}

Table Sample() {
  Table table({{"ID", true}, {"STATE"}, {"MESSAGE", false, true}});
  table.Add({"7", {"dead", Colour::red}, "No such customer: 'cus_1234567890'"});
  table.Add({"1234", {"held", Colour::yellow}, "short"});
  return table;
}

TEST(Table, TakesItsWholeWidthInAPipeAndNoColour) {
  EXPECT_EQ(Sample().Render({}),
            "  ID  STATE  MESSAGE\n"
            "   7  dead   No such customer: 'cus_1234567890'\n"
            "1234  held   short\n");
}

TEST(Table, ShortensTheWidestTextColumnToFit) {
  for (int width : {47, 46, 40, 20}) {
    std::string text = Sample().Render({.width = width, .colour = false});
    for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
      EXPECT_LE(DisplayWidth(text.substr(at, end - at)), width) << text;
    }
    EXPECT_NE(text.find("1234  held"), std::string::npos) << text;
  }
  EXPECT_EQ(Sample().Render({.width = 47, .colour = false}).find("…"), std::string::npos);
  EXPECT_NE(Sample().Render({.width = 46, .colour = false}).find("…"), std::string::npos);
}

TEST(Table, SharesShortRoomByWeight) {
  Table table({{"KIND", false, true}, {"MESSAGE", false, true, 2}});
  table.Add({std::string(60, 'k'), std::string(60, 'm')});
  std::string text = table.Render({.width = 32, .colour = false});
  EXPECT_NE(text.find(std::string(9, 'k') + "…  " + std::string(19, 'm') + "…\n"), std::string::npos) << text;
}

TEST(Table, NeverWrapsHoweverNarrow) {
  std::string text = Sample().Render({.width = 9, .colour = false});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  for (std::size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    EXPECT_LE(DisplayWidth(text.substr(at, end - at)), 9);
  }
}

TEST(Table, KeepsHostileTextInItsCell) {
  Table table({{"A", false, true}, {"B"}});
  table.Add({"x\nFORGED ROW\x1b[1A", "漢"});
  EXPECT_EQ(table.Render({}), "A                     B\nx\\nFORGED ROW\\x1b[1A  漢\n");
}

TEST(Table, PaintsAfterMeasuring) {
  std::string text = Sample().Render({.width = 80, .colour = true});
  EXPECT_NE(text.find("\x1b[31mdead\x1b[0m   No such"), std::string::npos) << text;
  EXPECT_EQ(Paint("x", Colour::red, {}), "x");
}

}  // namespace
}  // namespace dlo::cli
