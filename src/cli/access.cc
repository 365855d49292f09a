// Who may do what, and who did: tokens and the audit log.
#include <fmt/format.h>

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
  std::string id, cursor;
  int limit = 50;
};

int Audit(Context& context, const AuditOptions& options) {
  std::optional<EventId> id = ParseId(options.id);
  if (!options.id.empty() && !id) return context.Report(ParseIds({options.id}).error());
  // One event's acts come whole; only the log of all of them has pages.
  std::string path = id ? fmt::format("/v1/events/{}/audit", *id) : fmt::format("/v1/audit?limit={}", options.limit);
  if (!id && !options.cursor.empty()) path += "&cursor=" + UrlEncode(options.cursor);
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
    context.Note(fmt::format("More: dlo audit --limit {} --cursor {}", options.limit, EscapeLine(ShellWord(next))));
  }
  return kDone;
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

  auto audit = std::make_shared<AuditOptions>();
  command = context.Command(app, "audit", "List who did what, newest first",
                            [&context, audit] { return Audit(context, *audit); });
  command->add_option("id", audit->id, "Only about this event");
  command->add_option("--limit", audit->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
  command->add_option("--cursor", audit->cursor, "Go on where an earlier list stopped");
}

}  // namespace dlo::cli
