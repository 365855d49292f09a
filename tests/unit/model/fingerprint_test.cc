#include "model/fingerprint.h"

#include <gtest/gtest.h>

namespace dlo {
namespace {

struct Row {
  const char* name;
  std::string_view message;
  std::string_view expected;
};

class Normalised : public testing::TestWithParam<Row> {};

TEST_P(Normalised, KeepsTheCauseAndNothingElse) {
  EXPECT_EQ(NormaliseMessage(GetParam().message), GetParam().expected);
}

TEST_P(Normalised, IsStableUnderItself) {
  const std::string once = NormaliseMessage(GetParam().message);
  EXPECT_EQ(NormaliseMessage(once), once);
}

INSTANTIATE_TEST_SUITE_P(
    RealMessages, Normalised,
    testing::Values(
        Row{"empty", "", ""}, Row{"plain", "connection refused", "connection refused"},
        Row{"stripe_quoted_id", "No such subscription: 'sub_1NXabcQ2eZvKYlo2C'", "No such subscription: '*'"},
        Row{"stripe_bare_id", "No such subscription: sub_1NXabcQ2eZvKYlo2C", "No such subscription: sub_*"},
        Row{"stripe_id_without_digits", "No such customer: cus_AbCdEfGhIjKlMn", "No such customer: cus_*"},
        Row{"stripe_client_secret", "bad pi_3Nabc_secret_Xyz1", "bad pi_*"},
        Row{"postgres_constraint_kept",
            "ERROR: duplicate key value violates unique constraint \"invoices_pkey\"\n  Detail: Key (id)=(4711) "
            "already exists.",
            "ERROR: duplicate key value violates unique constraint \"invoices_pkey\" Detail: Key (id)=(*) already "
            "exists."},
        Row{"postgres_numbered_constraint", "violates foreign key constraint \"fk_12_customers\"",
            "violates foreign key constraint \"*\""},
        Row{"postgres_null_column", "null value in column \"customer_id\" of relation \"subscriptions\"",
            "null value in column \"customer_id\" of relation \"subscriptions\""},
        Row{"uuid", "order 3f2504e0-4f89-11d3-9a0c-0305e82c3301 is unknown", "order * is unknown"},
        Row{"uuid_upper", "order 3F2504E0-4F89-11D3-9A0C-0305E82C3301 is unknown", "order * is unknown"},
        Row{"amount", "amount $1,234.56 exceeds -20 USD", "amount $* exceeds * USD"},
        Row{"euro", "Betrag 12,50 \u20AC ung\u00FCltig", "Betrag * \u20AC ung\u00FCltig"},
        Row{"iso_time", "period ended 2026-11-30T13:23:29.5Z, now 2026-12-01 00:00:00+01:00", "period ended *, now *"},
        Row{"date", "due 2026-11-30.", "due *."},
        Row{"http_date", "since Mon, 30 Nov 2026 13:24:05 GMT", "since * * * * GMT"},
        Row{"month_as_word", "May I? in March", "May I? in March"},
        Row{"email", "mail to jane.o+x@mail.example.com.", "mail to *."},
        Row{"hex", "digest 9f86d081884c7d65 differs from 0x1F", "digest * differs from *"},
        Row{"hex_looking_word", "the facade is dead", "the facade is dead"},
        Row{"path", "GET /v1/customers/cus_9s6XKzkNRiz8i3/sub/456 failed", "GET /v*/customers/cus_*/sub/* failed"},
        Row{"address", "connect to 10.0.0.1:5432 and fe80::1 failed", "connect to * and * failed"},
        Row{"list", "missing ids 1, 2, 3", "missing ids *"},
        Row{"list_longer", "missing ids 1, 2, 3, 4", "missing ids *"},
        Row{"word_with_number", "worker12 via HTTP2", "worker* via HTTP*"},
        Row{"mixed_token", "token 7fXq9Z bad", "token * bad"},
        Row{"apostrophe", "don't retry, it won't help", "don't retry, it won't help"},
        Row{"open_quote", "unexpected \"end", "unexpected \"end"},
        Row{"empty_quotes", "field '' is bad", "field '' is bad"},
        Row{"curly_quotes", "Kunde \u201CM\u00FCller GmbH\u201D fehlt", "Kunde \u201C*\u201D fehlt"},
        Row{"json", R"({"error":"No such plan","id":"pl_1"})", R"({"error":"*","id":"*"})"},
        Row{"white_space", "  a \t\r\n b  ", "a b"}, Row{"invalid_utf8", "bad \xFF byte", "bad \uFFFD byte"}),
    [](const auto& row) { return row.param.name; });

TEST(NormaliseMessage, KeepsAtMost200BytesAndCutsAtACharacter) {
  std::string words;
  for (int i = 0; i < 199; ++i) words += 'x';
  EXPECT_EQ(NormaliseMessage(words).size(), 199U);
  EXPECT_EQ(NormaliseMessage(words + "y").size(), 200U);
  EXPECT_EQ(NormaliseMessage(words + "yz").size(), 200U);
  EXPECT_EQ(NormaliseMessage(words + "\u00FC").size(), 199U);  // the character would end at byte 201
}

TEST(NormaliseMessage, ReadsOnlyTheStartOfAHugeMessage) {
  // Spaces collapse, so that only a message that is read to its end could show the last word.
  const std::string huge = "timeout after 30 s" + std::string(std::size_t{10} << 20, ' ') + "end";
  EXPECT_EQ(NormaliseMessage(huge), "timeout after * s");
  EXPECT_EQ(NormaliseMessage("timeout after 30 s" + std::string(1'000, ' ') + "end"), "timeout after * s end");
}

TEST(NormaliseMessage, TakesEveryPairOfBytes) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string text = {static_cast<char>(a), static_cast<char>(b), '1', static_cast<char>(a), '"'};
      ASSERT_LE(NormaliseMessage(text).size(), 20U) << a << " " << b;
    }
  }
}

TEST(Fingerprint, IsTheSameForOneCauseAndDiffersForAnother) {
  const std::string one =
      Fingerprint(FailureClass::permanent, "http_422", "No such subscription: sub_1Na", "invoice.paid");
  EXPECT_EQ(one.size(), 16U);
  EXPECT_EQ(one, Fingerprint(FailureClass::permanent, "http_422", "No such subscription: sub_2Mb", "invoice.paid"));
  EXPECT_NE(one, Fingerprint(FailureClass::exhausted, "http_422", "No such subscription: sub_1Na", "invoice.paid"));
  EXPECT_NE(one, Fingerprint(FailureClass::permanent, "http_404", "No such subscription: sub_1Na", "invoice.paid"));
  EXPECT_NE(one, Fingerprint(FailureClass::permanent, "http_422", "No such customer: sub_1Na", "invoice.paid"));
  EXPECT_NE(one, Fingerprint(FailureClass::permanent, "http_422", "No such subscription: sub_1Na", "invoice.voided"));
}

TEST(Fingerprint, DoesNotMixItsParts) {
  EXPECT_NE(Fingerprint(FailureClass::permanent, "a", "b", ""), Fingerprint(FailureClass::permanent, "a", "", "b"));
  EXPECT_NE(Fingerprint(FailureClass::permanent, "ab", "", ""), Fingerprint(FailureClass::permanent, "a", "b", ""));
}

TEST(Fingerprint, OfAFailureStillRetryingIsThatOfTheExhaustedLetter) {
  EXPECT_EQ(Fingerprint(FailureClass::none, "timeout", "", ""),
            Fingerprint(FailureClass::exhausted, "timeout", "", ""));
}

}  // namespace
}  // namespace dlo
