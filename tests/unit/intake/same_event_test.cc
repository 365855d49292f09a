#include "intake/same_event.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "intake/same_event_rules.h"

namespace dlo::intake {
namespace {

struct Row {
  const char* what;
  std::string first, second;
  bool same;
};

void CheckRows(const std::vector<std::string>& volatile_fields, const std::vector<Row>& rows) {
  std::vector<JsonPath> paths;
  for (const auto& text : volatile_fields) paths.push_back(OrThrow(ParsePointer(text)));
  for (const auto& row : rows) {
    EXPECT_EQ(SameEvent(paths, row.first, row.second), row.same) << row.what;
    EXPECT_EQ(SameEvent(paths, row.second, row.first), row.same) << row.what << ", the other way round";
  }
}

TEST(SameEvent, ComparesValuesNotSpelling) {
  const std::string deep = std::string(64, '[') + std::string(64, ']'),
                    deeper = std::string(65, '[') + std::string(65, ']');
  CheckRows({}, {
                    {"equal bytes", "x", "x", true},
                    {"both empty", "", "", true},
                    {"one empty", "", "{}", false},
                    {"not JSON", "x", "y", false},
                    {"one JSON", "{}", "{", false},
                    {"white space", R"({"a":[1,2]})", "{ \"a\" :\n[1, 2]\t} ", true},
                    {"byte order mark", "{}", "\xEF\xBB\xBF{}", true},
                    {"order of keys", R"({"a":1,"b":2})", R"({"b":2,"a":1})", false},
                    {"repeated key", R"({"a":1,"a":2})", R"({"a":2})", false},
                    {"escape", R"({"a":"\u00e9\/"})", "{\"a\":\"\xc3\xa9/\"}", true},
                    {"escaped key", R"({"\u0061":1})", R"({"a":1})", true},
                    {"value", R"({"a":"x"})", R"({"a":"y"})", false},
                    {"text and number", R"({"a":"1"})", R"({"a":1})", false},
                    {"text and null", R"({"a":"null"})", R"({"a":null})", false},
                    {"true and false", "[true]", "[false]", false},
                    {"array and object", "[]", "{}", false},
                    {"nesting", "[[1],2]", "[[1,2]]", false},
                    {"empty and absent", R"({"a":{}})", "{}", false},
                    {"text that looks like structure", R"(["s1:a"])", R"([["a"]])", false},
                    {"lengths shifted", R"(["ab","c"])", R"(["a","bc"])", false},
                    {"64 deep", deep, deep + " ", true},
                    {"65 deep is bytes", deeper, deeper + " ", false},
                });
}

TEST(SameEvent, NumbersKeepEveryDigit) {
  CheckRows({}, {
                    {"equal", "[1.10]", "[ 1.10 ]", true},
                    {"trailing zero", "[1.1]", "[1.10]", false},
                    {"whole", "[1]", "[1.0]", false},
                    {"exponent", "[100]", "[1e2]", false},
                    {"minus zero", "[0]", "[-0]", false},
                    {"past a double's precision", "[9007199254740993]", "[9007199254740992]", false},
                    {"past 64 bits", "[18446744073709551616]", "[18446744073709551617]", false},
                    {"many digits", "[0.1000000000000000055511151231257827]", "[0.1]", false},
                    {"40 digits equal", "[1234567890123456789012345678901234567890]",
                     "[ 1234567890123456789012345678901234567890]", true},
                    {"large exponent", "[1e300]", "[1E300]", false},
                });
}

TEST(SameEvent, VolatileFieldsDoNotCount) {
  CheckRows(
      {"/pending_webhooks", "/attempt", "/list/1", "/a~1b/c"},
      {
          {"changed", R"({"id":"e","pending_webhooks":2})", R"({"id":"e","pending_webhooks":1})", true},
          {"other kind", R"({"id":"e","pending_webhooks":2})", R"({"id":"e","pending_webhooks":{"x":[1,{}]}})", true},
          {"absent", R"({"id":"e","pending_webhooks":2})", R"({"id":"e"})", true},
          {"in front", R"({"attempt":{"n":[1,2,{"a":3}]},"id":"e"})", R"({"attempt":[],"id":"e"})", true},
          {"nothing else is skipped", R"({"attempt":[[1]],"id":"e"})", R"({"attempt":[[1]],"id":"f"})", false},
          {"same name deeper counts", R"({"data":{"attempt":1}})", R"({"data":{"attempt":2}})", false},
          {"element", R"({"list":[1,2,3]})", R"({"list":[1,9,3]})", true},
          {"other element", R"({"list":[1,2,3]})", R"({"list":[1,2,9]})", false},
          {"length", R"({"list":[1,2,3]})", R"({"list":[1,2]})", false},
          {"escaped pointer", R"({"a/b":{"c":1}})", R"({"a/b":{"c":2}})", true},
          {"beside it", R"({"a/b":{"c":1,"d":1}})", R"({"a/b":{"c":2,"d":2}})", false},
          {"text", R"({"attempt":"a","id":1})", R"({"attempt":"b","id":1})", true},
      });
}

TEST(SameEventRules, KnowEachSourcesVolatileFields) {
  SourceConfig stripe, open;
  stripe.name = "stripe";
  stripe.scheme = "stripe";
  open.name = "open";
  open.scheme = "none";
  const std::vector<SourceConfig> sources = {stripe, open};
  const SameEventRules rules(sources);
  const std::string first = R"({"id":"e","pending_webhooks":1})", second = R"({"id":"e","pending_webhooks":0})";
  EXPECT_TRUE(rules.SameEvent("stripe", first, second));
  EXPECT_FALSE(rules.SameEvent("open", first, second));
  EXPECT_FALSE(rules.SameEvent("nobody", first, second));
  EXPECT_TRUE(rules.SameEvent("nobody", first, first));
}

}  // namespace
}  // namespace dlo::intake
