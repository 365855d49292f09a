// `dlo prune`, `dlo legal-hold` and `dlo archive`.
#include <fmt/format.h>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/filter_options.h"
#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::object;
using boost::json::value;

// The server waits for as long as it is told; moving a year of events takes its time.
constexpr Duration kPruneTimeout = std::chrono::minutes(11);

struct PruneOptions {
  std::string dead = "infinity", succeeded = "infinity", reason, wait = "30s";
  bool yes = false;
};

/// A number of days, or "infinity".
Result<value> Days(const char* option, const std::string& text) {
  if (text == "infinity") return value("infinity");
  boost::system::error_code error;
  value number = boost::json::parse(text, error);
  if (!error && number.is_number()) return number;
  return Fail(ErrorKind::invalid, "bad_days", fmt::format("{} takes a number of days or infinity", option));
}

int Prune(Context& context, const PruneOptions& options) {
  if (options.dead == "infinity" && options.succeeded == "infinity") {
    return context.Usage("nothing to prune: give --succeeded-older-than-days or --dead-older-than-days");
  }
  const auto dead = Days("--dead-older-than-days", options.dead);
  const auto succeeded = Days("--succeeded-older-than-days", options.succeeded);
  if (!dead) return context.Usage(dead.error().message);
  if (!succeeded) return context.Usage(succeeded.error().message);
  if (!ParseDuration(options.wait)) return context.Usage("--wait takes a duration such as \"30s\" or \"5m\"");
  if (!options.yes) {
    std::string what;
    if (options.succeeded != "infinity") {
      what +=
          fmt::format("succeeded events that ended over {} days ago leave the index", EscapeLine(options.succeeded));
    }
    if (options.dead != "infinity") {
      what += fmt::format("{}dead letters parked over {} days ago move to the archive", what.empty() ? "" : "; ",
                          EscapeLine(options.dead));
    }
    if (!context.Ask(what + ". Go on?")) return context.Note("Nothing was done."), kRefused;
  }
  object body{{"dead_older_than_days", *dead}, {"succeeded_older_than_days", *succeeded}, {"wait", options.wait}};
  if (!options.reason.empty()) body["reason"] = options.reason;
  auto answer = context.api().Post("/v1/prune", body, kPruneTimeout);
  if (!answer) return context.Report(answer.error());
  const bool finished = answer->status == 200;
  if (context.json) return context.PrintJson(*answer), finished ? kDone : kPartly;
  auto done = ParseBody(*answer);
  if (!done) return context.Report(done.error());
  context.Print(
      fmt::format("Pruned {} events, which are in the archive; {} dead letters moved there and stay listed; "
                  "{} segments moved\n",
                  Number(*done, "pruned"), Number(*done, "letters_archived"), Number(*done, "segments")));
  if (const auto held = Number(*done, "segments_on_legal_hold"); held > 0) {
    context.Note(fmt::format("{} segments stay as they are because of a legal hold: dlo legal-hold list", held));
  }
  if (!finished) context.Note("The time to wait is over: run it again for the rest, or give a longer --wait.");
  return finished ? kDone : kPartly;
}

int ListHolds(Context& context) {
  auto answer = context.api().Get("/v1/legal-holds");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"ID", true}, {"SINCE"}, {"BY"}, {"STATE"}, {"FILTER", false, true}, {"REASON", false, true}});
  for (const value& hold : Items(*body)) {
    const value* filter = Field(hold, "filter");
    const auto ended = When(hold, "ended_at");
    table.Add({Text(hold, "id"), Text(hold, "created_at"), Text(hold, "actor"),
               ended ? Cell("ended " + context.Ago(ended) + " ago", Colour::dim) : Cell("in force", Colour::yellow),
               filter ? boost::json::serialize(*filter) : "", Text(hold, "reason")});
  }
  if (table.empty()) return context.Note("No legal holds."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

struct HoldOptions {
  FilterOptions filter;
  bool all = false;
  std::string reason, id;
};

int AddHold(Context& context, HoldOptions& options) {
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  if (options.filter.Empty() && !options.all) {
    return context.Usage("a legal hold needs a filter, such as --account or --subject; --all holds everything");
  }
  auto answer = context.api().Post("/v1/legal-holds", {{"filter", options.filter.Json()}, {"reason", options.reason}});
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  context.Print(fmt::format("Legal hold {}: what it matches is neither pruned nor moved\n", Text(*body, "id")));
  return kDone;
}

int EndHold(Context& context, const HoldOptions& options) {
  const auto id = ParseId(options.id);
  if (!id) return context.Report(ParseIds({options.id}).error());
  auto answer = context.api().Post(fmt::format("/v1/legal-holds/{}/end", *id), {{"reason", options.reason}});
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  context.Print(fmt::format("Legal hold {}: ended\n", *id));
  return kDone;
}

struct LsOptions {
  std::string cursor;
  int limit = 50;
};

std::string Size(std::int64_t bytes) {
  return bytes < 10'000'000 ? fmt::format("{} KB", (bytes + 999) / 1'000) : fmt::format("{} MB", bytes / 1'000'000);
}

int ListArchive(Context& context, const LsOptions& options) {
  std::string path = fmt::format("/v1/archive?limit={}", options.limit);
  if (!options.cursor.empty()) path += "&cursor=" + UrlEncode(options.cursor);
  auto answer = context.api().Get(path);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"FILE"},
               {"RECEIPTS", true},
               {"EVENTS", true},
               {"PRUNED", true},
               {"LETTERS", true},
               {"SIZE", true},
               {"OF", true},
               {"MOVED"}});
  for (const value& s : Items(*body)) {
    table.Add({Text(s, "file"), fmt::format("{}-{}", Number(s, "first"), Number(s, "last")), Text(s, "events"),
               Text(s, "pruned"), Text(s, "letters"), Size(Number(s, "bytes")), Size(Number(s, "original_bytes")),
               Text(s, "moved_at")});
  }
  if (table.empty()) return context.Note("The archive is empty."), kDone;
  context.Print(table.Render(context.OutStyle()));
  if (std::string next = Text(*body, "next"); !next.empty()) {
    context.Note(
        fmt::format("More: dlo archive ls --limit {} --cursor {}", options.limit, EscapeLine(ShellWord(next))));
  }
  return kDone;
}

