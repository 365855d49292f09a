// `dlo replays list|show|items|pause|resume|cancel`: what bulk replays do, and steering them.
#include <fmt/format.h>

#include <ostream>

#include "cli/context.h"
#include "cli/json.h"
#include "cli/replay_text.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::object;
using boost::json::value;

Colour ColourOf(const std::string& state) {
  return state == "done" ? Colour::green : state == "stopped" ? Colour::red : Colour::yellow;
}

int ListReplays(Context& context) {
  auto answer = context.api().Get("/v1/replays");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true},
               {"AGE", true},
               {"KIND"},
               {"STATE"},
               {"COUNT", true},
               {"QUEUED", true},
               {"RUNNING", true},
               {"COMMITTED", true},
               {"DEAD AGAIN", true},
               {"SKIPPED", true},
               {"WHO", false, true},
               {"WHY", false, true}});
  for (const value& r : Items(*body)) {
    const std::string state = Text(r, "state");
    table.Add({Text(r, "id"),
               context.Ago(When(r, "created_at")),
               Text(r, "kind"),
               {state, ColourOf(state)},
               Text(r, "count"),
               Text(r, "queued"),
               Text(r, "running"),
               Text(r, "committed"),
               Text(r, "dead_again"),
               Text(r, "skipped"),
               Text(r, "actor"),
               Text(r, "reason")});
  }
  if (table.empty()) return context.Note("No replays yet."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

void PrintReplay(const Context& context, const value& r) {
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) context.Print(fmt::format("{:<12}{}\n", name, text));
  };
  const std::string word = Text(r, "word"), id = Text(r, "id");
  line("Replay", fmt::format("{} ({})", id, Text(r, "kind")));
  line("State", Text(r, "state") + (word.empty() ? "" : fmt::format(", said {}: {}", Text(r, "word_of"), word)));
  line("Made",
       fmt::format("{} ago by {}: {}", context.Ago(When(r, "created_at")), Text(r, "actor"), Text(r, "reason")));
  if (const value* filter = Field(r, "filter")) line("Filter", EscapeLine(boost::json::serialize(*filter)));
  line("Letters", fmt::format("{}, frozen; {} left out since another replay had them", Number(r, "count"),
                              Number(r, "in_other_replay")));
  line("Queued", fmt::format("{}, of them {} handed over", Number(r, "queued"),
                             Number(r, "queued") + Number(r, "requeued") - Number(r, "count") + Number(r, "skipped")));
  line("Running", Text(r, "running"));
  line("Committed",
       fmt::format("{}, of them {} had been applied before", Number(r, "committed"), Number(r, "already_applied")));
  line("Dead again", fmt::format("{} (it stops itself over {} % of the last 20)", Number(r, "dead_again"),
                                 Number(r, "stop_percent")));
  line("Skipped", Text(r, "skipped"));
  if (Number(r, "notifications_suppressed") > 0)
    line("Notified", fmt::format("not for {}: their moment had passed", Number(r, "notifications_suppressed")));
  if (auto end = When(r, "estimated_end"))
    line("Pace", fmt::format("{} a second, until about {}", Text(r, "per_second"), Text(r, "estimated_end")));
  if (Halted(r)) {
    context.Print(
        fmt::format("\nWhat you can do next\ndlo replays items {0} --result dead_again\ndlo replays resume "
                    "{0} --reason TEXT\ndlo replays cancel {0} --reason TEXT\n",
                    id));
  }
}

std::optional<std::int64_t> Id(const Context& context, const std::string& text) {
  auto id = ParseId(text);
  if (!id) (void)context.Usage(fmt::format("\"{}\" is no number of a replay", text));
  return id;
}

int ShowReplay(Context& context, const std::string& id_text) {
  const auto id = Id(context, id_text);
  if (!id) return kUsage;
  auto answer = context.api().Get(fmt::format("/v1/replays/{}", *id));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  PrintReplay(context, *body);
  return kDone;
}

struct ItemOptions {
  std::string id, state, result, cursor;
  int limit = 50;
};

