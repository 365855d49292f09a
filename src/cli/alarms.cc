// `dlo alerts`, `dlo probe`: who was told what, whether a receiver answers, whether the dead-letter path is alive.
#include <fmt/format.h>

#include <string>

#include "cli/context.h"
#include "cli/json.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::value;

constexpr Duration kLong = std::chrono::seconds(60);

struct AlertOptions {
  bool pending = false;
  int limit = 50;
  std::string cursor;
};

int ListAlerts(Context& context, const AlertOptions& options) {
  std::string path = fmt::format("/v1/alerts?limit={}", options.limit);
  if (options.pending) path += "&pending=true";
  if (!options.cursor.empty()) path += "&cursor=" + UrlEncode(options.cursor);
  auto answer = context.api().Get(path);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto page = ParseBody(*answer);
  if (!page) return context.Report(page.error());
  Table table({{"ID", true},
               {"AGE"},
               {"RECEIVER"},
               {"STATUS"},
               {"SEVERITY"},
               {"SENT"},
               {"ALERT", false, true, 2},
               {"ANSWER", false, true}});
  for (const value& alert : Items(*page)) {
    const std::string status = Text(alert, "status");
    const bool sent = !Text(alert, "sent_at").empty();
    table.Add(
        {Text(alert, "id"),
         context.Ago(When(alert, "created_at")),
         Text(alert, "receiver"),
         {status, status == "firing"     ? Colour::red
                  : status == "resolved" ? Colour::green
                                         : Colour::plain},
         Text(alert, "severity"),
         {sent ? "yes" : fmt::format("no, {} tries", Text(alert, "attempts")), sent ? Colour::plain : Colour::yellow},
         Text(alert, "summary"),
         Text(alert, "answer")});
  }
  context.Print(table.empty() ? "No alerts.\n" : table.Render(context.OutStyle()));
  if (const std::string next = Text(*page, "next"); !next.empty()) {
    context.Note(fmt::format("More: dlo alerts list --cursor {}", next));
  }
  return kDone;
}

int TestAlert(Context& context, const std::string& receiver) {
  boost::json::object body;
  if (!receiver.empty()) body["receiver"] = receiver;
  auto answer = context.api().Post("/v1/alerts/test", body, kLong);
  if (!answer) return context.Report(answer.error());
  auto sent = ParseBody(*answer);
  if (!sent) return context.Report(sent.error());
  const bool taken = Flag(*sent, "taken");
  if (context.json) return context.PrintJson(*answer), taken ? kDone : kRefused;
  context.Print(EscapeLine(fmt::format("{} {} the test: {}", Text(*sent, "receiver"), taken ? "took" : "did not take",
                                       Text(*sent, "answer"))) +
                "\n");
  return taken ? kDone : kRefused;
}

int RunProbe(Context& context) {
  auto answer = context.api().Post("/v1/probe", {}, kLong);
  if (!answer) return context.Report(answer.error());
  auto report = ParseBody(*answer);
  if (!report) return context.Report(report.error());
  const bool ok = Flag(*report, "ok");
  if (context.json) return context.PrintJson(*answer), ok ? kDone : kRefused;
  const auto ms = [&](const char* name) {
    const value* number = Field(*report, name);
    return fmt::format("{:.1f} ms", number != nullptr && number->is_number() ? number->to_number<double>() : 0.0);
  };
  std::string text;
  if (ok) {
    text = fmt::format(
        "The dead-letter path is alive: event {}\n  stored durably     {}\n  handed over after  {}\n  dead letter "
        "after  {}\n"
        "  resolved in        {}\n",
        Text(*report, "event"), ms("receipt_ms"), ms("dispatch_ms"), ms("dead_ms"), ms("resolve_ms"));
  } else {
    text =
        Paint("The probe FAILED", Colour::red, context.OutStyle()) + ": " + EscapeLine(Text(*report, "failed")) + "\n";
  }
  if (Number(*report, "left_over") > 0) {
    text += fmt::format("  letters of earlier probes that had stopped half way, resolved now: {}\n",
                        Number(*report, "left_over"));
  }
  context.Print(text);
  return ok ? kDone : kRefused;
}

}  // namespace

void AddAlarmCommands(CLI::App& app, Context& context) {
  CLI::App* alerts = app.add_subcommand("alerts", "What was told to whom, and whether a receiver answers");
  alerts->require_subcommand(1);
  auto options = std::make_shared<AlertOptions>();
  CLI::App* list = context.Command(*alerts, "list", "List alerts, newest first",
                                   [&context, options] { return ListAlerts(context, *options); });
  list->add_flag("--pending", options->pending, "Only those that their receiver has not taken yet");
  list->add_option("--limit", options->limit, "Rows, 1 to 500")->check(CLI::Range(1, 500))->capture_default_str();
  list->add_option("--cursor", options->cursor, "Go on where an earlier list stopped");
  auto receiver = std::make_shared<std::string>();
  CLI::App* test = context.Command(*alerts, "test", "Send a test alert and show what the receiver answered",
                                   [&context, receiver] { return TestAlert(context, *receiver); });
  test->add_option("receiver", *receiver, "Name of the [[alert]]; may be left out when there is one");
  context.Command(app, "probe", "Send an event of our own the whole way to the dead letters, and tell how long it took",
                  [&context] { return RunProbe(context); });
}

}  // namespace dlo::cli
