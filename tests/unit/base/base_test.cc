#include <gtest/gtest.h>

#include <map>
#include <string>

#include "base/encoding.h"
#include "base/metrics.h"
#include "base/time_text.h"

namespace dlo {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Encoding, Sha256OfTheEmptyTextIsThePublishedValue) {  // FIPS 180-2 test value
  EXPECT_EQ(HexEncode(Sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Encoding, HexDecodesEitherCaseAndNothingElse) {
  EXPECT_EQ(HexDecode("00ffAB"), std::string("\x00\xff\xab", 3));
  EXPECT_EQ(HexDecode(""), "");
  for (const char* bad : {"0", "0g", "0x12", " 00", "00 "}) EXPECT_EQ(HexDecode(bad), std::nullopt) << bad;
}

TEST(Encoding, Base64IsStrict) {  // RFC 4648 section 10
  const std::map<std::string, std::string> vectors = {{"", ""},
                                                      {"f", "Zg=="},
                                                      {"fo", "Zm8="},
                                                      {"foo", "Zm9v"},
                                                      {"foob", "Zm9vYg=="},
                                                      {"fooba", "Zm9vYmE="},
                                                      {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, text] : vectors) {
    EXPECT_EQ(Base64Encode(plain), text);
    EXPECT_EQ(Base64Decode(text), plain);
  }
  for (const char* bad : {"Zg=", "Zg", "Zg==\n", "Z===", "====", "Zm9v!mFy", "Zm-v", "Z=9v"}) {
    EXPECT_EQ(Base64Decode(bad), std::nullopt) << bad;
  }
}

TEST(Encoding, CleanTextLeavesNoControlAndNoBrokenUtf8) {
  struct Row {
    std::string in;
    std::size_t max;
    std::string out;
  };
  const std::string replacement = "\xEF\xBF\xBD";
  const Row rows[] = {
      {"plain", 100, "plain"},
      {std::string("a\0b", 3), 100, "a b"},
      {"a\x1b[31mb", 100, "a [31mb"},
      {"line\nnext\ttab", 100, "line\nnext\ttab"},
      {"\xff\xfe", 100, replacement + replacement},
      {"\xC0\xAF", 100, replacement + replacement},                    // overlong slash
      {"\xED\xA0\x80", 100, replacement + replacement + replacement},  // surrogate
      {"\xC2\x85", 100, " "},                                          // C1 next line
      {"caf\xC3", 100, "caf" + replacement},                           // cut sequence
      {"12345", 5, "12345"},
      {"123456", 5, "12\xE2\x80\xA6"},
      {"ab\xC3\xA9\xC3\xA9\xC3\xA9", 7, "ab\xC3\xA9\xE2\x80\xA6"},  // cut at a character
      {"123456", 2, ""},
  };
  for (const Row& row : rows) EXPECT_EQ(CleanText(row.in, row.max), row.out) << testing::PrintToString(row.in);
}

TEST(TimeText, FormatsAndReadsBack) {
  for (const char* text : {"2026-11-30T13:23:29Z", "2026-11-30T13:23:29.000001Z", "1970-01-01T00:00:00Z",
                           "2024-02-29T23:59:59.999999Z", "1969-12-31T23:59:59Z"}) {
    const auto time = ParseTime(text);
    ASSERT_TRUE(time) << text;
    EXPECT_EQ(FormatTime(*time), text);
  }
}

TEST(TimeText, OffsetsAreTakenToUtc) {
  EXPECT_EQ(ParseTime("2026-03-29T02:30:00+01:00"), ParseTime("2026-03-29T01:30:00Z"));
  EXPECT_EQ(ParseTime("2026-03-29T02:30:00-02:30"), ParseTime("2026-03-29T05:00:00Z"));
  EXPECT_EQ(ParseTime("2026-03-29"), ParseTime("2026-03-29T00:00:00Z"));
}

TEST(TimeText, RefusesWhatIsNoTime) {
  for (const char* bad : {"", "2026", "2026-13-01", "2026-02-30", "2026-11-30T25:00:00Z", "2026-11-30T13:23:29",
                          "2026-11-30T13:23:29.Z", "2026-11-30T13:23:29+0100", "2026-11-30T13:23:29Zx", "yesterday"}) {
    EXPECT_EQ(ParseTime(bad), std::nullopt) << bad;
  }
}

TEST(TimeText, Durations) {
  EXPECT_EQ(ParseDuration("30s"), seconds(30));
  EXPECT_EQ(ParseDuration("14d"), hours(14 * 24));
  EXPECT_EQ(ParseDuration("250ms"), milliseconds(250));
  EXPECT_EQ(ParseDuration("0s"), seconds(0));
  for (const char* bad : {"", "5", "s", "-5s", "5 s", "5.5s", "5w", "99999999999999d"})
    EXPECT_EQ(ParseDuration(bad), std::nullopt) << bad;
  EXPECT_EQ(FormatDuration(seconds(90)), "90s");
  EXPECT_EQ(FormatDuration(seconds(120)), "2m");
  EXPECT_EQ(FormatDuration(hours(48)), "2d");
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1500ms");
}

TEST(Metrics, RendersPrometheusText) {
  Metrics metrics;
  metrics.counter("dlo_received_total", "Events.", {{"source", "a\"b\n"}}).Add(3);
  metrics.gauge("dlo_waiting", "Waiting.", [] { return std::vector<Sample>{{{}, 7}}; });
  metrics.histogram("dlo_accept_seconds", "Accept.").Observe(0.002);
  const std::string text = metrics.Render();
  EXPECT_NE(text.find("dlo_received_total{source=\"a\\\"b\\n\"} 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("# TYPE dlo_waiting gauge\ndlo_waiting 7\n"), std::string::npos) << text;
  EXPECT_NE(text.find("dlo_accept_seconds_bucket{le=\"0.001\"} 0\n"), std::string::npos) << text;
  EXPECT_NE(text.find("dlo_accept_seconds_bucket{le=\"0.0025\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("dlo_accept_seconds_bucket{le=\"+Inf\"} 1\n"), std::string::npos) << text;
  EXPECT_NE(text.find("dlo_accept_seconds_count 1\n"), std::string::npos) << text;
}

TEST(Metrics, ABoundBelongsToItsBucket) {
  Metrics metrics;
  Histogram& histogram = metrics.histogram("h", "h");
  histogram.Observe(0.001);
  EXPECT_NE(metrics.Render().find("h_bucket{le=\"0.001\"} 1\n"), std::string::npos);
}

}  // namespace
}  // namespace dlo
