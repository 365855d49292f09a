// `dlo show ID`: one event, whole: facts, failure, timeline, headers, the start of its body, and what to do next.
#include <fmt/format.h>

#include <string>

#include "base/time_text.h"
#include "cli/context.h"
#include "cli/decision_text.h"
#include "cli/json.h"
#include "cli/letter_text.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

using boost::json::value;

constexpr int kPreviewLines = 20;
constexpr int kLabelWidth = 12;

class Page {
 public:
  explicit Page(const Context& context) : context_(context), style_(context.OutStyle()) {}

  void Heading(std::string_view title) { text_ += "\n" + Paint(title, Colour::bold, style_) + "\n"; }
  /// A label and what it says; nothing for an empty value.
  void Fact(std::string_view label, std::string_view said, Colour colour = Colour::plain) {
    if (said.empty()) return;
    text_ += fmt::format("{:<{}}", label, kLabelWidth) + Paint(EscapeLine(said), colour, style_) + "\n";
  }
  void Moment(std::string_view label, std::optional<Time> time) {
    if (time) Fact(label, fmt::format("{} ({} ago)", FormatTime(*time), context_.Ago(time)));
  }
  void Lines(std::string_view lines) { text_ += lines; }
  [[nodiscard]] const Style& style() const { return style_; }
  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  const Context& context_;
  Style style_;
  std::string text_;
};

std::string Verified(const value& verdict) {
  if (!Flag(verdict, "verified")) return "no: the source takes what comes";
  std::string said = "yes, " + Text(verdict, "scheme");
  if (std::string secret = Text(verdict, "secret_id"); !secret.empty()) said += ", " + secret;
  if (std::string at = Text(verdict, "signed_at"); !at.empty()) said += ", signed " + at;
  return said;
}

void Facts(Page& page, const value& event, const value& letter) {
  std::string state = Text(letter, "state");
  page.Fact("Event", Text(letter, "id"), Colour::bold);
  page.Fact("State", StateText(letter), StateColour(state));
  page.Fact("Source", Text(letter, "source"));
  page.Fact("Kind", Text(letter, "kind"));
  page.Fact("Key", Text(letter, "key"));
  page.Fact("Subject", Text(letter, "subject"));
  page.Fact("Account", Text(letter, "account"));
  page.Fact("Live mode", Text(letter, "livemode"));
  page.Moment("Occurred", When(letter, "occurred_at"));
  page.Moment("Received", When(letter, "received_at"));
  if (std::int64_t n = Number(letter, "deliveries"); n > 1) {
    page.Fact("Deliveries", fmt::format("{}, the last {}", n, Text(letter, "last_seen_at")));
  }
  if (const value* verdict = Field(event, "verdict")) page.Fact("Verified", Verified(*verdict));
  page.Fact("Body", fmt::format("{} bytes, SHA-256 {}", Text(letter, "body_bytes"), Text(event, "body_sha256")));
}

void Failure(Page& page, const value& event, const value& letter) {
  std::string failure = FailureText(letter);
  if (failure.empty()) return;
  page.Heading("Failure");
  page.Fact("What", failure, Colour::red);
  if (Text(event, "detail") != Text(letter, "message")) page.Fact("Detail", Text(event, "detail"));
  page.Moment("First", When(letter, "first_failed_at"));
  page.Moment("Last", When(letter, "last_failed_at"));
  page.Moment("Parked", When(letter, "parked_at"));
  page.Fact("Fingerprint", Text(letter, "fingerprint"));
  page.Fact("Judged by", Text(letter, "handler_version"));
  page.Fact("Live tries", Text(event, "attempts"));
  if (Number(letter, "replays") > 0) {
    page.Fact("Replays",
              fmt::format("{}, of which {} failed", Text(letter, "replays"), Text(letter, "replays_failed")));
  }
  if (Number(letter, "conflict_of") > 0) page.Fact("Conflicts", "with event " + Text(letter, "conflict_of"));
  if (Number(letter, "events_behind") > 0) page.Fact("Behind it", Text(letter, "events_behind") + " events wait");
}

void Triage(Page& page, const value& letter) {
  std::string state = Text(letter, "state");
  if (state == "held") {
    page.Heading("Held");
    page.Fact("For", Text(letter, "hold_link"));
    page.Fact("Owner", Text(letter, "hold_owner"));
    page.Fact("Until", Text(letter, "hold_until"));
    page.Fact("Wakes on", Text(letter, "wake_on_handler"));
    if (Flag(letter, "wake_seen")) page.Fact("Ready", "a handler of that version has answered", Colour::green);
  }
  if (state == "resolved") {
    page.Heading("Resolved");
    page.Fact("Code", Text(letter, "resolve_code"));
    page.Fact("Reason", Text(letter, "resolve_reason"));
    page.Moment("When", When(letter, "finished_at"));
  }
  if (state == "waiting") page.Fact("Due", Text(letter, "due_at"));
}

std::string Took(const value& attempt) {
  std::optional<Time> start = When(attempt, "started_at"), end = When(attempt, "finished_at");
  return start && end ? FormatDuration(std::chrono::round<std::chrono::milliseconds>(*end - *start)) : "-";
}

