// `dlo stats`: the figures that say whether anything waits for a person, and whether the books are even.
#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/json.h"
#include "cli/text.h"
#include "dlo/states.h"

namespace dlo::cli {
namespace {

using boost::json::value;

constexpr State kShown[] = {State::dead,      State::held,     State::waiting, State::running,
                            State::succeeded, State::replayed, State::resolved};

std::string Upper(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
  return out;
}

Colour CountColour(State state, std::int64_t count) {
  if (count == 0) return Colour::dim;
  return state == State::dead ? Colour::red : state == State::held ? Colour::yellow : Colour::plain;
}

std::string CountsTable(const Context& context, const value& stats) {
  std::map<std::string, std::map<std::string, std::int64_t>> by_source;
  for (const value& source : Items(stats, "counts")) {
    by_source[Text(source, "source")][Text(source, "state")] += Number(source, "count");
  }
  std::map<std::string, std::string> oldest;
  for (const value& age : Items(stats, "oldest")) {
    oldest[Text(age, "source")] = fmt::format("{} (event {})", context.Ago(When(age, "parked_at")), Text(age, "id"));
  }
  std::vector<Column> columns = {{"SOURCE", false, true}};
  for (State state : kShown) columns.push_back({Upper(Name(state)), true});
  columns.push_back({"OLDEST DEAD", false, true});
  Table table(columns);
  std::map<std::string, std::int64_t> sums;
  auto add = [&](const std::string& name, std::map<std::string, std::int64_t>& counts, const std::string& age) {
    std::vector<Cell> row = {name};
    for (State state : kShown) {
      std::int64_t count = counts[std::string(Name(state))];
      row.push_back({fmt::format("{}", count), CountColour(state, count)});
    }
    row.push_back({age, Colour::yellow});
    table.Add(std::move(row));
  };
  for (auto& [name, counts] : by_source) {
    add(name, counts, oldest.contains(name) ? oldest[name] : "");
    for (const auto& [state, count] : counts) sums[state] += count;
  }
  if (table.empty()) return "No events yet.\n";
  if (by_source.size() > 1) add("all", sums, "");
  return table.Render(context.OutStyle());
}

std::string Line(const Style& style, const std::string& text, Colour colour) {
  return Paint(EscapeLine(text), colour, style) + "\n";
}

// What is out of the ordinary, each with the way to look further.
std::string Alarms(const Context& context, const value& stats) {
  Style style = context.OutStyle();
  std::string out;
  for (const value& pause : Items(stats, "paused_sources")) {
    std::string name = Text(pause, "source");
    out += Line(
        style,
        fmt::format("Source {} is stopped since {}: {} (fingerprint {}). Once the cause is fixed: dlo source resume {}",
                    name, context.Ago(When(pause, "since")), Text(pause, "message"), Text(pause, "fingerprint"),
                    ShellWord(name)),
        Colour::red);
  }
  for (const value& breaker : Items(stats, "breakers")) {
    std::string state = Text(breaker, "state");
    if (state == "closed") continue;
    std::string retry = Text(breaker, "retry_at");
    out +=
        Line(style,
             fmt::format("Breaker of target {} is {}{}: it failed too often, and events wait without spending attempts",
                         Text(breaker, "target"), state, retry.empty() ? "" : ", next probe " + retry),
             Colour::yellow);
  }
  if (std::int64_t overdue = Number(stats, "held_overdue"); overdue > 0) {
    out += Line(style,
                fmt::format("{} held letters are past their date, or their handler version is out: dlo list --overdue",
                            overdue),
                Colour::yellow);
  }
  return out;
}

std::string Books(const Context& context, const value& stats) {
  const value* accounting = Field(stats, "accounting");
  if (!accounting) return {};
  std::int64_t difference = Number(*accounting, "difference");
  std::string text =
      fmt::format("Receipts {}, duplicates {}, pruned {}, accounting difference {}", Number(*accounting, "receipts"),
                  Number(*accounting, "duplicates"), Number(*accounting, "pruned"), difference);
  if (difference != 0) text += ": events were lost or counted twice; keep the data folder as it is and report this";
  return Line(context.OutStyle(), text, difference == 0 ? Colour::plain : Colour::red);
}

int Stats(Context& context, bool recount) {
  auto answer = context.api().Get(recount ? "/v1/stats?recount=true" : "/v1/stats", std::chrono::minutes(5));
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto stats = ParseBody(*answer);
  if (!stats) return context.Report(stats.error());
  context.Print(CountsTable(context, *stats) + Alarms(context, *stats) + Books(context, *stats));
  return kDone;
}

}  // namespace

void AddStatsCommand(CLI::App& app, Context& context) {
  auto recount = std::make_shared<bool>(false);
  CLI::App* command = context.Command(app, "stats", "Counts by source and state, what is stopped, and the accounting",
                                      [&context, recount] { return Stats(context, *recount); });
  command->add_flag("--recount", *recount, "Count the rows themselves, rather than read the kept counts (slow)");
}

}  // namespace dlo::cli
