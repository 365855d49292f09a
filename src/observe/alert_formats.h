// An alert as the bytes that a receiver understands: Alertmanager's API, a Slack webhook, or JSON of our own with a
// Standard Webhooks signature. Each carries the alert's id, by which a repeat is known.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dlo/config.h"
#include "dlo/result.h"
#include "intake/sign.h"
#include "store/alarms.h"

namespace dlo::observe {

struct Outgoing {
  std::string url;
  std::vector<std::string> headers;  // "Name: value"
  std::string body;
};

/// "200 new letters of stripe: invoice.paid permanent: …"
[[nodiscard]] std::string Summary(const store::Alert& alert);
/// page or ticket.
[[nodiscard]] std::string_view Severity(const store::Alert& alert);

/// Did the receiver take it at the newest attempt?
[[nodiscard]] bool Taken(const store::Alert& alert);

/// What is sent now: Alertmanager is told until when to believe it, so that an alert ends there too when we do not come
/// back to end it. `signer` signs format json.
[[nodiscard]] Outgoing Format(const AlertConfig& receiver, const std::optional<intake::Signer>& signer,
                              const store::Alert& alert, Time now);

}  // namespace dlo::observe
