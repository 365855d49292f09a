// Decisions that last: acts on all letters that match, standing rules, notes, corrected payloads.
#include <array>
#include <boost/json.hpp>

#include "base/encoding.h"
#include "model/payload_diff.h"
#include "server/routes.h"
#include "server/utf8.h"
#include "server/view.h"

namespace dlo::server {
namespace {

namespace json = boost::json;

struct BulkWords {
  Filter filter;
  DecisionOptions options;
};

BulkWords TakeBulk(Call& call) {
  BulkWords words;
  words.filter = call.body.TakeFilter("filter");
  words.options.max = call.body.Number("max", words.options.max);
  words.options.force = call.body.Flag("force");
  words.options.all = call.body.Flag("all");
  words.options.dry_run = call.body.Flag("dry_run");
  call.actor.reason = call.body.Text("reason");
  return words;
}

/// What all acts on many letters share: the words, strictness, and the answer.
template <typename Do>
Result<Response> ActOnMany(Call& call, Do act) {
  const BulkWords words = TakeBulk(call);
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const Result<Decision> decision = act(words);
  if (!decision) return std::unexpected(decision.error());
  json::object answer = View(*decision);
  if (!words.options.dry_run) return Json(decision->state == "done" ? 200 : 202, answer);
  for (const char* made :
       {"id", "state", "created_at", "actor", "reason", "filter", "changed", "skipped", "skipped_ids"}) {
    answer.erase(made);
  }
  answer["would_change"] = decision->count;
  return Json(200, answer);
}

Result<Response> HoldMany(Context& context, Call& call) {
  const HoldRequest request = TakeHold(call.body);
  return ActOnMany(call, [&](const BulkWords& words) {
    return context.deps.letters.HoldWhere(words.filter, request, words.options, call.actor);
  });
}

Result<Response> ReleaseMany(Context& context, Call& call) {
  return ActOnMany(call, [&](const BulkWords& words) {
    return context.deps.letters.ReleaseWhere(words.filter, words.options, call.actor);
  });
}

Result<Response> ResolveMany(Context& context, Call& call) {
  const std::string name = call.body.Text("code");
  return ActOnMany(call, [&](const BulkWords& words) -> Result<Decision> {
    const auto code = CodeOf(name);
    if (!code) return std::unexpected(code.error());
    return context.deps.letters.ResolveWhere(words.filter, *code, words.options, call.actor);
  });
}

Result<Response> ReopenMany(Context& context, Call& call) {
  return ActOnMany(call, [&](const BulkWords& words) {
    return context.deps.letters.ReopenWhere(words.filter, words.options, call.actor);
  });
}

Result<Response> ListDecisions(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto decisions = context.deps.letters.Decisions(static_cast<int>(*limit));
  if (!decisions) return std::unexpected(decisions.error());
  return PageOf(ViewAll(*decisions), std::nullopt);
}

Result<Response> ShowDecision(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto decision = context.deps.letters.DecisionOf(*id);
  if (!decision) return std::unexpected(decision.error());
  return Json(200, View(*decision));
}

// Rules

Result<Response> ListRules(Context& context, Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto rules = context.deps.letters.Rules(static_cast<int>(*limit));
  if (!rules) return std::unexpected(rules.error());
  return PageOf(ViewAll(*rules), std::nullopt);
}

Result<Response> AddRule(Context& context, Call& call) {
  Rule rule;
  rule.name = call.body.Text("name");
  rule.match = call.body.TakeFilter("filter");
  const std::string code_name = call.body.Text("code");
  rule.hold_link = call.body.Text("link");
  rule.hold_owner = call.body.Text("owner");
  rule.expires_at = call.body.Moment("expires_at").value_or(Time{});
  const bool dry_run = call.body.Flag("dry_run");
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  if (!code_name.empty()) {
    const auto code = CodeOf(code_name);
    if (!code) return std::unexpected(code.error());
    rule.resolve_code = *code;
  }
  if (dry_run) {
    const auto trial = context.deps.letters.TryRule(rule);
    if (!trial) return std::unexpected(trial.error());
    return Json(200, View(*trial));
  }
  const auto made = context.deps.letters.AddRule(rule, call.actor);
  if (!made) return std::unexpected(made.error());
  return Json(201, View(*made));
}

Result<Response> EndRule(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  call.actor.reason = call.body.Text("reason");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto rule = context.deps.letters.EndRule(*id, call.actor);
  if (!rule) return std::unexpected(rule.error());
  return Json(200, View(*rule));
}

// Notes

struct PageWords {
  std::int64_t limit = kDefaultPage, before = 0;
};

Result<PageWords> TakePage(Call& call) {
  const auto limit = call.query.Number("limit", kDefaultPage, 1, kMaxPage);
  if (!limit) return std::unexpected(limit.error());
  const auto before = call.query.Number("cursor", 0, 1, INT64_MAX);
  if (!before) return std::unexpected(before.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  return PageWords{*limit, *before};
}

Result<Response> PageOfNotes(const Result<std::vector<Note>>& notes, std::int64_t limit) {
  if (!notes) return std::unexpected(notes.error());
  std::optional<std::string> next;
  if (std::ssize(*notes) == limit) next = std::to_string(notes->back().id);
  return PageOf(ViewAll(*notes), next);
}

Result<Response> ListNotes(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto page = TakePage(call);
  if (!page) return std::unexpected(page.error());
  return PageOfNotes(context.deps.letters.NotesOf(*id, page->before, static_cast<int>(page->limit)), page->limit);
}

Result<Response> ListGroupNotes(Context& context, Call& call) {
  const auto page = TakePage(call);
  if (!page) return std::unexpected(page.error());
  return PageOfNotes(context.deps.letters.GroupNotesOf(call.params.at(0), page->before, static_cast<int>(page->limit)),
                     page->limit);
}

template <typename Do>
Result<Response> TakeNote(Call& call, Do add) {
  const std::string text = call.body.Text("text");
  if (auto ok = call.body.Finish(); !ok) return std::unexpected(ok.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const Result<Note> note = add(text);
  if (!note) return std::unexpected(note.error());
  return Json(201, View(*note));
}

Result<Response> AddNote(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  return TakeNote(call, [&](const std::string& text) { return context.deps.letters.AddNote(*id, text, call.actor); });
}

Result<Response> AddGroupNote(Context& context, Call& call) {
  return TakeNote(call, [&](const std::string& text) {
    return context.deps.letters.AddGroupNote(call.params.at(0), text, call.actor);
  });
}

// Revisions

Result<Response> ListRevisions(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto revisions = context.deps.letters.Revisions(*id);
  if (!revisions) return std::unexpected(revisions.error());
  return PageOf(ViewAll(*revisions), std::nullopt);
}

/// The body is the payload, of any type; the rest is said in the query.
Result<Response> Revise(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto reason = call.query.Once("reason");
  if (!reason) return std::unexpected(reason.error());
  const auto original = call.query.Flag("original");
  if (!original) return std::unexpected(original.error());
  const auto after = call.query.Number("after", -1, 0, INT32_MAX);
  if (!after) return std::unexpected(after.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  call.actor.reason = reason->value_or(std::string());
  std::optional<int> seen;
  if (*after >= 0) seen = static_cast<int>(*after);
  if (*original && !call.raw.empty()) {
    return Fail(ErrorKind::invalid, "unexpected_body", "original=true sends the original again: it takes no body.");
  }
  const auto made = *original ? context.deps.letters.ReviseToOriginal(*id, call.actor, seen)
                              : context.deps.letters.Revise(*id, call.raw, call.actor, seen);
  if (!made) return std::unexpected(made.error());
  return Json(201, View(*made));
}

/// The second number of the path: 0 is the original.
Result<int> RevisionNumber(const Call& call) {
  if (call.params.at(1) == "0") return 0;
  const auto number = PathNumber(call, 1);
  if (!number) return std::unexpected(number.error());
  if (*number > INT32_MAX)
    return Fail(ErrorKind::not_found, "no_such_revision", "There is no revision of that number.");
  return static_cast<int>(*number);
}

Result<Response> ShowRevision(Context& context, Call& call) {
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto number = RevisionNumber(call);
  if (!number) return std::unexpected(number.error());
  auto payload = context.deps.letters.RevisionPayload(*id, *number);
  if (!payload) return std::unexpected(payload.error());
  return PayloadAnswer(std::move(*payload), "event-" + std::to_string(*id) + "-r" + std::to_string(*number) + ".body");
}

Result<Response> DiffRevision(Context& context, Call& call) {
  const auto id = PathNumber(call, 0);
  if (!id) return std::unexpected(id.error());
  const auto number = RevisionNumber(call);
  if (!number) return std::unexpected(number.error());
  const auto against = call.query.Number("against", 0, 0, INT32_MAX);
  if (!against) return std::unexpected(against.error());
  if (auto ok = call.query.Finish(); !ok) return std::unexpected(ok.error());
  const auto before = context.deps.letters.RevisionPayload(*id, static_cast<int>(*against));
  if (!before) return std::unexpected(before.error());
  const auto after = context.deps.letters.RevisionPayload(*id, *number);
  if (!after) return std::unexpected(after.error());
  const PayloadDiff diff = DiffPayloads(*before, *after);
  json::array changes;
  for (const PathChange& c : diff.changes) {
    changes.push_back(json::object{{"path", ToUtf8(c.path)},
                                   {"change", c.added     ? "added"
                                              : c.removed ? "removed"
                                                          : "changed"},
                                   {"before", c.before},
                                   {"after", c.after}});
  }
  return Json(200, {{"id", *id},
                    {"against", *against},
                    {"revision", *number},
                    {"kind", diff.kind},
                    {"changes", std::move(changes)},
                    {"cut", diff.cut}});
}

constexpr std::array kRoutes = {
    Route("POST", "/v1/dead-letters/hold", Permission::operator_, HoldMany),
    Route("POST", "/v1/dead-letters/release", Permission::operator_, ReleaseMany),
    Route("POST", "/v1/dead-letters/resolve", Permission::operator_, ResolveMany),
    Route("POST", "/v1/dead-letters/reopen", Permission::operator_, ReopenMany),
    Route("GET", "/v1/decisions", Permission::viewer, ListDecisions),
    Route("GET", "/v1/decisions/{id}", Permission::viewer, ShowDecision),
    Route("GET", "/v1/rules", Permission::viewer, ListRules),
    Route("POST", "/v1/rules", Permission::operator_, AddRule),
    Route("POST", "/v1/rules/{id}/end", Permission::operator_, EndRule),
    Route("GET", "/v1/events/{id}/notes", Permission::viewer, ListNotes),
    Route("POST", "/v1/events/{id}/notes", Permission::operator_, AddNote),
    Route("GET", "/v1/groups/{fingerprint}/notes", Permission::viewer, ListGroupNotes),
    Route("POST", "/v1/groups/{fingerprint}/notes", Permission::operator_, AddGroupNote),
    Route("GET", "/v1/events/{id}/revisions", Permission::viewer, ListRevisions),
    Route("POST", "/v1/events/{id}/revisions", Permission::operator_, Revise, Lane::store, Body::payload),
    Route("GET", "/v1/events/{id}/revisions/{number}/payload", Permission::operator_, ShowRevision),
    Route("GET", "/v1/events/{id}/revisions/{number}/diff", Permission::operator_, DiffRevision),
};

}  // namespace

std::span<const Route> DecisionRoutes() {
  return kRoutes;
}

}  // namespace dlo::server
