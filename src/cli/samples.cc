#include "cli/samples.h"

#include <fmt/format.h>

#include <array>
#include <boost/json.hpp>

#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::array;
using boost::json::object;

constexpr std::array<std::string_view, 7> kKinds = {
    "invoice.paid",    "invoice.payment_failed",   "customer.subscription.updated", "customer.subscription.deleted",
    "charge.refunded", "payment_intent.succeeded", "customer.tax_id.created"};
constexpr std::array<std::string_view, 2> kDeleted = {"cus_QmDeleted7aXb2", "cus_QmDeleted9kLw4"};
constexpr std::int64_t kMonth = 30 * 86400;
constexpr char kAccountPart[] = "B7vKYdlo2C";  // ids of one account share their middle

struct Facts {
  const Customer& customer;
  std::int64_t created;
  bool livemode;
  std::string one, two, three;  // ids of the objects around the main one
};

object Price(const Facts& f) {
  return {{"id", "price_1QTeamMonthly"},
          {"object", "price"},
          {"active", true},
          {"billing_scheme", "per_unit"},
          {"currency", f.customer.currency},
          {"livemode", f.livemode},
          {"nickname", "Team, monthly"},
          {"product", "prod_QmTeam"},
          {"recurring", {{"interval", "month"}, {"interval_count", 1}, {"usage_type", "licensed"}}},
          {"type", "recurring"},
          {"unit_amount", f.customer.amount},
          {"unit_amount_decimal", fmt::format("{}", f.customer.amount)}};
}

object Invoice(const Facts& f, bool paid) {
  object line = {{"id", "il_" + f.three},
                 {"object", "line_item"},
                 {"amount", f.customer.amount},
                 {"currency", f.customer.currency},
                 {"description", "1 × Team (per month)"},
                 {"period", {{"start", f.created}, {"end", f.created + kMonth}}},
                 {"price", Price(f)},
                 {"proration", false},
                 {"quantity", 1},
                 {"subscription", f.customer.subscription},
                 {"type", "subscription"}};
  return {{"id", "in_" + f.one},
          {"object", "invoice"},
          {"account_country", "DE"},
          {"account_name", "Example Software"},
          {"amount_due", f.customer.amount},
          {"amount_paid", paid ? f.customer.amount : 0},
          {"amount_remaining", paid ? 0 : f.customer.amount},
          {"attempt_count", paid ? 1 : 2},
          {"attempted", true},
          {"auto_advance", !paid},
          {"billing_reason", "subscription_cycle"},
          {"collection_method", "charge_automatically"},
          {"created", f.created - 3600},
          {"currency", f.customer.currency},
          {"customer", f.customer.id},
          {"customer_email", f.customer.email},
          {"customer_name", f.customer.name},
          {"lines", {{"object", "list"}, {"data", array{line}}, {"has_more", false}, {"total_count", 1}}},
          {"livemode", f.livemode},
          {"metadata", object{}},
          {"next_payment_attempt", paid ? boost::json::value(nullptr) : boost::json::value(f.created + 3 * 86400)},
          {"number", "A1B2C3D4-0042"},
          {"paid", paid},
          {"payment_intent", "pi_" + f.two},
          {"period_end", f.created},
          {"period_start", f.created - kMonth},
          {"status", paid ? "paid" : "open"},
          {"subscription", f.customer.subscription},
          {"subtotal", f.customer.amount},
          {"tax", nullptr},
          {"total", f.customer.amount}};
}

