// The readers of many letters: list, count, groups, rejected; and payload, the exact bytes of one.
#include <fmt/format.h>

#include <ostream>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/filter_options.h"
#include "cli/json.h"
#include "cli/letter_text.h"
#include "cli/list.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

std::string WithQuery(const std::string& path, const std::vector<std::string>& parts) {
  std::string query;
  for (const std::string& part : parts) {
    if (!part.empty()) query += (query.empty() ? "?" : "&") + part;
  }
  return path + query;
}

struct ListOptions {
  FilterOptions filter;
  int limit = 50;
  std::string cursor;
};

int List(Context& context, ListOptions& options) {
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  std::string cursor = options.cursor.empty() ? "" : "cursor=" + UrlEncode(options.cursor);
  auto answer = context.api().Get(
      WithQuery("/v1/dead-letters", {options.filter.Query(), fmt::format("limit={}", options.limit), cursor}));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table = LetterTable(context);
  for (const auto& letter : Items(*body)) AddLetter(table, letter, context);
  if (table.empty()) {
    context.Note(options.filter.Empty() ? "No dead letters." : "No dead letters match.");
    return kDone;
  }
  context.Print(table.Render(context.OutStyle()));
  if (std::string next = Text(*body, "next"); !next.empty()) {
    std::string words = options.filter.Words();
    context.Note(fmt::format("More: dlo list{}{} --limit {} --cursor {}", words.empty() ? "" : " ", EscapeLine(words),
                             options.limit, EscapeLine(ShellWord(next))));
  }
  return kDone;
}

int Count(Context& context, FilterOptions& filter) {
  if (auto ok = filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  auto answer = context.api().Get(WithQuery("/v1/dead-letters/count", {filter.Query()}));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  context.Print(fmt::format("{}\n", Number(*body, "count")));
  return kDone;
}

struct GroupOptions {
  FilterOptions filter;
  std::string by = "fingerprint";
};

int Groups(Context& context, GroupOptions& options) {
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  auto answer = context.api().Get(WithQuery("/v1/dead-letters/groups", {"by=" + options.by, options.filter.Query()}));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  std::string by = options.by == "type" ? "KIND" : options.by;
  for (char& c : by) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  bool own_class = options.by != "class", own_kind = options.by != "type", narrow = context.Narrow();
  // Columns that most stores have no use for come when there is something in them.
  bool judged = false, noted = false;
  for (const auto& group : Items(*body)) {
    judged = judged || Number(group, "not_judged") > 0 || Number(group, "ready") > 0;
    noted = noted || Number(group, "notes") > 0;
  }
  std::vector<Column> columns = {{"COUNT", true}, {by, false, options.by == "account"}};
  if (own_class) columns.push_back({"CLASS"});
  if (own_kind) columns.push_back({"KIND", false, true, 2});
  if (!narrow) columns.push_back({"FIRST", true});
  if (judged) columns.insert(columns.end(), {{"NOT JUDGED BY", false, true}, {"READY", true}});
  columns.insert(columns.end(), {{"LAST", true}, {"SAMPLE", true}, {"MESSAGE", false, true, 3}});
  if (noted) columns.push_back({"NOTES", false, true});
  Table table(columns);
  for (const auto& group : Items(*body)) {
    std::vector<Cell> row = {Text(group, "count"), Text(group, "value")};
    if (own_class) row.push_back(Text(group, "class"));
    if (own_kind) row.push_back(Text(group, "kind"));
    if (!narrow) row.push_back(context.Ago(When(group, "first_seen")));
    if (judged) {
      std::string version = Text(group, "handler_version");
      row.push_back(version.empty() ? "" : fmt::format("{}: {}", version, Number(group, "not_judged")));
      row.push_back(Text(group, "ready"));
    }
    row.push_back(context.Ago(When(group, "last_seen")));
    row.push_back(Text(group, "sample_id"));
    row.push_back(narrow ? BriefFailure(group) : FailureText(group));
    if (noted) {
      row.push_back(Number(group, "notes") > 0 ? fmt::format("{}: {}", Number(group, "notes"), Text(group, "last_note"))
                                               : "");
    }
    table.Add(std::move(row));
  }
  if (table.empty()) return context.Note("No dead letters match."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

struct RejectedOptions {
  std::string id, source, cursor;
  int limit = 50;
};

int ListRejected(Context& context, const RejectedOptions& options) {
  auto answer = context.api().Get(WithQuery(
      "/v1/rejected",
      {options.source.empty() ? "" : "source=" + UrlEncode(options.source), fmt::format("limit={}", options.limit),
       options.cursor.empty() ? "" : "cursor=" + UrlEncode(options.cursor)}));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true}, {"AGE", true}, {"SOURCE"}, {"REASON"}, {"FROM", false, true}, {"BYTES", true}});
  for (const auto& one : Items(*body)) {
    table.Add({Text(one, "id"),
               context.Ago(When(one, "at")),
               Text(one, "source"),
               {Text(one, "reason"), Colour::red},
               Text(one, "remote"),
               Text(one, "body_bytes")});
  }
  if (table.empty()) return context.Note("No rejected deliveries."), kDone;
  context.Print(table.Render(context.OutStyle()));
  if (std::string next = Text(*body, "next"); !next.empty()) {
    context.Note(fmt::format("More: dlo rejected --cursor {}", EscapeLine(ShellWord(next))));
  }
  return kDone;
}

