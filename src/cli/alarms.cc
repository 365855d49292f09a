// `dlo diagnose`, `dlo alerts`, `dlo probe`: what the letters look like, who was told what, whether the dead-letter
// path is alive.
#include <fmt/format.h>

#include <algorithm>
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

std::string Curve(const value& evidence) {
  static constexpr const char* kBars[] = {" ",      "\u2581", "\u2582", "\u2583", "\u2584",
                                          "\u2585", "\u2586", "\u2587", "\u2588"};
  std::int64_t most = 0;
  const auto number = [](const value& v) { return v.is_number() ? v.to_number<std::int64_t>() : std::int64_t{0}; };
  for (const value& part : Items(evidence, "curve")) most = std::max(most, number(part));
  std::string out;
  for (const value& part : Items(evidence, "curve")) {
    out += most == 0 ? "" : kBars[std::clamp<std::int64_t>((number(part) * 8 + most - 1) / most, 0, 8)];
  }
  return out;
}

std::string Counted(const value& evidence, const char* list, const char* name) {
  std::string out;
  for (const value& one : Items(evidence, list)) {
    const std::string word = Text(one, name);
    out += fmt::format("{}{} {}", out.empty() ? "" : ", ", Text(one, "letters"), word.empty() ? "unknown" : word);
  }
  return out;
}

std::string Joined(const value& evidence, const char* list) {
  std::string out;
  for (const value& one : Items(evidence, list)) {
    if (one.is_string()) out += (out.empty() ? "" : ", ") + std::string(one.as_string());
  }
  return out;
}

std::string FindingText(const Context& context, const value& finding) {
  const Style style = context.OutStyle();
  const std::string source = Text(finding, "source");
  const bool none = Text(finding, "shape") == "none";
  std::string text = Paint(EscapeLine((source.empty() ? "" : source + ": ") + Text(finding, "says")),
                           none ? Colour::plain : Colour::bold, style) +
                     "\n";
  const auto line = [&](const char* name, const std::string& what) {
    if (!what.empty()) text += fmt::format("  {:<10}{}\n", name, EscapeLine(what));
  };
  const value* evidence = Field(finding, "evidence");
  if (evidence != nullptr && Number(*evidence, "letters") > 0) {
    const std::int64_t letters = Number(*evidence, "letters"), one = Number(*evidence, "one_message");
    line("seen", fmt::format("{} to {} ago", context.Ago(When(*evidence, "first_seen")),
                             context.Ago(When(*evidence, "last_seen"))));
    line("message", fmt::format("{} % {}", one * 100 / letters, Text(*evidence, "message")));
    line("kinds", fmt::format("{}: {}", Number(*evidence, "kinds_in_all"), Counted(*evidence, "kinds", "kind")));
    line("accounts",
         fmt::format("{}: {}", Number(*evidence, "accounts_in_all"), Counted(*evidence, "accounts", "account")));
    const std::string before = Joined(*evidence, "handler_versions_before");
    line("handler", Joined(*evidence, "handler_versions") + (before.empty() ? "" : ", before that " + before));
    text += fmt::format("  {:<10}{}\n", "arrivals", Curve(*evidence));
  }
  line("next", Text(finding, "next"));
  return text;
}

int Diagnose(Context& context) {
  auto answer = context.api().Get("/v1/diagnosis");
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto report = ParseBody(*answer);
  if (!report) return context.Report(report.error());
  for (const value& finding : Items(*report, "findings")) context.Print(FindingText(context, finding));
  context.Note(fmt::format("From {}{} unresolved letters of the last 7 days.",
                           Flag(*report, "capped") ? "the newest " : "", Number(*report, "letters")));
  return kDone;
}

}  // namespace

void AddAlarmCommands(CLI::App& app, Context& context) {
  context.Command(app, "diagnose",
                  "Say what the dead letters look like together, from which evidence, and what to do next",
                  [&context] { return Diagnose(context); });
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
