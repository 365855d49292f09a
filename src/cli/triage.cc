// The acts hold, release, resolve and reopen, on single letters or on all that match; and sources that the systemic
// breaker stopped.
#include <fmt/format.h>

#include "base/time_text.h"
#include "cli/acts.h"
#include "cli/bulk.h"
#include "cli/context.h"
#include "cli/json.h"
#include "cli/letter_text.h"
#include "cli/text.h"
#include "dlo/states.h"

namespace dlo::cli {
namespace {

using boost::json::object;

struct ActOptions {
  std::vector<std::string> ids;
  BulkOptions bulk;
  std::string reason;
};

void AddSelection(CLI::App* command, ActOptions& options, std::string_view until = "until") {
  command->add_option("id", options.ids, "Ids of letters; without them, a filter");
  options.bulk.AddTo(command, until);
}

void AddReason(CLI::App* command, ActOptions& options) {
  command->add_option("--reason", options.reason, "Why; kept in the audit log");
}

// The event that an act answers with, in a line.
std::string Became(const boost::json::value& event) {
  const boost::json::value* nested = Field(event, "letter");
  std::string state = StateText(nested ? *nested : event);
  return state.empty() ? "done" : state;
}

int Act(Context& context, ActOptions& options, const std::string& act, object body) {
  if (options.ids.empty()) return ActWhere(context, options.bulk, act, body, options.reason);
  if (options.bulk.Given()) {
    return context.Usage("give ids or a filter, not both: ids are done one by one, a filter selects many");
  }
  if (!options.reason.empty()) body["reason"] = options.reason;
  return ActOnEach(context, options.ids, act, body, Became);
}

struct HoldOptions : ActOptions {
  std::string link, owner, until, wake;
};

int Hold(Context& context, HoldOptions& options) {
  object body = {{"link", options.link}};
  if (!options.owner.empty()) body["owner"] = options.owner;
  if (!options.until.empty()) {
    std::optional<Duration> from_now = ParseDuration(options.until);
    if (!from_now && !ParseTime(options.until)) {
      return context.Usage(fmt::format(
          "--until \"{}\" is no time; write 2026-11-30, 2026-11-30T13:00:00Z, or 3d from now", options.until));
    }
    body["until"] = from_now ? FormatTime(context.deps.clock.Now() + *from_now) : options.until;
  }
  if (!options.wake.empty()) body["wake_on_handler"] = options.wake;
  return Act(context, options, "hold", std::move(body));
}

struct ResolveOptions : ActOptions {
  std::string code;
};

std::vector<std::string> ResolveCodes() {
  std::vector<std::string> codes;
  codes.reserve(kResolveCodeCount);
  for (int i = 0; i < kResolveCodeCount; ++i) codes.emplace_back(Name(static_cast<ResolveCode>(i)));
  return codes;
}

int ListSources(Context& context) {
  auto answer = context.api().Get("/v1/sources");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto body = ParseBody(*answer);
  if (!body) return context.Report(body.error());
  Table table({{"SOURCE"}, {"SCHEME"}, {"TARGET"}, {"DISPATCH"}, {"SINCE", true}, {"BECAUSE", false, true}});
  for (const auto& source : Items(*body)) {
    std::string name = Text(source, "name").empty() ? Text(source, "source") : Text(source, "name");
    const boost::json::value* pause = Field(source, "paused");
    bool paused = pause && (pause->is_object() || (pause->is_bool() && pause->get_bool()));
    const boost::json::value& facts = pause && pause->is_object() ? *pause : source;
    table.Add({name,
               Text(source, "scheme"),
               Text(source, "target"),
               {paused ? "paused" : "running", paused ? Colour::red : Colour::green},
               paused ? context.Ago(When(facts, "since")) : "",
               paused ? Text(facts, "message") : ""});
  }
  if (table.empty()) return context.Note("No sources; add a [[source]] to the server's configuration."), kDone;
  context.Print(table.Render(context.OutStyle()));
  return kDone;
}

struct ResumeOptions {
  std::string name, reason;
};

int ResumeSource(Context& context, const ResumeOptions& options) {
  object body;
  if (!options.reason.empty()) body["reason"] = options.reason;
  auto answer = context.api().Post("/v1/sources/" + UrlEncode(options.name) + "/resume", body);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  context.Print(fmt::format("{}: dispatching again\n", EscapeLine(options.name)));
  return kDone;
}

void AddSourceCommands(CLI::App& app, Context& context) {
  CLI::App* source = app.add_subcommand("source", "See sources, and resume one that was stopped");
  source->require_subcommand(1);
  context.Command(*source, "list", "List sources and whether they are dispatched",
                  [&context] { return ListSources(context); });
  auto resume = std::make_shared<ResumeOptions>();
  CLI::App* command = context.Command(*source, "resume", "Dispatch a source again that the systemic breaker stopped",
                                      [&context, resume] { return ResumeSource(context, *resume); });
  command->add_option("name", resume->name, "Name of the source")->required();
  command->add_option("--reason", resume->reason, "Why; kept in the audit log");
}

}  // namespace

int ActOnEach(Context& context, const std::vector<std::string>& id_texts, const std::string& act,
              const boost::json::object& body, const std::function<std::string(const boost::json::value&)>& said) {
  auto ids = ParseIds(id_texts);
  if (!ids) return context.Report(ids.error());
  int done = 0, worst = kDone;
  for (EventId id : *ids) {
    auto answer = context.api().Post(fmt::format("/v1/dead-letters/{}/{}", id, act), body);
    if (!answer) {
      Error error = answer.error();
      if (ids->size() > 1) error.message = fmt::format("{}: {}", id, error.message);
      int code = context.Report(error);
      worst = std::max(worst, code);
      // Without a server, or a right to this act, the rest would only repeat the message.
      if (code == kUnreachable || error.kind == ErrorKind::forbidden) break;
      continue;
    }
    ++done;
    if (context.json) {
      context.PrintJson(*answer);
    } else {
      auto event = ParseBody(*answer);
      context.Print(fmt::format("{}: {}\n", id, EscapeLine(event ? said(*event) : "done")));
    }
  }
  return worst != kDone && done > 0 ? int{kPartly} : worst;
}

void AddTriageCommands(CLI::App& app, Context& context) {
  auto hold = std::make_shared<HoldOptions>();
  CLI::App* command = context.Command(app, "hold", "Keep letters until something is fixed",
                                      [&context, hold] { return Hold(context, *hold); });
  AddSelection(command, *hold, "received-until");
  AddReason(command, *hold);
  command->add_option("--link", hold->link, "Where the fix is tracked: address of an issue")->required();
  command->add_option("--owner", hold->owner, "Who sees to it");
  command->add_option("--until", hold->until, "Overdue after this: a time, a date, or 3d from now");
  command->add_option("--wake-on-handler", hold->wake,
                      "Overdue once this handler version is seen (or a pattern: 2026.12.*)");

  auto release = std::make_shared<ActOptions>();
  command = context.Command(app, "release", "Put held letters back among the dead ones",
                            [&context, release] { return Act(context, *release, "release", {}); });
  AddSelection(command, *release);
  AddReason(command, *release);

  auto resolve = std::make_shared<ResolveOptions>();
  command = context.Command(app, "resolve", "Close letters that need no effect", [&context, resolve] {
    return Act(context, *resolve, "resolve", {{"code", resolve->code}});
  });
  AddSelection(command, *resolve);
  command->add_option("--code", resolve->code, "Which kind of reason")
      ->required()
      ->check(CLI::IsMember(ResolveCodes()));
  command->add_option("--reason", resolve->reason, "Why, in words; kept in the audit log")->required();

  auto reopen = std::make_shared<ActOptions>();
  command = context.Command(app, "reopen", "Make resolved letters dead letters again",
                            [&context, reopen] { return Act(context, *reopen, "reopen", {}); });
  AddSelection(command, *reopen);
  AddReason(command, *reopen);
  AddSourceCommands(app, context);
}

}  // namespace dlo::cli
