// `dlo replay` (one, several, or a selection) and `dlo drain`. A bulk act is shown before it is done:
// the server counts exactly, a person agrees, and then it goes on in the server whether or not we watch.
#include <fmt/format.h>

#include <ostream>

#include "base/time_text.h"
#include "cli/acts.h"
#include "cli/context.h"
#include "cli/filter_options.h"
#include "cli/json.h"
#include "cli/replay_text.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::object;
using boost::json::value;

constexpr Duration kLook = std::chrono::milliseconds(500);
// Freezing a large selection is one long statement in the store.
constexpr Duration kBulkTimeout = std::chrono::minutes(5);

struct ReplayOptions {
  std::vector<std::string> ids;
  FilterOptions filter;
  bool all = false, dry_run = false, yes = false, no_wait = false, force = false;
  int batch_size = 100, canary = 0, stop_percent = 50;
  std::optional<std::int64_t> stagger_ms;
  std::string stagger = "1s", reason;
  double rate = 0;
  std::int64_t max = 10'000;
};

std::string Counts(const value& plan, std::string_view name) {
  const value* counts = Field(plan, name);
  std::string line;
  if (!counts || !counts->is_object()) return line;
  for (const auto& [key, count] : counts->get_object()) {
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", boost::json::serialize(count),
                        key.empty() ? "(no kind)" : EscapeLine({key.data(), key.size()}));
  }
  return line;
}

void PrintPlan(const Context& context, const value& plan) {
  std::string text = fmt::format("Would replay {} dead letters, oldest receipt first\n", Number(plan, "would_requeue"));
  if (std::string line = Counts(plan, "by_class"); !line.empty()) text += "  by class  " + line + "\n";
  if (std::string line = Counts(plan, "by_type"); !line.empty()) text += "  by kind   " + line + "\n";
  if (Number(plan, "in_other_replay") > 0) {
    text += fmt::format("  left out  {} that another replay has (dlo replays)\n", Number(plan, "in_other_replay"));
  }
  if (auto oldest = When(plan, "oldest")) text += fmt::format("  oldest    {} ago\n", context.Ago(oldest));
  auto seconds = std::chrono::seconds(Number(plan, "estimated_seconds"));
  if (seconds > std::chrono::seconds(0)) text += fmt::format("  takes     about {}\n", FormatAge(seconds));
  context.Print(text);
}

int ExitOf(const value& progress) {
  std::int64_t count = Number(progress, "count"), committed = Number(progress, "committed");
  if (committed >= count) return kDone;
  return committed > 0 ? kPartly : kRefused;
}

// Until it is done, or the person stops watching.
int Follow(Context& context, std::int64_t id) {
  std::string path = fmt::format("/v1/replays/{}", id);
  bool show = context.deps.terminal.err && !context.json;
  int shown = 0;
  auto clear = [&] {
    if (shown > 0) context.deps.err << "\r" << std::string(static_cast<std::size_t>(shown), ' ') << "\r" << std::flush;
    shown = 0;
  };
  while (true) {
    auto answer = context.api().Get(path);
    auto progress = answer ? ParseBody(*answer) : std::unexpected(answer.error());
    if (!progress) {
      clear();
      context.Note(fmt::format("The replay goes on in the server; look with: dlo replays {}", id));
      return context.Report(progress.error());
    }
    if (Finished(*progress)) {
      clear();
      if (context.json) {
        context.PrintJson(*answer);
      } else {
        context.Print(ProgressLine(*progress) + "\n");
        if (Number(*progress, "dead_again") > 0)
          context.Note(fmt::format("What failed again: dlo replays items {} --result dead_again", id));
      }
      return ExitOf(*progress);
    }
    if (Halted(*progress)) {
      clear();
      context.Note(fmt::format("Replay {} is {}: {}", id, Text(*progress, "state"), Text(*progress, "word")));
      context.Note(
          fmt::format("It waits for a person: dlo replays items {0} --result dead_again, then dlo replays "
                      "resume {0} or cancel {0}",
                      id));
      if (context.json) context.PrintJson(*answer);
      return ExitOf(*progress) == kDone ? kPartly : ExitOf(*progress);
    }
    if (show) {
      clear();
      std::string line = Shorten(ProgressLine(*progress), context.deps.terminal.columns - 1);
      context.deps.err << line << std::flush;
      shown = DisplayWidth(line);
    }
    if (!context.deps.wait(kLook)) {
      clear();
      context.Note(fmt::format("Stopped watching; the replay goes on in the server: dlo replays {}", id));
      return kPartly;
    }
  }
}

