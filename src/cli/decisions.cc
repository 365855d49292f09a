// `dlo decisions`, `dlo rules`, `dlo note`, `dlo revise` and `dlo revisions`.
#include <fmt/format.h>

#include "base/time_text.h"
#include "cli/bulk.h"
#include "cli/context.h"
#include "cli/decision_text.h"
#include "cli/delivery.h"
#include "cli/filter_options.h"
#include "cli/json.h"
#include "cli/text.h"
#include "dlo/states.h"

namespace dlo::cli {
namespace {

using boost::json::object;
using boost::json::value;

int ShowDecisions(Context& context, const std::string& id_text) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id_text.empty() && !id) return context.Usage(fmt::format("\"{}\" is no number of a decision", id_text));
  auto answer = context.api().Get(id ? fmt::format("/v1/decisions/{}", *id) : "/v1/decisions");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true},
               {"AGE", true},
               {"ACT"},
               {"STATE"},
               {"COUNT", true},
               {"CHANGED", true},
               {"SKIPPED", true},
               {"WHO", false, true},
               {"WHY", false, true}});
  auto add = [&](const value& d) {
    std::string state = Text(d, "state");
    table.Add({Text(d, "id"),
               context.Ago(When(d, "created_at")),
               Text(d, "act"),
               {state, state == "done" ? Colour::green : Colour::yellow},
               Text(d, "count"),
               Text(d, "changed"),
               Text(d, "skipped"),
               Text(d, "actor"),
               Text(d, "reason")});
  };
  if (id) {
    add(*body);
  } else {
    for (const value& one : Items(*body)) add(one);
  }
  if (table.empty()) return context.Note("No decisions on many letters yet."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

// Rules

struct RuleOptions {
  FilterOptions match;
  std::string name, code, link, owner, expires, reason;
};

Result<object> RuleBody(Context& context, RuleOptions& options) {
  if (auto ok = options.match.Check(context.deps.clock.Now()); !ok) return std::unexpected(ok.error());
  object body = {{"name", options.name}, {"filter", options.match.Json()}};
  if (!options.code.empty()) body["code"] = options.code;
  if (!options.link.empty()) body["link"] = options.link;
  if (!options.owner.empty()) body["owner"] = options.owner;
  if (!options.reason.empty()) body["reason"] = options.reason;
  if (options.expires.empty()) return body;
  std::optional<Duration> from_now = ParseDuration(options.expires);
  if (!from_now && !ParseTime(options.expires)) {
    return Fail(ErrorKind::invalid, "usage",
                fmt::format("--expires \"{}\" is no time; write 2027-01-31, 2027-01-31T13:00:00Z, or 30d from now",
                            options.expires));
  }
  body["expires_at"] = from_now ? FormatTime(context.deps.clock.Now() + *from_now) : options.expires;
  return body;
}

int TryRule(Context& context, RuleOptions& options) {
  auto body = RuleBody(context, options);
  if (!body) return context.Report(body.error());
  (*body)["dry_run"] = true;
  auto answer = context.api().Post("/v1/rules", *body);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto trial = ParseBody(*answer);
  if (!trial) return context.Report(trial.error());
  std::string samples;
  for (const value& id : Items(*trial, "samples")) samples += " " + boost::json::serialize(id);
  context.Print(fmt::format("Would have matched {} of the letters that are dead now{}\n", Number(*trial, "would_match"),
                            samples.empty() ? "" : ":" + samples));
  return kDone;
}

int AddRule(Context& context, RuleOptions& options) {
  if (options.code.empty() == options.link.empty()) {
    return context.Usage("a rule resolves (--code CODE) or holds (--link URL): give one of them");
  }
  auto body = RuleBody(context, options);
  if (!body) return context.Report(body.error());
  auto answer = context.api().Post("/v1/rules", *body);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto rule = ParseBody(*answer);
  if (!rule) return context.Report(rule.error());
  context.Print(fmt::format("rule {} ({}) is live until {}; letters that died before it stay: dlo rules end {}\n",
                            Text(*rule, "id"), EscapeLine(Text(*rule, "name")), Text(*rule, "expires_at"),
                            Text(*rule, "id")));
  return kDone;
}

int ListRules(Context& context) {
  auto answer = context.api().Get("/v1/rules");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true},
               {"NAME"},
               {"STATE"},
               {"ACT"},
               {"HITS", true},
               {"LAST HIT", true},
               {"EXPIRES"},
               {"MATCHES", false, true},
               {"WHO", false, true},
               {"WHY", false, true}});
  for (const value& rule : Items(*body)) {
    std::string state = Text(rule, "state"), code = Text(rule, "code");
    const value* filter = Field(rule, "filter");
    table.Add({Text(rule, "id"),
               Text(rule, "name"),
               {state, state == "live" ? Colour::green : Colour::dim},
               code.empty() ? "hold " + Text(rule, "link") : "resolve " + code,
               Text(rule, "hits"),
               context.Ago(When(rule, "last_hit_at")),
               Text(rule, "expires_at"),
               filter ? boost::json::serialize(*filter) : "",
               Text(rule, "actor"),
               Text(rule, "reason")});
  }
  if (table.empty()) return context.Note("No rules."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

int EndRule(Context& context, const std::string& id_text, const std::string& reason) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id) return context.Usage(fmt::format("\"{}\" is no number of a rule; see `dlo rules list`", id_text));
  object body;
  if (!reason.empty()) body["reason"] = reason;
  auto answer = context.api().Post(fmt::format("/v1/rules/{}/end", *id), body);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto rule = ParseBody(*answer);
  if (!rule) return context.Report(rule.error());
  context.Print(fmt::format("rule {} ended after {} hits\n", *id, Number(*rule, "hits")));
  return kDone;
}

