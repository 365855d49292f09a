// What a handler is given. An Event is a receipt (immutable facts about one delivery) seen from one attempt.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/time.h"

namespace dlo {

/// Receipt order inside one store; also the number people type. Starts at 1.
using EventId = std::int64_t;

struct Header {
  std::string name;
  std::string value;
  bool operator==(const Header&) const = default;
};

/// How a delivery was judged at receipt; trusted ever after (freshness is never judged again).
struct Verdict {
  bool verified = false;          // false only for sources with scheme "none" or events put in by the embedding program
  std::string scheme;             // "stripe", "standard-webhooks", ...
  std::string secret_id;          // which configured secret matched: "secrets[0]"; never the secret
  std::optional<Time> signed_at;  // the sender's signed timestamp, where the scheme has one
};

/// What intake decided before the event was stored.
enum class Disposition : std::uint8_t {
  dispatch = 0,
  invalid = 1,     // genuine, but the source's extraction could not read it: a dead letter of class `invalid`
  test_event = 2,  // test mode event on a live source: resolved at once, never dispatched
};

/// One accepted delivery, byte for byte. Immutable once stored.
struct Receipt {
  EventId id = 0;  // assigned by the store
  std::string source;
  std::string key;      // event key, unique within the source
  std::string kind;     // event type, "invoice.paid"; may be empty
  std::string subject;  // what order is kept by; empty = no order
  std::string account;  // may be empty
  std::optional<bool> livemode;
  std::optional<Time> occurred_at;  // by the sender's clock
  Time received_at{};
  Verdict verdict;
  Disposition disposition = Disposition::dispatch;
  std::string disposition_reason;
  std::vector<Header> headers;  // as received, order and case kept, hop-by-hop included
  std::string body;             // as received
};

/// One attempt at one event. Valid for as long as the handler runs.
struct Delivery {
  std::shared_ptr<const Receipt> receipt;
  int attempt = 1;  // rises for ever, over replays too
  bool replay = false;
  std::int64_t replay_id = 0;           // 0 unless replay
  Duration age{};                       // now - received_at
  int revision = 0;                     // of the payload: 0 is the original, more a correction of that number
  bool suppress_notifications = false;  // older than the source's notify_within: send no mails about it

  /// The key under which the effect must happen once: "<source>:<key>".
  [[nodiscard]] std::string IdempotencyKey() const { return receipt->source + ":" + receipt->key; }
};

}  // namespace dlo