void Attempts(Page& page, const boost::json::array& attempts) {
  page.Heading(attempts.empty() ? "No attempts yet" : "Attempts, newest first");
  if (attempts.empty()) return;
  Table table({{"#", true},
               {"STARTED"},
               {"TOOK", true},
               {"OUTCOME"},
               {"STATUS", true},
               {"BY", false, true},
               {"HANDLER", false, true},
               {"WHAT", false, true, 3}});
  for (const value& attempt : attempts) {
    std::string outcome = Text(attempt, "outcome");
    std::string none = Text(attempt, "code") == "deferred" ? "deferred" : "no answer";
    std::string shown = outcome.empty() ? none : outcome;
    if (Flag(attempt, "late")) shown += " (late)";
    if (Number(attempt, "replay_id") > 0) shown += " (replay " + Text(attempt, "replay_id") + ")";
    if (Number(attempt, "revision") > 0) shown += " (revision " + Text(attempt, "revision") + ")";
    bool good = outcome == "applied" || outcome == "already_applied" || outcome == "not_applicable";
    std::string what = good ? Text(attempt, "effect") : FailureText(attempt);
    table.Add({Text(attempt, "number"),
               Text(attempt, "started_at"),
               Took(attempt),
               {shown, good ? Colour::green : Colour::red},
               Number(attempt, "http_status") > 0 ? Text(attempt, "http_status") : "",
               Text(attempt, "worker"),
               Text(attempt, "handler_version"),
               what});
  }
  page.Lines(table.Render(page.style()));
}

void Acts(Page& page, const boost::json::array& records) {
  if (records.empty()) return;
  page.Heading("Acts, newest first");
  Table table({{"WHEN"}, {"WHO"}, {"ACT"}, {"REASON", false, true}});
  for (const value& record : records) {
    table.Add({Text(record, "at"), Text(record, "actor"), Text(record, "action"), Text(record, "reason")});
  }
  page.Lines(table.Render(page.style()));
}

void Corrections(Page& page, const value& event, const value& letter) {
  const boost::json::array& revisions = Items(event, "revisions");
  if (revisions.empty()) return;
  page.Heading("Corrected payloads, newest first");
  page.Lines(RevisionTable(revisions).Render(page.style()));
  std::int64_t sent = Number(letter, "revision");
  page.Fact("Replays", sent > 0 ? fmt::format("send revision {}", sent) : std::string("send the original"));
}

void Notes(Page& page, const value& event) {
  if (std::string text = NotesText(Items(event, "notes")); !text.empty()) {
    page.Heading("Notes");
    page.Lines(text);
  }
  if (std::string text = NotesText(Items(event, "group_notes")); !text.empty()) {
    page.Heading("Notes on its group");
    page.Lines(text);
  }
}

void Headers(Page& page, const value& event) {
  const boost::json::array& headers = Items(event, "headers");
  if (headers.empty()) return;
  page.Heading("Headers");
  for (const value& header : headers) {
    std::string line = EscapeLine(Text(header, "name") + ": " + Text(header, "value"));
    page.Lines((page.style().width > 0 ? Shorten(line, page.style().width) : line) + "\n");
  }
}

void Preview(Page& page, const std::string& payload, const std::string& id) {
  page.Heading("Body");
  if (payload.empty()) return page.Lines("(empty)\n");
  std::string text = EscapeBlock(PrettyJson(payload));
  int lines = 0;
  std::size_t at = 0;
  while (at < text.size() && lines < kPreviewLines) {
    std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    for (std::size_t tab = 0; (tab = line.find('\t', tab)) != std::string::npos;) line.replace(tab, 1, "  ");
    page.Lines((page.style().width > 0 ? Shorten(line, page.style().width) : line) + "\n");
    at = end + 1;
    ++lines;
  }
  if (at < text.size()) page.Lines(fmt::format("… the whole body: dlo payload {}\n", id));
}

int Show(Context& context, const std::string& id_text) {
  std::optional<EventId> id = ParseId(id_text);
  if (!id) return context.Report(ParseIds({id_text}).error());
  std::string path = fmt::format("/v1/events/{}", *id);
  auto answer = context.api().Get(path);
  if (!answer) return context.Report(answer.error());
  if (context.json) return context.PrintJson(*answer), kDone;
  auto event = ParseBody(*answer);
  if (!event) return context.Report(event.error());
  const value* nested = Field(*event, "letter");
  const value& letter = nested ? *nested : *event;
  Page page(context);
  Facts(page, *event, letter);
  Failure(page, *event, letter);
  Triage(page, letter);
  Notes(page, *event);
  Corrections(page, *event, letter);
  Attempts(page, Items(*event, "timeline"));
  if (auto audit = context.api().Get(path + "/audit")) {
    if (auto records = ParseBody(*audit)) Acts(page, Items(*records));
  }
  Headers(page, *event);
  // The facts stand even where the body cannot be read: that may be the very thing to look into.
  if (auto payload = context.api().Get(path + "/payload", std::chrono::minutes(5))) {
    Preview(page, payload->body, fmt::format("{}", *id));
  } else {
    page.Heading("Body");
    page.Lines("cannot be read: " + EscapeLine(payload.error().message) + "\n");
  }
  if (std::string next = NextSteps(letter); !next.empty()) {
    page.Heading("What you can do next");
    page.Lines(EscapeBlock(next));
  }
  context.Print(page.text());
  return kDone;
}

}  // namespace

void AddShowCommand(CLI::App& app, Context& context) {
  auto id = std::make_shared<std::string>();
  CLI::App* command = context.Command(app, "show", "Show one event whole: timeline, headers, body, what to do next",
                                      [&context, id] { return Show(context, *id); });
  command->add_option("id", *id, "Id of the event")->required();
}

}  // namespace dlo::cli
