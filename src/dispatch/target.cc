#include "dispatch/target.h"

#include <algorithm>
#include <utility>

#include "base/encoding.h"
#include "dispatch/http_target.h"
#include "dispatch/in_process_target.h"

namespace dlo::dispatch {
namespace {

constexpr std::size_t kCodeBytes = 100;
constexpr std::size_t kNameBytes = 200;   // handler version, effect
constexpr std::size_t kTextBytes = 4096;  // message, detail

void Clean(std::string& text, std::size_t max_bytes, bool one_line) {
  if (text.empty()) return;
  text = CleanText(text, max_bytes);
  if (one_line) std::ranges::replace_if(text, [](char c) { return c == '\n' || c == '\t'; }, ' ');
}

}  // namespace

std::unique_ptr<Target> MakeTarget(const TargetConfig& config, HttpClient& http, Clock& clock) {
  if (config.type == TargetType::in_process) return std::make_unique<InProcessTarget>(config, clock);
  return std::make_unique<HttpTarget>(config, http, clock);
}

Outcome Tidy(Outcome outcome) {
  if (outcome.kind > OutcomeKind::gone) {
    outcome.kind = OutcomeKind::permanent;
    outcome.code = "bad_outcome";
    outcome.message = "the handler answered with a kind of outcome that only the dispatcher may use";
  }
  Clean(outcome.code, kCodeBytes, true);
  Clean(outcome.message, kTextBytes, true);
  Clean(outcome.detail, kTextBytes, false);
  Clean(outcome.handler_version, kNameBytes, true);
  Clean(outcome.effect, kNameBytes, true);
  return outcome;
}

}  // namespace dlo::dispatch