object Subscription(const Facts& f, bool deleted) {
  object item = {{"id", "si_" + f.three},
                 {"object", "subscription_item"},
                 {"created", f.created - 6 * kMonth},
                 {"price", Price(f)},
                 {"quantity", 3},
                 {"subscription", f.customer.subscription}};
  return {{"id", f.customer.subscription},
          {"object", "subscription"},
          {"billing_cycle_anchor", f.created - 6 * kMonth},
          {"cancel_at", nullptr},
          {"cancel_at_period_end", false},
          {"canceled_at", deleted ? boost::json::value(f.created) : boost::json::value(nullptr)},
          {"cancellation_details",
           {{"comment", nullptr},
            {"feedback", nullptr},
            {"reason", deleted ? boost::json::value("cancellation_requested") : boost::json::value(nullptr)}}},
          {"collection_method", "charge_automatically"},
          {"created", f.created - 6 * kMonth},
          {"currency", f.customer.currency},
          {"current_period_end", f.created + kMonth},
          {"current_period_start", f.created},
          {"customer", f.customer.id},
          {"default_payment_method", "pm_" + f.two},
          {"ended_at", deleted ? boost::json::value(f.created) : boost::json::value(nullptr)},
          {"items", {{"object", "list"}, {"data", array{item}}, {"has_more", false}, {"total_count", 1}}},
          {"latest_invoice", "in_" + f.one},
          {"livemode", f.livemode},
          {"metadata", {{"workspace", f.customer.name}}},
          {"start_date", f.created - 6 * kMonth},
          {"status", deleted ? "canceled" : "active"},
          {"trial_end", nullptr}};
}

object Card() {
  return {{"type", "card"},
          {"card",
           {{"brand", "visa"},
            {"checks", {{"address_postal_code_check", "pass"}, {"cvc_check", "pass"}}},
            {"country", "DE"},
            {"exp_month", 8},
            {"exp_year", 2031},
            {"funding", "credit"},
            {"last4", "4242"},
            {"network", "visa"}}}};
}

object Charge(const Facts& f) {
  return {
      {"id", "ch_" + f.one},
      {"object", "charge"},
      {"amount", f.customer.amount},
      {"amount_captured", f.customer.amount},
      {"amount_refunded", f.customer.amount},
      {"balance_transaction", "txn_" + f.three},
      {"billing_details",
       {{"address", {{"city", "Berlin"}, {"country", "DE"}, {"line1", "Beispielstraße 7"}, {"postal_code", "10115"}}},
        {"email", f.customer.email},
        {"name", f.customer.name},
        {"phone", nullptr}}},
      {"captured", true},
      {"created", f.created - 86400},
      {"currency", f.customer.currency},
      {"customer", f.customer.id},
      {"description", "Subscription update"},
      {"disputed", false},
      {"livemode", f.livemode},
      {"metadata", object{}},
      {"outcome",
       {{"network_status", "approved_by_network"},
        {"risk_level", "normal"},
        {"risk_score", 12},
        {"seller_message", "Payment complete."},
        {"type", "authorized"}}},
      {"paid", true},
      {"payment_intent", "pi_" + f.two},
      {"payment_method_details", Card()},
      {"refunded", true},
      {"statement_descriptor", "EXAMPLE SOFTWARE"},
      {"status", "succeeded"}};
}

object PaymentIntent(const Facts& f) {
  return {{"id", "pi_" + f.two},
          {"object", "payment_intent"},
          {"amount", f.customer.amount},
          {"amount_capturable", 0},
          {"amount_received", f.customer.amount},
          {"automatic_payment_methods", {{"allow_redirects", "always"}, {"enabled", true}}},
          {"capture_method", "automatic"},
          {"confirmation_method", "automatic"},
          {"created", f.created - 20},
          {"currency", f.customer.currency},
          {"customer", f.customer.id},
          {"description", "Team, monthly"},
          {"invoice", "in_" + f.one},
          {"last_payment_error", nullptr},
          {"latest_charge", "ch_" + f.three},
          {"livemode", f.livemode},
          {"metadata", {{"order", f.one}, {"workspace", f.customer.name}}},
          {"payment_method", "pm_" + f.three},
          {"payment_method_options",
           {{"card", {{"installments", nullptr}, {"network", nullptr}, {"request_three_d_secure", "automatic"}}}}},
          {"payment_method_types", {"card", "sepa_debit"}},
          {"receipt_email", f.customer.email},
          {"setup_future_usage", "off_session"},
          {"shipping", nullptr},
          {"statement_descriptor", "EXAMPLE SOFTWARE"},
          {"status", "succeeded"},
          {"transfer_data", nullptr}};
}

