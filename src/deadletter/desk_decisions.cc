// The desk's rules for decisions that last: acts on many letters, standing rules, notes, corrected payloads.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "base/time_text.h"
#include "deadletter/checks.h"
#include "deadletter/clerk.h"
#include "deadletter/desk.h"

namespace dlo::deadletter {
namespace {

constexpr std::size_t kMaxNote = 4'000;
constexpr std::size_t kMaxRuleName = 64;
constexpr std::size_t kMaxAnyBody = std::size_t{32} << 20;
/// So long an act on many letters works them off before it answers; the rest is the clerk's.
constexpr Duration kAnswerWithin = std::chrono::seconds(1);

bool IsRuleName(std::string_view name) {
  const auto first = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  return !name.empty() && name.size() <= kMaxRuleName && first(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return first(c) || c == '-' || c == '_'; });
}

Result<void> CheckMatch(const Filter& match) {
  if (!match.ids.empty() || !match.states.empty() || match.overdue || match.not_judged_by) {
    return Invalid("bad_rule",
                   "A rule looks at letters as they die: it takes no ids, state, overdue or not_judged_by.");
  }
  const bool names_text = match.q && !Blank(*match.q);
  if (match.types.empty() && match.subjects.empty() && match.accounts.empty() && !match.fingerprint && !names_text) {
    return Invalid("rule_matches_all",
                   "A rule must say what fails: give a type, subject, account, fingerprint or q. A source or a class "
                   "alone would take whatever goes wrong there.");
  }
  if (match.q && !names_text) return Invalid("bad_rule", "q must not be blank.");
  if (match.q && Length(*match.q) > kMaxName) {
    return Invalid("bad_rule", fmt::format("q is longer than {} characters.", kMaxName));
  }
  return {};
}

Result<void> CheckRuleAct(const Rule& rule, Time now) {
  if (!rule.resolve_code) return CheckHold({.link = rule.hold_link, .owner = rule.hold_owner}, now);
  if (!rule.hold_link.empty() || !rule.hold_owner.empty()) {
    return Invalid("bad_rule", "A rule resolves (code) or holds (link, owner), not both.");
  }
  return {};
}

Result<void> CheckNote(const std::string& text) {
  if (Blank(text)) return Invalid("note_empty", "The note has no text.");
  if (Length(text) > kMaxNote) {
    return Invalid("note_too_long",
                   fmt::format("The note is longer than {} characters; put the rest behind a link.", kMaxNote));
  }
  return {};
}

}  // namespace

Result<Decision> Desk::DecideWhere(const Filter& filter, const store::BulkAct& act, const DecisionOptions& options,
                                   const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (filter.Empty() && !options.all) {
    return Invalid("filter_empty",
                   "An empty filter is every letter there is: say so with \"all\": true, or narrow it.");
  }
  if (filter.q && Length(*filter.q) > kMaxName) {
    return Invalid("bad_filter", fmt::format("q is longer than {} characters.", kMaxName));
  }
  if (options.max < 1 || options.max > kMaxSelection) {
    return Invalid("bad_max", fmt::format("max is {}; it must be from 1 to {}.", options.max, kMaxSelection));
  }
  if (options.dry_run) {
    auto plan = deps_.store.PlanDecision(Now(filter), act.act);
    if (plan) plan->over_cap = plan->count > options.max;
    return plan;
  }
  auto made = deps_.store.CreateDecision(Now(filter), act, options, actor, deps_.clock.Now());
  if (!made) return made;
  const Duration end = deps_.clock.Monotonic() + kAnswerWithin;
  Decision answer = *made;
  while (answer.state == "running" && deps_.clock.Monotonic() < end && !stopping_.load()) {
    auto step = deps_.store.StepDecision(made->id, Clerk::kLettersAStep, deps_.clock.Now());
    if (!step) break;  // it is made, and the clerk goes on with it: an error here would say otherwise
    answer = std::move(*step);
  }
  answer.by_class = made->by_class;
  answer.by_type = made->by_type;
  answer.over_cap = answer.count > options.max;
  if (answer.state == "running" && deps_.ring) deps_.ring();
  return answer;
}

Result<Decision> Desk::HoldWhere(const Filter& filter, const HoldRequest& request, const DecisionOptions& options,
                                 const Actor& actor) {
  if (auto ok = CheckHold(request, deps_.clock.Now()); !ok) return std::unexpected(ok.error());
  return DecideWhere(filter, {.act = Act::hold, .hold = request}, options, actor);
}

Result<Decision> Desk::ReleaseWhere(const Filter& filter, const DecisionOptions& options, const Actor& actor) {
  return DecideWhere(filter, {.act = Act::release}, options, actor);
}

