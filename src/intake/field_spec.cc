// Which fields a scheme has, and how a field's text is compiled.
#include <utility>

#include "base/encoding.h"
#include "intake/extract.h"
#include "intake/scheme.h"

namespace dlo::intake {
namespace {

// Everything that happens to one subscription must share a subject, or invoice.paid could overtake the
// customer.subscription.updated that it belongs to. A subscription is the object itself in customer.subscription.*; in
// an invoice it is a field (older API versions) or inside `parent` (since 2025-03-31); then come the customer, and the
// object alone. Thin events name only a related object.
constexpr std::string_view kStripeSubject =
    "/data/object/id?/data/object/object=subscription|/data/object/subscription|"
    "/data/object/parent/subscription_details/subscription|/data/object/customer|/data/object/id|/related_object/id";

FieldTexts Defaults(std::string_view scheme) {
  FieldTexts t;
  if (scheme == "stripe") {
    t = {"/id", "/type", std::string(kStripeSubject), "/account", "/livemode", "/created", {"/pending_webhooks"}};
  } else if (scheme == "standard-webhooks") {
    t.key = "header:webhook-id|header:svix-id";
    t.kind = "/type";
    t.occurred_at = "/timestamp";
  } else if (scheme == "github") {
    t.key = "header:X-GitHub-Delivery";
    t.kind = "header:X-GitHub-Event+/action";
    t.subject = "/repository/full_name";
  }
  return t;
}

// Calls `each` with every piece; false from it stops.
template <typename Each>
bool Split(std::string_view text, char separator, Each each) {
  while (true) {
    const auto end = text.find(separator);
    if (!each(text.substr(0, end))) return false;
    if (end == std::string_view::npos) return true;
    text.remove_prefix(end + 1);
  }
}

Result<FieldTerm> ParseTerm(std::string_view text) {
  constexpr std::string_view kHeader = "header:";
  FieldTerm term;
  if (text.starts_with(kHeader)) {
    term.header = Trimmed(text.substr(kHeader.size()));
    if (term.header.empty()) return Fail(ErrorKind::invalid, "bad_field", "\"header:\" must name a header");
    return term;
  }
  const auto question = text.find('?');
  auto pointer = ParsePointer(text.substr(0, question));
  if (!pointer) return std::unexpected(pointer.error());
  term.pointer = std::move(*pointer);
  if (question == std::string_view::npos) return term;
  const auto condition = text.substr(question + 1);
  const auto equals = condition.find('=');
  if (equals == std::string_view::npos) {
    return Fail(ErrorKind::invalid, "bad_field",
                "\"" + CleanText(text, 128) + "\": a condition is written ?/pointer=text");
  }
  auto path = ParsePointer(condition.substr(0, equals));
  if (!path) return std::unexpected(path.error());
  term.condition = std::move(*path);
  term.condition_text = condition.substr(equals + 1);
  return term;
}

}  // namespace

Result<FieldSpec> ParseFieldSpec(std::string_view text) {
  FieldSpec spec;
  if (text.empty()) return spec;
  Error error;
  const bool ok = Split(text, '|', [&](std::string_view alternative) {
    spec.emplace_back();
    return Split(Trimmed(alternative), '+', [&](std::string_view part) {
      auto term = ParseTerm(Trimmed(part));
      if (!term) {
        error = std::move(term.error());
        return false;
      }
      spec.back().push_back(std::move(*term));
      return true;
    });
  });
  if (!ok) return std::unexpected(std::move(error));
  return spec;
}

FieldTexts FieldTextsFor(const SourceConfig& source) {
  FieldTexts t = Defaults(source.scheme);
  const auto overlay = [](std::string& text, const std::optional<std::string>& set) {
    if (set) text = *set;
  };
  overlay(t.key, source.key);
  overlay(t.kind, source.kind);
  overlay(t.subject, source.subject);
  overlay(t.account, source.account);
  overlay(t.livemode, source.livemode);
  overlay(t.occurred_at, source.occurred_at);
  if (source.volatile_fields) t.volatile_fields = *source.volatile_fields;
  return t;
}

}  // namespace dlo::intake
