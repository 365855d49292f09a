#include "server/request_words.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/time_text.h"
#include "model/filter.h"
#include "server/utf8.h"

namespace dlo::server {
namespace {

TEST(Query, FilterWordsBecomeAFilter) {
  const struct {
    std::string query, filter;  // filter: canonical JSON, or the code of the error
  } rows[] = {
      {"", "{}"},
      {"type=a", R"({"type":["a"]})"},
      {"type=b&type=a&type=a", R"({"type":["a","b"]})"},
      {"source=s&source=t", R"({"source":["s","t"]})"},
      {"subject=sub_1&account=acct_1", R"({"subject":["sub_1"],"account":["acct_1"]})"},
      {"class=exhausted&class=permanent", R"({"class":["exhausted","permanent"]})"},
      {"state=held", R"({"state":["held"]})"},
      {"since=2026-11-30", R"({"since":"2026-11-30T00:00:00Z"})"},
      {"until=2026-11-30", R"({"until":"2026-12-01T00:00:00Z"})"},
      {"until=2026-11-30T00:00:00Z", R"({"until":"2026-11-30T00:00:00Z"})"},
      {"since=2026-11-30T10:00:00%2B01:00", R"({"since":"2026-11-30T09:00:00Z"})"},
      {"since=2026-11-30T10:00:00+01:00", R"({"since":"2026-11-30T09:00:00Z"})"},
      {"livemode=true", R"({"livemode":true})"},
      {"livemode=false", R"({"livemode":false})"},
      {"fingerprint=0123456789abcdef", R"({"fingerprint":"0123456789abcdef"})"},
      {"overdue=true", R"({"overdue":true})"},
      {"overdue=false", R"({})"},
      {"not_judged_by=8", R"({"not_judged_by":"8"})"},
      {"q=no+such%20sub", R"({"q":"no such sub"})"},
      {"q=%E2%82%AC", "{\"q\":\"\xE2\x82\xAC\"}"},
      {"ids=7&ids=3", R"({"ids":[3,7]})"},
      {"&&type=a&", R"({"type":["a"]})"},
      {"class=broken", "bad_filter"},
      {"state=gone", "bad_filter"},
      {"since=yesterday", "bad_filter"},
      {"since=2026-13-01", "bad_filter"},
      {"livemode=yes", "bad_query"},
      {"q=a&q=b", "bad_query"},
      {"since=2026-01-01&since=2026-01-02", "bad_query"},
      {"ids=x", "bad_filter"},
      {"q=%", "bad_query"},
      {"q=%4", "bad_query"},
      {"q=%zz", "bad_query"},
      {"q=%ff", "bad_query"},
      {"kind=a", "unknown_word"},
      {"types=a", "unknown_word"},
      {"Type=a", "unknown_word"},
      {"limit=5", "unknown_word"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.query);
    auto query = Query::Parse(row.query);
    if (!query) {
      EXPECT_EQ(query.error().code, row.filter);
      continue;
    }
    const auto filter = query->TakeFilter();
    if (!filter) {
      EXPECT_EQ(filter.error().code, row.filter) << filter.error().message;
      continue;
    }
    const auto finished = query->Finish();
    EXPECT_EQ(finished ? FilterToJson(*filter) : finished.error().code, row.filter);
  }
}

TEST(Query, NumbersHaveBounds) {
  const struct {
    std::string query;
    std::int64_t number;  // 0 = refused
  } rows[] = {{"", 50},        {"limit=1", 1}, {"limit=500", 500}, {"limit=0", 0},  {"limit=501", 0},
              {"limit=-1", 0}, {"limit=", 0},  {"limit=5x", 0},    {"limit=+5", 0}, {"limit=99999999999999999999", 0}};
  for (const auto& row : rows) {
    auto query = Query::Parse(row.query);
    ASSERT_TRUE(query);
    EXPECT_EQ(query->Number("limit", 50, 1, 500).value_or(0), row.number) << row.query;
  }
}

TEST(Fields, ReadsEachKindAndNamesTheFirstMistake) {
  const auto read = [](std::string_view text) -> std::string {
    const boost::json::value json = boost::json::parse(text);
    Fields fields(json.as_object());
    (void)fields.Text("text");
    (void)fields.Number("number", 1);
    (void)fields.Decimal("decimal");
    (void)fields.Flag("flag");
    (void)fields.Moment("moment");
    (void)fields.Length("length", Duration(1));
    const auto finished = fields.Finish();
    return finished ? "ok" : finished.error().code + " " + finished.error().message;
  };
  EXPECT_EQ(read("{}"), "ok");
  EXPECT_EQ(read(R"({"text":"a","number":2,"decimal":0.5,"flag":true,"moment":"2026-11-30","length":"30s"})"), "ok");
  EXPECT_EQ(read(R"({"text":null,"number":null,"decimal":null,"flag":null,"moment":null,"length":null})"), "ok");
  EXPECT_EQ(read(R"({"text":1})"), "bad_field The field \"text\" takes a text.");
  EXPECT_EQ(read(R"({"number":1.5})"), "bad_field The field \"number\" takes a whole number.");
  EXPECT_EQ(read(R"({"number":"1"})"), "bad_field The field \"number\" takes a whole number.");
  EXPECT_EQ(read(R"({"flag":1})"), "bad_field The field \"flag\" takes true or false.");
  EXPECT_EQ(read(R"({"moment":"soon"})").substr(0, 9), "bad_field");
  EXPECT_EQ(read(R"({"length":"30"})").substr(0, 9), "bad_field");
  EXPECT_EQ(read(R"({"txet":"a","x":1})"), "unknown_field Unknown fields: \"txet\", \"x\".");
}

TEST(Fields, AFilterMustBeGivenAndBeKnown) {
  const auto read = [](std::string_view text) -> std::string {
    const boost::json::value json = boost::json::parse(text);
    Fields fields(json.as_object());
    const Filter filter = fields.TakeFilter("filter");
    const auto finished = fields.Finish();
    return finished ? FilterToJson(filter) : finished.error().code;
  };
  EXPECT_EQ(read(R"({"filter":{}})"), "{}");
  EXPECT_EQ(read(R"({"filter":{"type":["a"],"livemode":true}})"), R"({"type":["a"],"livemode":true})");
  EXPECT_EQ(read("{}"), "bad_field");
  EXPECT_EQ(read(R"({"filter":null})"), "bad_field");
  EXPECT_EQ(read(R"({"filter":[]})"), "bad_field");
  EXPECT_EQ(read(R"({"filter":{"typ":"a"}})"), "bad_filter");
}

TEST(Utf8, TellsCharactersFromBytes) {
  const struct {
    std::string bytes;
    bool valid;
    std::string cleaned;
  } rows[] = {
      {"", true, ""},
      {"abc", true, "abc"},
      {std::string("a\0b", 3), true, std::string("a\0b", 3)},
      {"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80", true, "\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"},
      {"\xFF", false, "\xEF\xBF\xBD"},
      {"a\xC3", false, "a\xEF\xBF\xBD"},
      {"\xC0\xAF", false, "\xEF\xBF\xBD\xEF\xBF\xBD"},                  // overlong
      {"\xED\xA0\x80", false, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},  // surrogate
      {"\xF4\x90\x80\x80", false, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD"},
  };
  for (const auto& row : rows) {
    EXPECT_EQ(IsUtf8(row.bytes), row.valid);
    EXPECT_EQ(ToUtf8(row.bytes), row.cleaned);
  }
}

}  // namespace
}  // namespace dlo::server
