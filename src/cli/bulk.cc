#include "cli/bulk.h"

#include <fmt/format.h>

#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::object;
using boost::json::value;

constexpr Duration kLook = std::chrono::milliseconds(500);
// Freezing a large selection reads all of it.
constexpr Duration kBulkTimeout = std::chrono::minutes(5);

std::string CountsLine(const value& plan, std::string_view name, std::string_view label) {
  const value* counts = Field(plan, name);
  std::string line;
  if (!counts || !counts->is_object()) return line;
  for (const auto& [key, count] : counts->get_object()) {
    line += fmt::format("{}{} {}", line.empty() ? "" : ", ", boost::json::serialize(count),
                        key.empty() ? "(no kind)" : EscapeLine({key.data(), key.size()}));
  }
  return line.empty() ? line : fmt::format("  {:<9} {}\n", label, line);
}

std::string DoneLine(const value& decision) {
  std::string line = fmt::format("decision {}: {} of {} letters changed", Text(decision, "id"),
                                 Number(decision, "changed"), Number(decision, "count"));
  if (std::int64_t skipped = Number(decision, "skipped"); skipped > 0) {
    std::string ids;
    for (const value& id : Items(decision, "skipped_ids")) ids += " " + boost::json::serialize(id);
    line += fmt::format(", {} skipped since somebody moved or tried them meanwhile:{}", skipped, ids);
  }
  return line;
}

int Follow(Context& context, ApiAnswer answer, value decision) {
  while (Text(decision, "state") == "running") {
    if (!context.deps.wait(kLook)) {
      context.Note(fmt::format("Stopped watching; it goes on in the server: dlo decisions {}", Text(decision, "id")));
      return kPartly;
    }
    auto next = context.api().Get("/v1/decisions/" + Text(decision, "id"));
    auto body = next ? ParseBody(*next) : std::unexpected(next.error());
    if (!body) {
      context.Note(fmt::format("It goes on in the server; look with: dlo decisions {}", Text(decision, "id")));
      return context.Report(body.error());
    }
    answer = std::move(*next);
    decision = std::move(*body);
  }
  if (context.json) {
    context.PrintJson(answer);
  } else {
    context.Print(DoneLine(decision) + "\n");
  }
  if (Number(decision, "skipped") == 0) return kDone;
  return Number(decision, "changed") > 0 ? kPartly : kRefused;
}

}  // namespace

void BulkOptions::AddTo(CLI::App* command, std::string_view until) {
  filter.AddTo(command, until);
  command->add_flag("--all", all, "Every letter that the act can take, without a filter");
  command->add_flag("--dry-run", dry_run, "Only show what it would take");
  command->add_flag("--yes,-y", yes, "Do not ask");
  command->add_option("--max", max, "Refuse a larger selection")->check(CLI::PositiveNumber)->capture_default_str();
  command->add_flag("--force", force, "Take a selection over --max");
}

std::optional<int> Agree(Context& context, bool yes, const std::string& question) {
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

int ActWhere(Context& context, BulkOptions& options, const std::string& act, const object& words,
             const std::string& reason) {
  if (options.filter.Empty() && !options.all) {
    return context.Usage(fmt::format("{} what? Give ids, a filter (--type, --class, --fingerprint, …), or --all", act));
  }
  if (!options.filter.Empty() && options.all) return context.Usage("--all means without a filter; give one of them");
  if (auto ok = options.filter.Check(context.deps.clock.Now()); !ok) return context.Report(ok.error());
  if (!options.dry_run && !options.yes && !context.deps.terminal.in) return *Agree(context, false, "");
  object body = words;
  body["filter"] = options.filter.Json();
  body["max"] = options.max;
  body["force"] = options.force;
  body["all"] = options.all;
  body["dry_run"] = true;
  if (!reason.empty()) body["reason"] = reason;
  const std::string path = "/v1/dead-letters/" + act;
  auto answer = context.api().Post(path, body, kBulkTimeout);
  if (!answer) return context.Report(answer.error());
  if (context.json && options.dry_run) return context.PrintJson(*answer), kDone;
  auto plan = ParseBody(*answer);
  if (!plan) return context.Report(plan.error());
  const std::int64_t count = Number(*plan, "would_change");
  if (!context.json) {
    context.Print(fmt::format("Would {} {} letters\n", act, count) + CountsLine(*plan, "by_class", "by class") +
                  CountsLine(*plan, "by_type", "by kind"));
  }
  if (Flag(*plan, "over_cap") && !options.force) {
    std::string message =
        fmt::format("{} letters are more than one decision takes ({}): narrow the filter, raise --max, or add --force",
                    count, options.max);
    if (options.dry_run) return context.Note(message), kDone;
    return context.Report({ErrorKind::too_large, "too_many", message});
  }
  if (options.dry_run) return kDone;
  if (count == 0) {
    if (context.json) context.PrintJson(*answer);
    return kDone;
  }
  if (auto stop = Agree(context, options.yes, fmt::format("{} {} letters?", act, count))) return *stop;
  body["dry_run"] = false;
  answer = context.api().Post(path, body, kBulkTimeout);
  if (!answer) return context.Report(answer.error());
  auto made = ParseBody(*answer);
  if (!made) return context.Report(made.error());
  return Follow(context, std::move(*answer), std::move(*made));
}

}  // namespace dlo::cli