void AddRuleCommands(CLI::App& app, Context& context) {
  CLI::App* rules = app.add_subcommand("rules", "Decisions made ahead: letters that match when they die");
  rules->require_subcommand(1);
  context.Command(*rules, "list", "List rules, live ones first", [&context] { return ListRules(context); });

  auto add = std::make_shared<RuleOptions>();
  CLI::App* command = context.Command(*rules, "add", "Resolve or hold letters that match, as they die, until a date",
                                      [&context, add] { return AddRule(context, *add); });
  command->add_option("name", add->name, "Name of the rule: its acts are those of rule:NAME")->required();
  add->match.AddTo(command);
  command->add_option("--code", add->code, "Resolve them, with this code");
  command->add_option("--link", add->link, "Hold them, for this issue");
  command->add_option("--owner", add->owner, "Who sees to what is held");
  command->add_option("--expires", add->expires, "A time, a date, or 30d from now; at most 90 days")->required();
  command->add_option("--reason", add->reason, "Why; kept with each letter")->required();

  auto tried = std::make_shared<RuleOptions>();
  command = context.Command(*rules, "try", "What a rule would have matched among the letters that are dead now",
                            [&context, tried] { return TryRule(context, *tried); });
  tried->match.AddTo(command);

  struct EndOptions {
    std::string id, reason;
  };
  auto end = std::make_shared<EndOptions>();
  command = context.Command(*rules, "end", "End a rule; what it did stays",
                            [&context, end] { return EndRule(context, end->id, end->reason); });
  command->add_option("id", end->id, "Number of the rule")->required();
  command->add_option("--reason", end->reason, "Why; kept in the audit log");
}

// Notes

struct NoteOptions {
  std::string id, text, group;
};

int Note(Context& context, NoteOptions& options) {
  // With --group the first word is the text.
  if (!options.group.empty() && options.text.empty()) std::swap(options.id, options.text);
  std::optional<EventId> id = ParseId(options.id);
  if (options.group.empty() && !id) return context.Report(ParseIds({options.id}).error());
  if (!options.group.empty() && !options.id.empty()) return context.Usage("give an id or --group, not both");
  std::string path = options.group.empty() ? fmt::format("/v1/events/{}/notes", *id)
                                           : "/v1/groups/" + UrlEncode(options.group) + "/notes";
  auto answer = options.text.empty() ? context.api().Get(path) : context.api().Post(path, {{"text", options.text}});
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  if (!options.text.empty()) return context.Print(fmt::format("note {} kept\n", Text(*body, "id"))), kDone;
  std::string text = NotesText(Items(*body));
  if (text.empty()) return context.Note("No notes."), kDone;
  context.Print(text);
  return kDone;
}

// Revisions

struct ReviseOptions {
  std::string id, file, reason;
  bool original = false;
  int after = -1;
};