object TaxId(const Facts& f) {
  return {{"id", "txi_" + f.one},
          {"object", "tax_id"},
          {"country", "DE"},
          {"created", f.created},
          {"customer", f.customer.id},
          {"livemode", f.livemode},
          {"type", "eu_vat"},
          {"value", "DE123456789"},
          {"verification", {{"status", "pending"}, {"verified_address", nullptr}, {"verified_name", nullptr}}}};
}

object Data(std::string_view kind, const Facts& f) {
  if (kind == "invoice.paid") return {{"object", Invoice(f, true)}};
  if (kind == "invoice.payment_failed") return {{"object", Invoice(f, false)}};
  if (kind == "customer.subscription.updated") {
    return {{"object", Subscription(f, false)},
            {"previous_attributes",
             {{"current_period_end", f.created}, {"current_period_start", f.created - kMonth}, {"quantity", 2}}}};
  }
  if (kind == "customer.subscription.deleted") return {{"object", Subscription(f, true)}};
  if (kind == "charge.refunded") {
    return {{"object", Charge(f)}, {"previous_attributes", {{"amount_refunded", 0}, {"refunded", false}}}};
  }
  if (kind == "payment_intent.succeeded") return {{"object", PaymentIntent(f)}};
  return {{"object", TaxId(f)}};
}

}  // namespace

std::span<const std::string_view> DeletedCustomers() {
  return kDeleted;
}
std::string_view LockedCustomer() {
  return "cus_QmLocked3hRt8";
}
std::span<const std::string_view> SampleKinds() {
  return kKinds;
}

std::string SampleMaker::Letters(int n) {
  constexpr std::string_view kAlphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  std::string out;
  for (int i = 0; i < n; ++i) out += kAlphabet[Pick(kAlphabet.size())];
  return out;
}

std::string SampleMaker::Id(std::string_view prefix) {
  return fmt::format("{}1Q{}{}{}", prefix, Letters(4), kAccountPart, Letters(8));
}

Customer SampleMaker::MakeCustomer() {
  constexpr std::array<std::string_view, 8> kNames = {"Nordwind Logistik", "Café Lumière",    "Harbor & Pine",
                                                      "Żabka Studio",      "Blue Fjord Labs", "Quercus GmbH",
                                                      "Sōzō Works",        "Mesa Verde Co"};
  constexpr std::array<std::int64_t, 5> kAmounts = {900, 1900, 4900, 9900, 29900};
  Customer customer;
  customer.id = "cus_Q" + Letters(13);
  customer.subscription = Id("sub_");
  customer.name = kNames[Pick(kNames.size())];
  customer.email = fmt::format("billing+{}@example.com", customer.id.substr(4));
  customer.currency = Pick(4) == 0 ? "eur" : "usd";
  customer.amount = kAmounts[Pick(kAmounts.size())];
  return customer;
}

std::optional<Sample> SampleMaker::Make(std::string_view kind, const Customer& customer, Time now, bool livemode,
                                        std::string id) {
  if (std::find(kKinds.begin(), kKinds.end(), kind) == kKinds.end()) return std::nullopt;
  if (id.empty()) id = Id("evt_");
  std::int64_t created = std::chrono::floor<std::chrono::seconds>(now).time_since_epoch().count();
  Facts facts{customer, created, livemode, Id(""), Id(""), Id("")};
  object event = {{"id", id},
                  {"object", "event"},
                  {"api_version", "2024-06-20"},
                  {"created", created},
                  {"data", Data(kind, facts)},
                  {"livemode", livemode},
                  {"pending_webhooks", 1},
                  {"request", {{"id", nullptr}, {"idempotency_key", nullptr}}},
                  {"type", kind}};
  return Sample{std::move(id), std::string(kind), PrettyJson(boost::json::serialize(event))};
}

}  // namespace dlo::cli
