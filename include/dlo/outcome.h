// What an attempt ended as. An outcome is data, never an exception; Decide turns it into a state.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "dlo/time.h"

namespace dlo {

enum class OutcomeKind : unsigned char {
  applied = 0,          // the effect happened now
  already_applied = 1,  // the effect had happened before; seen to be a no-op
  not_applicable = 2,   // the handler says this event needs no effect: resolved
  retryable = 3,        // time may cure it
  permanent = 4,        // time will not cure it under this handler version
  gone = 5,             // the subject no longer exists upstream (not_found). Terminal skip on a replay, else permanent
  crashed = 6,          // lease expired: the worker died. Made by the rescuer only
  corrupt = 7,          // stored bytes failed their digest; the handler was not called. Made by the dispatcher only
};

struct Outcome {
  OutcomeKind kind = OutcomeKind::applied;
  std::string code;                     // short, stable: "http_500", "timeout", "schema_mismatch"
  std::string message;                  // one line for people, at most 4 KiB kept
  std::string detail;                   // response body or stack trace, at most 4 KiB kept
  std::string handler_version;          // who judged; "permanent" means permanent for this version
  std::string effect;                   // the handler's own receipt of what it did (row version, ledger id)
  std::optional<Duration> retry_after;  // a floor for the next wait, capped at 1 h
  int http_status = 0;                  // 0 = none

  static Outcome Applied(std::string effect = {}) {
    return Make(OutcomeKind::applied, "applied", {}, std::move(effect));
  }
  static Outcome AlreadyApplied(std::string effect = {}) {
    return Make(OutcomeKind::already_applied, "already_applied", {}, std::move(effect));
  }
  static Outcome NotApplicable(std::string reason) {
    return Make(OutcomeKind::not_applicable, "not_applicable", std::move(reason), {});
  }
  static Outcome Retryable(std::string code, std::string message = {}) {
    return Make(OutcomeKind::retryable, std::move(code), std::move(message), {});
  }
  static Outcome Permanent(std::string code, std::string message = {}) {
    return Make(OutcomeKind::permanent, std::move(code), std::move(message), {});
  }
  static Outcome Gone(std::string message = {}) { return Make(OutcomeKind::gone, "not_found", std::move(message), {}); }

 private:
  static Outcome Make(OutcomeKind kind, std::string code, std::string message, std::string effect) {
    Outcome o;
    o.kind = kind;
    o.code = std::move(code);
    o.message = std::move(message);
    o.effect = std::move(effect);
    return o;
  }
};

}  // namespace dlo