// nullopt: go on. Otherwise the exit code.
std::optional<int> Confirm(Context& context, bool yes, const std::string& question) {
  if (yes) return std::nullopt;
  if (!context.deps.terminal.in) {
    return context.Usage(
        "this acts on many letters and nobody can be asked here (stdin is no terminal): add --yes, or "
        "look first with --dry-run");
  }
  if (context.Ask(question)) return std::nullopt;
  context.Note("Nothing was done.");
  return kRefused;
}

Result<object> BulkBody(const ReplayOptions& options) {
  std::optional<Duration> stagger = ParseDuration(options.stagger);
  if (!stagger) {
    return Fail(ErrorKind::invalid, "usage",
                fmt::format("--stagger \"{}\" is no duration; write 500ms or 2s", options.stagger));
  }
  object body = {{"filter", options.filter.Json()},
                 {"batch_size", options.batch_size},
                 {"stagger_ms", std::chrono::duration_cast<std::chrono::milliseconds>(*stagger).count()},
                 {"max", options.max},
                 {"force", options.force}};
  if (options.stagger_ms) body["stagger_ms"] = *options.stagger_ms;
  if (options.rate > 0) body["rate"] = options.rate;
  if (options.canary > 0) body["canary"] = options.canary;
  if (options.stop_percent != 50) body["stop_percent"] = options.stop_percent;
  if (!options.reason.empty()) body["reason"] = options.reason;
  return body;
}

int Create(Context& context, const ReplayOptions& options, object body, std::int64_t planned) {
  body["dry_run"] = false;
  auto answer = context.api().Post("/v1/replays", body, kBulkTimeout);
  if (!answer) return context.Report(answer.error());
  auto created = ParseBody(*answer);
  if (!created) return context.Report(created.error());
  std::int64_t id = Number(*created, "id"), count = Number(*created, "count");
  if (context.json && options.no_wait) return context.PrintJson(*answer), kDone;
  if (!context.json && count != planned) {
    context.Note(fmt::format("Meanwhile the selection became {} letters; these {} are in the replay.", count, count));
  }
  if (options.no_wait) {
    context.Print(
        fmt::format("replay {} of {} letters runs in the server; look with: dlo replays {}\n", id, count, id));
    return kDone;
  }
  return Follow(context, id);
}

int ReplayWhere(Context& context, ReplayOptions& options) {
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  auto body = BulkBody(options);
  if (!body) return context.Report(body.error());
  // Found out before the server is asked: a script must learn it on its first run, not when letters match.
  if (!options.dry_run && !options.yes && !context.deps.terminal.in) return *Confirm(context, false, "");
  object plan_body = *body;
  plan_body["dry_run"] = true;
  auto answer = context.api().Post("/v1/replays", plan_body, kBulkTimeout);
  if (!answer) return context.Report(answer.error());
  if (context.json && options.dry_run) return context.PrintJson(*answer), kDone;
  auto plan = ParseBody(*answer);
  if (!plan) return context.Report(plan.error());
  std::int64_t count = Number(*plan, "would_requeue");
  if (!context.json) PrintPlan(context, *plan);
  if (Flag(*plan, "over_cap") && !options.force) {
    std::string message =
        fmt::format("{} letters are more than one replay takes ({}): narrow the filter, raise --max, or add --force",
                    count, options.max);
    if (options.dry_run) return context.Note(message), kDone;
    return context.Report({ErrorKind::too_large, "replay_too_large", message});
  }
  if (options.dry_run) return kDone;
  if (count == 0) {
    if (context.json) context.PrintJson(*answer);
    return kDone;
  }
  if (auto stop = Confirm(context, options.yes, fmt::format("Replay {} dead letters?", count))) return *stop;
  return Create(context, options, *body, count);
}

int Replay(Context& context, ReplayOptions& options) {
  if (!options.ids.empty()) {
    if (!options.filter.Empty() || options.all) {
      return context.Usage("give ids or a filter, not both: ids are replayed one by one, a filter selects many");
    }
    if (options.dry_run) return context.Usage("--dry-run goes with a filter; for one letter, look at it: dlo show ID");
    object body;
    if (!options.reason.empty()) body["reason"] = options.reason;
    return ActOnEach(context, options.ids, "replay", body, [](const value&) { return std::string("requeued"); });
  }
  if (options.filter.Empty() && !options.all) {
    return context.Usage(
        "replay what? Give ids, a filter (--type, --class, --fingerprint, …), or --all for every dead "
        "letter; --dry-run shows what it would take");
  }
  if (!options.filter.Empty() && options.all) return context.Usage("--all means without a filter; give one of them");
  return ReplayWhere(context, options);
}

