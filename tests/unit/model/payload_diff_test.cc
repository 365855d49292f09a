#include "model/payload_diff.h"

#include <gtest/gtest.h>

namespace dlo {
namespace {

std::string Told(const PayloadDiff& diff) {
  std::string told = diff.kind;
  for (const PathChange& c : diff.changes) {
    told += " | " + c.path +
            (c.added     ? " +" + c.after
             : c.removed ? " -" + c.before
                         : " " + c.before + " -> " + c.after);
  }
  return told;
}

TEST(PayloadDiff, TellsWhatDiffersWhere) {
  const struct {
    const char *before, *after, *told;
  } rows[] = {
      {R"({"a":1,"b":[1,2]})", R"({ "b":[1,3], "a":1 })", "json | /b/1 2 -> 3"},
      {R"({"a":1})", R"({"a":1,"c":{"d":null}})", "json | /c/d +null"},
      {R"({"a":{"x":1}})", R"({"a":{}})", "json | /a +{} | /a/x -1"},
      {R"({"n":1.0})", R"({"n":1.00})", "json | /n 1.0 -> 1.00"},  // digits are what a bill is made of
      {R"({"n":12345678901234567890.1})", R"({"n":12345678901234567890.2})",
       "json | /n 12345678901234567890.1 -> 12345678901234567890.2"},
      {R"({"a/b~":"x"})", R"({"a\/b~":"y"})", R"(json | /a~1b~0 "x" -> "y")"},
      {R"({"a":"say \"hi\" ]}"})", R"({"a":"say \"hi\" ]}!"})", R"(json | /a "say \"hi\" ]}" -> "say \"hi\" ]}!")"},
      {"7", "8", "json |  7 -> 8"},
      {"[]", "[]", "json"},
      {R"({"a":1})", R"({ "a" : 1 })", "json"},
      {"one\ntwo\nthree", "one\n2\nthree", "text | line 2 two -> 2"},
      {"one\ntwo", "one\nand\ntwo", "text | line 2 +and"},
      {"one\n", "one", "text | end -"},
      {R"({"a":1)", R"({"a":1})", R"(text | line 1 {"a":1 -> {"a":1})"},
      {"", "x", "text | line 1 +x"},
      {"", "", "text"},
  };
  for (const auto& row : rows) EXPECT_EQ(Told(DiffPayloads(row.before, row.after)), row.told) << row.before;
  EXPECT_EQ(Told(DiffPayloads({"a\0b", 3}, {"a\0cd", 4})), "binary | byte 2 3 bytes -> 4 bytes");
}

TEST(PayloadDiff, IsBoundedAndCleanWhateverComes) {
  std::string before = "[", after = "[";
  for (int i = 0; i < 2'000; ++i) {
    before += (i > 0 ? "," : "") + std::to_string(i);
    after += (i > 0 ? "," : "") + std::to_string(i + 1);
  }
  const PayloadDiff many = DiffPayloads(before + "]", after + "]");
  EXPECT_EQ(many.changes.size(), kMaxChanges);
  EXPECT_TRUE(many.cut);
  const PayloadDiff large = DiffPayloads("\"" + std::string(1 << 20, 'x') + "\"", "1");
  EXPECT_LE(large.changes[0].before.size(), kShownBytes + 4);
  // Nested deeper than a reader of JSON goes: then it is text.
  EXPECT_EQ(DiffPayloads(std::string(100'000, '['), "1").kind, "text");
  EXPECT_EQ(DiffPayloads("a\x1b[2J", "b").changes[0].before.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace dlo
