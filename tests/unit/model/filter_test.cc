#include "model/filter.h"

#include <gtest/gtest.h>

#include "base/time_text.h"

namespace dlo {
namespace {

Filter Whole() {
  Filter f;
  f.types = {"invoice.paid", "charge.failed"};
  f.sources = {"stripe"};
  f.subjects = {"sub_1"};
  f.accounts = {"acct_1"};
  f.classes = {FailureClass::permanent, FailureClass::exhausted};
  f.states = {State::held, State::dead};
  f.since = ParseTime("2026-11-01T00:00:00Z");
  f.until = ParseTime("2026-12-01T00:00:00Z");
  f.livemode = false;
  f.fingerprint = "0123456789abcdef";
  f.q = "No \"such\" \\ thing";
  f.ids = {3, 1, 2, 1};
  f.overdue = ParseTime("2026-11-15T00:00:00Z");
  f.not_judged_by = "8";
  return f;
}

TEST(Filter, IsEmptyOnlyWithoutAnyField) {
  EXPECT_TRUE(Filter().Empty());
  const auto with = [](auto set) {
    Filter f;
    set(f);
    return f;
  };
  const Filter one_each[] = {with([](Filter& f) { f.types = {"a"}; }),
                             with([](Filter& f) { f.sources = {"a"}; }),
                             with([](Filter& f) { f.subjects = {"a"}; }),
                             with([](Filter& f) { f.accounts = {"a"}; }),
                             with([](Filter& f) { f.classes = {FailureClass::none}; }),
                             with([](Filter& f) { f.states = {State::waiting}; }),
                             with([](Filter& f) { f.since = Time{}; }),
                             with([](Filter& f) { f.until = Time{}; }),
                             with([](Filter& f) { f.livemode = false; }),
                             with([](Filter& f) { f.fingerprint = ""; }),
                             with([](Filter& f) { f.q = ""; }),
                             with([](Filter& f) { f.ids = {1}; }),
                             with([](Filter& f) { f.overdue = Time{}; }),
                             with([](Filter& f) { f.not_judged_by = ""; })};
  for (const Filter& f : one_each) {
    EXPECT_FALSE(f.Empty()) << FilterToJson(f);
    EXPECT_NE(FilterToJson(f), "{}");
  }
}

TEST(FilterJson, IsOneTextForOneMeaning) {
  EXPECT_EQ(FilterToJson(Filter()), "{}");
  EXPECT_EQ(FilterToJson(Whole()),
            R"({"type":["charge.failed","invoice.paid"],"source":["stripe"],"subject":["sub_1"],"account":["acct_1"],)"
            R"("class":["exhausted","permanent"],"state":["dead","held"],"since":"2026-11-01T00:00:00Z",)"
            R"("until":"2026-12-01T00:00:00Z","livemode":false,"fingerprint":"0123456789abcdef",)"
            R"("q":"No \"such\" \\ thing","ids":[1,2,3],"overdue":"2026-11-15T00:00:00Z","not_judged_by":"8"})");
}

TEST(FilterJson, ReadsBackWhatItWrote) {
  Filter odd = Whole();
  odd.q = std::string("nul\0 and \xFF", 10);
  for (const Filter& f : {Filter(), Whole(), odd}) {
    const auto back = FilterFromJson(FilterToJson(f));
    ASSERT_TRUE(back) << back.error().message;
    EXPECT_EQ(FilterToJson(*back), FilterToJson(f));
    EXPECT_EQ(back->q, f.q);
  }
}

TEST(FilterJson, TakesOneValueForAListAndNullForUnset) {
  const auto f = FilterFromJson(R"({"type":"a","class":"poison","ids":"7","livemode":null})");
  ASSERT_TRUE(f);
  EXPECT_EQ(f->types, std::vector<std::string>{"a"});
  EXPECT_EQ(f->classes, std::vector{FailureClass::poison});
  EXPECT_EQ(f->ids, std::vector<EventId>{7});
  EXPECT_EQ(f->livemode, std::nullopt);
}

TEST(FilterJson, AnUntilDateIncludesItsDay) {
  EXPECT_EQ(FilterFromJson(R"({"until":"2026-11-30"})")->until, ParseTime("2026-12-01T00:00:00Z"));
  EXPECT_EQ(FilterFromJson(R"({"until":"2026-11-30T00:00:00Z"})")->until, ParseTime("2026-11-30T00:00:00Z"));
  EXPECT_EQ(FilterFromJson(R"({"since":"2026-11-30"})")->since, ParseTime("2026-11-30T00:00:00Z"));
}

TEST(FilterJson, RefusesWhatItCannotRead) {
  for (const std::string_view text :
       {"", "[]", "1", "{", R"({"typ":"a"})", R"({"type":1})", R"({"type":["a",1]})", R"({"class":"broken"})",
        R"({"state":"DEAD"})", R"({"since":"yesterday"})", R"({"until":5})", R"({"livemode":"true"})",
        R"({"fingerprint":[]})", R"({"q":{}})", R"({"ids":1.5})", R"({"ids":"1x"})", R"({"ids":""})"}) {
    const auto f = FilterFromJson(text);
    ASSERT_FALSE(f) << text;
    EXPECT_EQ(f.error().kind, ErrorKind::invalid) << text;
    EXPECT_EQ(f.error().code, "bad_filter") << text;
    EXPECT_FALSE(f.error().message.empty());
  }
}

}  // namespace
}  // namespace dlo