int ListItems(Context& context, const ItemOptions& options) {
  const auto id = Id(context, options.id);
  if (!id) return kUsage;
  std::string query = fmt::format("/v1/replays/{}/items?limit={}", *id, options.limit);
  for (const auto& [name, text] :
       {std::pair{"state", options.state}, {"result", options.result}, {"cursor", options.cursor}})
    if (!text.empty()) query += fmt::format("&{}={}", name, UrlEncode(text));
  auto answer = context.api().Get(query);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true}, {"STATE"}, {"RESULT"}, {"REASON", false, true}});
  for (const value& item : Items(*body)) {
    table.Add({Text(item, "id"), Text(item, "state"), Text(item, "result"), Text(item, "reason")});
  }
  if (table.empty()) return context.Note("No such letters."), kDone;
  context.Print(table.Render(context.OutStyle()));
  if (const std::string next = Text(*body, "next"); !next.empty())
    context.Note(fmt::format("More: add --cursor {}", next));
  return kDone;
}

int Steer(Context& context, const std::string& act, const std::string& id_text, const std::string& reason) {
  const auto id = Id(context, id_text);
  if (!id) return kUsage;
  object body;
  if (!reason.empty()) body["reason"] = reason;
  auto answer = context.api().Post(fmt::format("/v1/replays/{}/{}", *id, act), body);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto progress = ParseBody(*answer);
  if (!progress) return context.Report(progress.error());
  context.Print(fmt::format("{}: {}\n", Text(*progress, "state"), ProgressLine(*progress)));
  return kDone;
}

}  // namespace

std::string ProgressLine(const value& progress) {
  std::string line = fmt::format(
      "replay {}: {} of {} handed over, {} committed, {} dead again, {} skipped, {} remaining", Text(progress, "id"),
      Number(progress, "requeued"), Number(progress, "count"), Number(progress, "committed"),
      Number(progress, "dead_again"), Number(progress, "skipped"), Number(progress, "remaining"));
  if (!Finished(progress) && !Halted(progress) && When(progress, "estimated_end")) {
    line += fmt::format(", {}/s, until {}", Text(progress, "per_second"), Text(progress, "estimated_end"));
  }
  return line;
}

bool Finished(const value& progress) {
  const std::string state = Text(progress, "state");
  return state == "done" || state == "cancelled";
}

bool Halted(const value& progress) {
  const std::string state = Text(progress, "state");
  return state == "paused" || state == "stopped";
}

void AddReplaysCommands(CLI::App& app, Context& context) {
  auto id = std::make_shared<std::string>();
  CLI::App* replays =
      context.Command(app, "replays", "List bulk replays and drains, show one, or steer it", [] { return int{kDone}; });
  replays->add_option("id", *id, "Number of a replay, as for show");
  replays->require_subcommand(0, 1);
  // Runs after that of the subcommand, if there is one.
  replays->callback([&context, replays, id] {
    if (!replays->get_subcommands().empty()) return;
    context.run = [&context, id] { return id->empty() ? ListReplays(context) : ShowReplay(context, *id); };
  });
  context.Command(*replays, "list", "Newest first", [&context] { return ListReplays(context); });
  CLI::App* show = context.Command(*replays, "show", "One, whole", [&context, id] { return ShowReplay(context, *id); });
  show->add_option("id", *id, "Number of the replay")->required();

  auto items = std::make_shared<ItemOptions>();
  CLI::App* list = context.Command(*replays, "items", "How each of its letters stands",
                                   [&context, items] { return ListItems(context, *items); });
  list->add_option("id", items->id, "Number of the replay")->required();
  list->add_option("--state", items->state, "queued, running or ended");
  list->add_option("--result", items->result, "committed, already_applied, gone, resolved, dead_again or skipped");
  list->add_option("--limit", items->limit, "Letters a page")->check(CLI::Range(1, 500))->capture_default_str();
  list->add_option("--cursor", items->cursor, "Where the page before ended");

  auto reason = std::make_shared<std::string>();
  for (const auto& [act, about] : {std::pair{"pause", "Hand nothing more over until it is resumed"},
                                   {"resume", "Go on with one that is paused or stopped itself"},
                                   {"cancel", "Leave what was not handed over as dead letters, for good"}}) {
    CLI::App* steer = context.Command(*replays, act, about, [&context, id, reason, name = std::string(act)] {
      return Steer(context, name, *id, *reason);
    });
    steer->add_option("id", *id, "Number of the replay")->required();
    steer->add_option("--reason", *reason, "Why; kept in the audit log");
  }
}

}  // namespace dlo::cli
