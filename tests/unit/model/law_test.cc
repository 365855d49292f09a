#include "model/law.h"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace dlo {
namespace {

constexpr Act kAllActs[] = {Act::claim, Act::apply,   Act::hand_back, Act::replay,
                            Act::hold,  Act::release, Act::resolve,   Act::reopen};

// Spelled out a second time on purpose: a move added to the table by mistake must fail here.
const std::set<std::tuple<std::string_view, std::string_view, std::string_view>> kLaw = {
    {"claim", "waiting", "running"},     {"apply", "running", "waiting"},
    {"apply", "running", "succeeded"},   {"apply", "running", "dead"},
    {"apply", "running", "replayed"},    {"apply", "running", "resolved"},
    {"hand_back", "running", "waiting"}, {"replay", "dead", "waiting"},
    {"replay", "held", "waiting"},       {"hold", "dead", "held"},
    {"release", "held", "dead"},         {"resolve", "dead", "resolved"},
    {"resolve", "held", "resolved"},     {"reopen", "resolved", "dead"},
};

TEST(Law, AllowsTheseMovesAndNoOther) {
  std::size_t legal = 0;
  for (const Act act : kAllActs) {
    for (int from = 0; from < kStateCount; ++from) {
      for (int to = 0; to < kStateCount; ++to) {
        const auto f = static_cast<State>(from), t = static_cast<State>(to);
        EXPECT_EQ(IsLegal(act, f, t), kLaw.contains({Name(act), Name(f), Name(t)}))
            << Name(act) << " " << Name(f) << " " << Name(t);
        if (IsLegal(act, f, t)) ++legal;
      }
    }
  }
  EXPECT_EQ(legal, LegalMoves().size());
}

TEST(Law, GivesEveryActOfAPersonOneTargetOrNone) {
  for (const Act act : {Act::replay, Act::hold, Act::release, Act::resolve, Act::reopen}) {
    for (int from = 0; from < kStateCount; ++from) {
      const auto f = static_cast<State>(from);
      int targets = 0;
      for (const Move& m : LegalMoves()) targets += m.act == act && m.from == f ? 1 : 0;
      ASSERT_LE(targets, 1);
      EXPECT_EQ(Target(act, f).has_value(), targets == 1);
      const auto to = Target(act, f);
      EXPECT_TRUE(!to || IsLegal(act, f, *to));
    }
  }
}

TEST(Law, LeavesNoStateWithoutAWayInAndNoneOfTheOpenOnesWithoutAWayOut) {
  for (int s = 1; s < kStateCount; ++s) {
    bool in = false, out = false;
    for (const Move& m : LegalMoves()) {
      in = in || m.to == static_cast<State>(s);
      out = out || m.from == static_cast<State>(s);
    }
    EXPECT_TRUE(in) << s;
    const auto state = static_cast<State>(s);
    EXPECT_EQ(out, state != State::succeeded && state != State::replayed)
        << s;  // those two are left for the archive only
  }
}

template <typename Enum, typename ByName>
void EachNameReadsBack(int count, ByName by_name) {
  std::set<std::string_view> names;
  for (int i = 0; i < count; ++i) {
    const auto value = static_cast<Enum>(i);
    EXPECT_EQ(by_name(Name(value)), value);
    names.insert(Name(value));
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(count));
  for (const std::string_view wrong : {"", " ", "Dead", "dead ", "unknown"})
    EXPECT_EQ(by_name(wrong), std::nullopt) << wrong;
}

TEST(Names, ReadBackAndAreDistinct) {
  EachNameReadsBack<State>(kStateCount, StateByName);
  EachNameReadsBack<FailureClass>(kClassCount, FailureClassByName);
  EachNameReadsBack<ResolveCode>(kResolveCodeCount, ResolveCodeByName);
}

}  // namespace
}  // namespace dlo
