// Who may do what, and who did: tokens and the audit log.
#include <fmt/format.h>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

struct CreateOptions {
  std::string name, role;
};

int CreateToken(Context& context, const CreateOptions& options) {
  auto answer = context.api().Post("/v1/tokens", {{"name", options.name}, {"role", options.role}});
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  context.Print(EscapeLine(Text(*body, "token")) + "\n");
  context.Note(fmt::format("Token \"{}\" with role {}. It is shown this once and kept nowhere; use it as DLO_TOKEN.",
                           EscapeLine(options.name), options.role));
  return kDone;
}

int ListTokens(Context& context) {
  auto answer = context.api().Get("/v1/tokens");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"NAME", false, true}, {"ROLE"}, {"AGE", true}, {"STATE"}});
  for (const auto& token : Items(*body)) {
    auto revoked = When(token, "revoked_at");
    table.Add({Text(token, "name"), Text(token, "role"), context.Ago(When(token, "created_at")),
               revoked ? Cell("revoked " + context.Ago(revoked) + " ago", Colour::dim) : Cell("live", Colour::green)});
  }
  if (table.empty()) return context.Note("No tokens."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

int RevokeToken(Context& context, const std::string& name) {
  auto answer = context.api().Post("/v1/tokens/" + UrlEncode(name) + "/revoke", {});
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  context.Print(fmt::format("{}: revoked\n", EscapeLine(name)));
  return kDone;
}

struct AuditOptions {
  std::string id, cursor, actor, action, since, until;
  int limit = 50;
  [[nodiscard]] std::vector<std::pair<const char*, const std::string*>> Words() const {
    return {{"actor", &actor}, {"action", &action}, {"since", &since}, {"until", &until}};
  }
};

/// "2h" and "7d" count back from now; everything else is the server's to judge.
void CountBack(std::string& time, Time now) {
  if (const auto back = ParseDuration(time)) time = FormatTime(now - *back);
}

int ListAudit(Context& context, AuditOptions& options) {
  std::optional<EventId> id = ParseId(options.id);
  if (!options.id.empty() && !id) return context.Report(ParseIds({options.id}).error());
  CountBack(options.since, context.deps.clock.Now());
  CountBack(options.until, context.deps.clock.Now());
  std::string words, again;
  for (const auto& [name, value] : options.Words()) {
    if (value->empty()) continue;
    words += fmt::format("&{}={}", name, UrlEncode(*value));
    again += fmt::format(" --{} {}", name, EscapeLine(ShellWord(*value)));
  }
  if (!options.cursor.empty()) words += "&cursor=" + UrlEncode(options.cursor);
  // One event's acts come whole; only the log of all of them, or a part that was asked for, has pages.
  std::string path =
      fmt::format("/v1/audit?limit={}{}{}", options.limit, words, id ? fmt::format("&event={}", *id) : "");
  if (id && words.empty()) path = fmt::format("/v1/events/{}/audit", *id);
  auto answer = context.api().Get(path);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"SEQ", true},
               {"WHEN"},
               {"WHO", false, true},
               {"ROLE"},
               {"ACT"},
               {"EVENT", true},
               {"REASON", false, true},
               {"DETAILS", false, true}});
  for (const auto& record : Items(*body)) {
    table.Add({Text(record, "seq"), Text(record, "at"), Text(record, "actor"), Text(record, "role"),
               Text(record, "action"), Number(record, "event_id") > 0 ? Text(record, "event_id") : "",
               Text(record, "reason"), Text(record, "details")});
  }
  if (table.empty()) return context.Note("No acts yet."), kDone;
  context.Print(table.Render(context.OutStyle()));
  if (std::string next = Text(*body, "next"); !next.empty()) {
    context.Note(fmt::format("More: dlo audit list{}{} --limit {} --cursor {}", id ? fmt::format(" {}", *id) : "",
                             again, options.limit, EscapeLine(ShellWord(next))));
  }
  return kDone;
}

int ShowHead(Context& context) {
  auto answer = context.api().Get("/v1/audit/head");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  context.Print(fmt::format("Audit record  {}\nHash          {}\nRead at       {}\n", Number(*body, "seq"),
                            EscapeLine(Text(*body, "hash")), EscapeLine(Text(*body, "at"))));
  const auto* journal = body->is_object() ? body->as_object().if_contains("journal") : nullptr;
  if (journal != nullptr && journal->is_object()) {
    context.Print(fmt::format("Journal       segment {}, {} bytes, SHA-256 {}\n", Number(*journal, "segment"),
                              Number(*journal, "bytes"), EscapeLine(Text(*journal, "sha256"))));
  }
  return kDone;
}

void AddAuditCommands(CLI::App& app, Context& context) {
  auto options = std::make_shared<AuditOptions>();
  const auto list = [&context, options] { return ListAudit(context, *options); };
  CLI::App* audit = context.Command(app, "audit", "List who did what, newest first", list);
  const auto add_options = [&](CLI::App* command) {
    command->add_option("id,--event", options->id, "Only about this event");
    command->add_option("--actor", options->actor, "Only what this one did");
    command->add_option("--action", options->action, "Only this act: replay, hold, resolve, token_create, ...");
    command->add_option("--since", options->since, "From this time on (RFC 3339, a date, or 2h, 7d before now)");
    command->add_option("--until", options->until, "Before this time; of a date, that day too");
    command->add_option("--limit", options->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
    command->add_option("--cursor", options->cursor, "Go on where an earlier list stopped");
  };
  // The parser runs a parent's callback after its subcommand's.
  audit->callback([&context, audit, list] {
    if (audit->get_subcommands().empty()) context.run = list;
  });
  add_options(audit);
  add_options(context.Command(*audit, "list", "The same", list));
  context.Command(*audit, "head", "Number and hash of the newest record: what to keep elsewhere",
                  [&context] { return ShowHead(context); });
}

}  // namespace

void AddAccessCommands(CLI::App& app, Context& context) {
  CLI::App* token = app.add_subcommand("token", "Make, list and revoke access tokens");
  token->require_subcommand(1);
  auto create = std::make_shared<CreateOptions>();
  CLI::App* command = context.Command(*token, "create", "Make a token; it is printed once",
                                      [&context, create] { return CreateToken(context, *create); });
  command->add_option("name", create->name, "Whose it is; shown in the audit log")->required();
  command->add_option("--role", create->role, "viewer reads, operator triages, admin makes tokens")
      ->required()
      ->check(CLI::IsMember({"viewer", "operator", "admin"}));
  context.Command(*token, "list", "List tokens, revoked ones too", [&context] { return ListTokens(context); });
  auto name = std::make_shared<std::string>();
  command = context.Command(*token, "revoke", "Make a token useless, at once",
                            [&context, name] { return RevokeToken(context, *name); });
  command->add_option("name", *name, "Name of the token")->required();

  AddAuditCommands(app, context);
}

}  // namespace dlo::cli