// One rejected delivery: what a person needs to see which secret or scheme is wrong.
int ShowRejected(Context& context, const std::string& id_text) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id) return context.Usage(fmt::format("\"{}\" is no number of a rejected delivery", id_text));
  auto answer = context.api().Get(fmt::format("/v1/rejected/{}", *id));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  std::string text =
      fmt::format("Rejected    {} at {}, from {}\nSource      {}\nReason      {}\n", *id, Text(*body, "at"),
                  Text(*body, "remote"), Text(*body, "source"), Text(*body, "reason"));
  text += "\nHeaders\n";
  for (const auto& header : Items(*body, "headers")) {
    text += EscapeLine(Text(header, "name") + ": " + Text(header, "value")) + "\n";
  }
  text += "\nBody\n" + (Field(*body, "body") ? Text(*body, "body") : Text(*body, "body_base64")) + "\n";
  context.Print(EscapeBlock(text));
  return kDone;
}

int Payload(Context& context, const std::string& id_text, bool raw, int revision) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id) return context.Report(ParseIds({id_text}).error());
  auto answer = context.api().Get(revision > 0 ? fmt::format("/v1/events/{}/revisions/{}/payload", *id, revision)
                                               : fmt::format("/v1/events/{}/payload", *id),
                                  std::chrono::minutes(5));
  if (!answer) return context.Report(answer.error());
  // A pipe gets the bytes; a terminal must not be driven by them.
  if (!context.deps.terminal.out || raw) return context.Print(answer->body), kDone;
  std::string text = EscapeBlock(PrettyJson(answer->body));
  context.Print(text);
  if (!text.ends_with('\n')) context.Print("\n");
  return kDone;
}

}  // namespace

int ShowDeadLetters(Context& context, const std::string& source, int limit) {
  ListOptions options;
  options.limit = limit;
  options.filter.Only("source", source);
  return List(context, options);
}

int ShowGroups(Context& context, const std::string& source) {
  GroupOptions options;
  options.filter.Only("source", source);
  return Groups(context, options);
}

void AddListCommands(CLI::App& app, Context& context) {
  auto list = std::make_shared<ListOptions>();
  CLI::App* command = context.Command(app, "list", "List dead letters, newest receipt first",
                                      [&context, list] { return List(context, *list); });
  list->filter.AddTo(command);
  command->add_option("--limit", list->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
  command->add_option("--cursor", list->cursor, "Go on where an earlier list stopped");

  auto filter = std::make_shared<FilterOptions>();
  command = context.Command(app, "count", "Count dead letters, exactly",
                            [&context, filter] { return Count(context, *filter); });
  filter->AddTo(command);

  auto groups = std::make_shared<GroupOptions>();
  command = context.Command(app, "groups", "Group dead letters by like failures, largest group first",
                            [&context, groups] { return Groups(context, *groups); });
  command->add_option("--by", groups->by, "What makes a group")
      ->check(CLI::IsMember({"fingerprint", "type", "account", "source", "class"}))
      ->capture_default_str();
  groups->filter.AddTo(command);

  auto rejected = std::make_shared<RejectedOptions>();
  command = context.Command(app, "rejected", "List deliveries that failed verification, and why; or show one",
                            [&context, rejected] {
                              if (!rejected->id.empty()) return ShowRejected(context, rejected->id);
                              return ListRejected(context, *rejected);
                            });
  command->add_option("id", rejected->id, "Show this one, with its headers and body");
  command->add_option("--source", rejected->source, "Only of this source");
  command->add_option("--limit", rejected->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
  command->add_option("--cursor", rejected->cursor, "Go on where an earlier list stopped");

  struct PayloadOptions {
    std::string id;
    bool raw = false;
    int revision = 0;
  };
  auto payload = std::make_shared<PayloadOptions>();
  command =
      context.Command(app, "payload", "Print the body of an event: exact bytes in a pipe, readable on a terminal",
                      [&context, payload] { return Payload(context, payload->id, payload->raw, payload->revision); });
  command->add_option("id", payload->id, "Id of the event")->required();
  command->add_option("--revision", payload->revision, "Of this revision; 0 is the original")
      ->check(CLI::NonNegativeNumber);
  command->add_flag("--raw", payload->raw, "Exact bytes on a terminal too");
}

}  // namespace dlo::cli