Result<Decision> Desk::ResolveWhere(const Filter& filter, ResolveCode code, const DecisionOptions& options,
                                    const Actor& actor) {
  if (code == ResolveCode::other && Blank(actor.reason)) {
    return Invalid("reason_missing", "The code `other` says nothing by itself: give a reason.");
  }
  return DecideWhere(filter, {.act = Act::resolve, .resolve_code = code}, options, actor);
}

Result<Decision> Desk::ReopenWhere(const Filter& filter, const DecisionOptions& options, const Actor& actor) {
  return DecideWhere(filter, {.act = Act::reopen}, options, actor);
}

Result<Decision> Desk::DecisionOf(std::int64_t decision_id) {
  return deps_.store.GetDecision(decision_id);
}

Result<std::vector<Decision>> Desk::Decisions(int limit) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.RecentDecisions(limit);
}

Result<Rule> Desk::AddRule(const Rule& rule, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  const Time now = deps_.clock.Now();
  if (!IsRuleName(rule.name)) {
    return Invalid("bad_rule", "A rule's name has 1 to 64 characters of a-z, 0-9, - and _, the first no sign.");
  }
  if (auto ok = CheckMatch(rule.match); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckRuleAct(rule, now); !ok) return std::unexpected(ok.error());
  if (Blank(actor.reason)) return Invalid("reason_missing", "A rule needs a reason: it is given for every letter.");
  if (rule.expires_at <= now || rule.expires_at > now + kMaxRuleLife) {
    return Invalid("bad_expiry", fmt::format("A rule needs a date on which it expires, after now and at most 90 days "
                                             "from now, which is {}.",
                                             FormatTime(now + kMaxRuleLife)));
  }
  return deps_.store.AddRule(rule, actor, now);
}

Result<RuleTrial> Desk::TryRule(const Rule& rule) {
  if (auto ok = CheckMatch(rule.match); !ok) return std::unexpected(ok.error());
  return deps_.store.TryRule(rule);
}

Result<Rule> Desk::EndRule(std::int64_t rule_id, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  return deps_.store.EndRule(rule_id, actor, deps_.clock.Now());
}

Result<std::vector<Rule>> Desk::Rules(int limit) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.ListRules(limit);
}

Result<Note> Desk::AddNote(EventId id, const std::string& text, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckNote(text); !ok) return std::unexpected(ok.error());
  return deps_.store.AddNote({.event_id = id, .text = text}, actor, deps_.clock.Now());
}

Result<Note> Desk::AddGroupNote(const std::string& fingerprint, const std::string& text, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckNote(text); !ok) return std::unexpected(ok.error());
  return deps_.store.AddNote({.fingerprint = fingerprint, .text = text}, actor, deps_.clock.Now());
}

Result<std::vector<Note>> Desk::NotesOf(EventId id, std::int64_t before, int limit) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.ReadNotes(id, {}, before, limit);
}

Result<std::vector<Note>> Desk::GroupNotesOf(const std::string& fingerprint, std::int64_t before, int limit) {
  if (auto ok = CheckLimit(limit); !ok) return std::unexpected(ok.error());
  return deps_.store.ReadNotes(0, fingerprint, before, limit);
}

Result<Revision> Desk::ReviseWith(const store::RevisionRequest& request, const Actor& actor) {
  if (auto ok = Check(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckId(request.id); !ok) return std::unexpected(ok.error());
  if (Blank(actor.reason)) {
    return Invalid("reason_missing", "What a sender signed is only replaced for a reason: give one.");
  }
  return deps_.store.Revise(request, actor, deps_.clock.Now());
}

Result<Revision> Desk::Revise(EventId id, const std::string& body, const Actor& actor, std::optional<int> after) {
  if (body.empty()) {
    return Invalid("revision_empty", "The corrected payload is empty; to send the original again, withdraw instead.");
  }
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  const auto shown = deps_.store.Show(id);
  if (!shown) return std::unexpected(shown.error());
  const std::size_t most = deps_.max_body ? deps_.max_body(shown->letter.source) : kMaxAnyBody;
  if (body.size() > most) {
    return Fail(ErrorKind::too_large, "revision_too_large",
                fmt::format("The corrected payload has {} bytes; source {} takes {} (max_body).", body.size(),
                            shown->letter.source, most));
  }
  return ReviseWith({.id = id, .body = body, .after = after}, actor);
}

Result<Revision> Desk::ReviseToOriginal(EventId id, const Actor& actor, std::optional<int> after) {
  return ReviseWith({.id = id, .body = std::nullopt, .after = after}, actor);
}

Result<std::vector<Revision>> Desk::Revisions(EventId id) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  return deps_.store.ListRevisions(id);
}

Result<std::string> Desk::RevisionPayload(EventId id, int number) {
  if (auto ok = CheckId(id); !ok) return std::unexpected(ok.error());
  return deps_.store.RevisionPayload(id, number);
}

}  // namespace dlo::deadletter