int ShowArchived(Context& context, const std::string& id_text) {
  const auto id = ParseId(id_text);
  if (!id) return context.Report(ParseIds({id_text}).error());
  auto answer = context.api().Get(fmt::format("/v1/archive/events/{}", *id));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  for (const value& record : Items(*body)) context.Print(EscapeLine(boost::json::serialize(record)) + "\n");
  return kDone;
}

struct ExportOptions {
  std::string config = "dlo.toml", to;
};

void AddLegalHoldCommands(CLI::App& app, Context& context) {
  CLI::App* holds = app.add_subcommand("legal-hold", "Keep what a filter matches from being pruned or moved");
  holds->require_subcommand(1);
  context.Command(*holds, "list", "List legal holds, ended ones too", [&context] { return ListHolds(context); });
  auto add = std::make_shared<HoldOptions>();
  CLI::App* command = context.Command(*holds, "add", "Begin a legal hold on what the filter matches, in any state",
                                      [&context, add] { return AddHold(context, *add); });
  add->filter.AddTo(command);
  command->add_flag("--all", add->all, "Hold everything");
  command->add_option("--reason", add->reason, "Which case; kept in the audit log")->required();
  auto end = std::make_shared<HoldOptions>();
  command = context.Command(*holds, "end", "End a legal hold", [&context, end] { return EndHold(context, *end); });
  command->add_option("id", end->id, "Id of the hold")->required();
  command->add_option("--reason", end->reason, "Why it may end; kept in the audit log")->required();
}

}  // namespace

void AddRetentionCommands(CLI::App& app, Context& context) {
  auto prune = std::make_shared<PruneOptions>();
  CLI::App* command = context.Command(app, "prune", "Move what is old to the archive now, and let the index forget it",
                                      [&context, prune] { return Prune(context, *prune); });
  command->add_option("--succeeded-older-than-days", prune->succeeded, "Succeeded events: a number, or infinity");
  command->add_option("--dead-older-than-days", prune->dead,
                      "Dead letters: moved, and still listed and replayable; a number, or infinity");
  command->add_option("--wait", prune->wait, "How long to wait for the end")->capture_default_str();
  command->add_option("--reason", prune->reason, "Why; kept in the audit log");
  command->add_flag("--yes", prune->yes, "Do not ask");

  AddLegalHoldCommands(app, context);

  CLI::App* archive = app.add_subcommand("archive", "Look into the archive");
  archive->require_subcommand(1);
  auto ls = std::make_shared<LsOptions>();
  command = context.Command(*archive, "ls", "List its segments, oldest first",
                            [&context, ls] { return ListArchive(context, *ls); });
  command->add_option("--limit", ls->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
  command->add_option("--cursor", ls->cursor, "Go on where an earlier list stopped");
  auto id = std::make_shared<std::string>();
  command = context.Command(*archive, "show", "Print all records that it has of an event, a JSON object a line",
                            [&context, id] { return ShowArchived(context, *id); });
  command->add_option("id", *id, "Id of the event")->required();

  auto to = std::make_shared<ExportOptions>();
  CLI::App* out = archive->add_subcommand(
      "export", "Write it out decompressed, with SHA256SUMS; reads the files, also beside a running server");
  out->add_option("--config,-c", to->config, "Configuration file of the store")->capture_default_str();
  out->add_option("--to", to->to, "Folder, empty or not there yet")->required();
  out->add_flag("--json", context.json, "The report as JSON");
  out->callback([&context, to] {
    context.run = [&context, to] { return context.deps.archive_export(to->config, to->to, context.json); };
  });
}

}  // namespace dlo::cli