struct DrainOptions {
  std::string source, wait = "30s", reason;
  bool all = false, yes = false;
};

int Drain(Context& context, const DrainOptions& options) {
  if (options.source.empty() == !options.all) {
    return context.Usage("drain what? Give --source NAME, or --all for every source");
  }
  std::optional<Duration> wait = ParseDuration(options.wait);
  if (!wait) return context.Usage(fmt::format("--wait \"{}\" is no duration; write 30s or 5m", options.wait));
  if (!options.yes && !context.deps.terminal.in) return *Confirm(context, false, "");
  std::string query = "class=exhausted" + (options.source.empty() ? "" : "&source=" + UrlEncode(options.source));
  auto counted = context.api().Get("/v1/dead-letters/count?state=dead&" + query);
  if (!counted) return context.Report(counted.error());
  auto count_body = ParseBody(*counted);
  if (!count_body) return context.Report(count_body.error());
  std::int64_t count = Number(*count_body, "count");
  if (count > 0) {
    if (auto stop = Confirm(context, options.yes, fmt::format("Drain {} exhausted letters?", count))) return *stop;
  }
  object body = {{"wait", options.wait}};
  if (!options.source.empty()) body["source"] = options.source;
  if (!options.reason.empty()) body["reason"] = options.reason;
  auto answer = context.api().Post("/v1/drain", body, *wait + std::chrono::minutes(1));
  if (!answer) return context.Report(answer.error());
  auto stats = ParseBody(*answer);
  if (!stats) return context.Report(stats.error());
  bool running = answer->status == 202;
  if (context.json) {
    context.PrintJson(*answer);
  } else if (running) {
    std::string id = Text(*stats, Field(*stats, "id") ? "id" : "replay_id");
    context.Print(fmt::format(
        "not finished after {}; it goes on in the server: dlo replays {} (dlo stats tells if a breaker is open)\n",
        options.wait, id));
  } else {
    context.Print(fmt::format("committed {}, requeued {}, parked {}\n", Number(*stats, "committed"),
                              Number(*stats, "requeued"), Number(*stats, "parked")));
  }
  return running || Number(*stats, "requeued") > 0 || Number(*stats, "parked") > 0 ? kPartly : kDone;
}

}  // namespace

void AddReplayCommands(CLI::App& app, Context& context) {
  auto options = std::make_shared<ReplayOptions>();
  CLI::App* command = context.Command(app, "replay", "Hand dead letters to the handler again: by id, or all that match",
                                      [&context, options] { return Replay(context, *options); });
  command->alias("requeue");
  command->add_option("id", options->ids, "Ids of letters");
  options->filter.AddTo(command);
  command->add_flag("--all", options->all, "Every dead letter, without a filter");
  command->add_flag("--dry-run", options->dry_run, "Only show what it would take");
  command->add_flag("--yes,-y", options->yes, "Do not ask");
  command->add_flag("--no-wait", options->no_wait, "Do not follow the progress");
  command->add_option("--batch-size", options->batch_size, "Letters handed over at a time")
      ->check(CLI::Range(1, 10'000))
      ->capture_default_str();
  command->add_option("--stagger", options->stagger, "Pause between batches")->capture_default_str();
  command->add_option("--stagger-ms", options->stagger_ms, "The same in milliseconds")
      ->check(CLI::Range(0, 3'600'000))
      ->excludes("--stagger");
  command
      ->add_option("--canary", options->canary,
                   "First so many letters of each like failure; the rest only if they hold")
      ->check(CLI::Range(0, 100));
  command->add_option("--stop-percent", options->stop_percent, "Stop when more of the last 20 are dead again")
      ->check(CLI::Range(1, 100))
      ->capture_default_str();
  command->add_option("--rate", options->rate, "Letters a second, instead of batches and pauses")
      ->check(CLI::PositiveNumber);
  command->add_option("--max", options->max, "Refuse a larger selection")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--force", options->force, "Take a selection over --max");
  command->add_option("--reason", options->reason, "Why; kept in the audit log");

  auto drain = std::make_shared<DrainOptions>();
  command = context.Command(app, "drain", "One pass over exhausted letters, oldest receipt first",
                            [&context, drain] { return Drain(context, *drain); });
  command->add_option("--source", drain->source, "Only of this source");
  command->add_flag("--all", drain->all, "Of every source");
  command->add_option("--wait", drain->wait, "How long to wait for the outcomes")->capture_default_str();
  command->add_flag("--yes,-y", drain->yes, "Do not ask");
  command->add_option("--reason", drain->reason, "Why; kept in the audit log");
}

}  // namespace dlo::cli