int Revise(Context& context, const ReviseOptions& options) {
  std::optional<EventId> id = ParseId(options.id);
  if (!id) return context.Report(ParseIds({options.id}).error());
  if (options.file.empty() == !options.original) {
    return context.Usage("revise with what? Give a file (- for stdin), or --original to send the original again");
  }
  std::string path = fmt::format("/v1/events/{}/revisions?reason={}", *id, UrlEncode(options.reason));
  if (options.original) path += "&original=true";
  if (options.after >= 0) path += fmt::format("&after={}", options.after);
  std::string bytes;
  if (!options.original) {
    auto read = ReadInput(context, options.file);
    if (!read) return context.Report(read.error());
    bytes = std::move(*read);
  }
  auto answer = context.api().PostBytes(path, bytes, std::chrono::minutes(5));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto made = ParseBody(*answer);
  if (!made) return context.Report(made.error());
  if (options.original) {
    context.Print(fmt::format("revision {}: replays of {} send the original again\n", Text(*made, "number"), *id));
  } else {
    context.Print(fmt::format("revision {}: {} bytes; see it: dlo revisions {} --diff {}; send it: dlo replay {}\n",
                              Text(*made, "number"), Text(*made, "body_bytes"), *id, Text(*made, "number"), *id));
  }
  return kDone;
}

int ShowDiff(Context& context, EventId id, int number) {
  auto answer = context.api().Get(fmt::format("/v1/events/{}/revisions/{}/diff", id, number));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto diff = ParseBody(*answer);
  if (!diff) return context.Report(diff.error());
  if (Items(*diff, "changes").empty()) return context.Note("Nothing differs from the original."), kDone;
  const Style style = context.OutStyle();
  std::string text;
  for (const value& change : Items(*diff, "changes")) {
    text += Paint(EscapeLine(Text(change, "path")), Colour::bold, style) + "\n";
    std::string what = Text(change, "change");
    if (what != "added") text += Paint("  - " + EscapeLine(Text(change, "before")), Colour::red, style) + "\n";
    if (what != "removed") text += Paint("  + " + EscapeLine(Text(change, "after")), Colour::green, style) + "\n";
  }
  if (Flag(*diff, "cut")) text += "… and more\n";
  context.Print(text);
  return kDone;
}

int ShowRevisions(Context& context, const std::string& id_text, int diff) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id) return context.Report(ParseIds({id_text}).error());
  if (diff > 0) return ShowDiff(context, *id, diff);
  auto answer = context.api().Get(fmt::format("/v1/events/{}/revisions", *id));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table = RevisionTable(Items(*body));
  if (table.empty()) return context.Note("No revisions: replays send the original."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

void AddRevisionCommands(CLI::App& app, Context& context) {
  auto revise = std::make_shared<ReviseOptions>();
  CLI::App* command =
      context.Command(app, "revise", "Correct the payload of a dead letter; the original stays as it was received",
                      [&context, revise] { return Revise(context, *revise); });
  command->add_option("id", revise->id, "Id of the letter")->required();
  command->add_option("file", revise->file, "The corrected payload, whole (- for stdin)");
  command->add_flag("--original", revise->original, "Send the original again");
  command->add_option("--reason", revise->reason, "Why; kept with the revision")->required();
  command->add_option("--after", revise->after, "Only if this is the newest revision (0: there is none)")
      ->check(CLI::NonNegativeNumber);

  struct Which {
    std::string id;
    int diff = 0;
  };
  auto which = std::make_shared<Which>();
  command = context.Command(app, "revisions", "List corrected payloads, or what one changes",
                            [&context, which] { return ShowRevisions(context, which->id, which->diff); });
  command->add_option("id", which->id, "Id of the letter")->required();
  command->add_option("--diff", which->diff, "What this revision changes of the original")->check(CLI::PositiveNumber);
}

}  // namespace

void AddDecisionCommands(CLI::App& app, Context& context) {
  auto id = std::make_shared<std::string>();
  CLI::App* command = context.Command(app, "decisions", "List acts on many letters, or show one",
                                      [&context, id] { return ShowDecisions(context, *id); });
  command->add_option("id", *id, "Number of a decision");
  AddRuleCommands(app, context);

  auto note = std::make_shared<NoteOptions>();
  command = context.Command(app, "note", "Add a note to an event or a group of like failures, or read them",
                            [&context, note] { return Note(context, *note); });
  command->add_option("id", note->id, "Id of the event (not with --group)");
  command->add_option("text", note->text, "The note; without one, the notes that there are");
  command->add_option("--group", note->group, "Fingerprint of the group, from `dlo groups`");
  AddRevisionCommands(app, context);
}

}  // namespace dlo::cli
