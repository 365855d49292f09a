#include "cli/context.h"

#include <fmt/format.h>

#include <charconv>
#include <istream>
#include <ostream>

#include "base/time_text.h"
#include "cli/text.h"

namespace dlo::cli {
namespace {

constexpr char kDefaultServer[] = "http://127.0.0.1:8686";

}  // namespace

CLI::App* Context::Command(CLI::App& parent, const std::string& name, const std::string& about,
                           std::function<int()> action) {
  CLI::App* command = parent.add_subcommand(name, about);
  command->add_option("--server", server_option,
                      fmt::format("Address of the server (or DLO_SERVER; {})", kDefaultServer));
  command->add_option("--token", token_option,
                      "Bearer token (or DLO_TOKEN, which other users of the machine cannot see)");
  command->add_flag("--json", json, "Print the API's JSON; errors as JSON on stderr");
  command->callback([this, action = std::move(action)] { run = action; });
  return command;
}

ApiClient& Context::api() {
  if (!api_) {
    std::string server = server_option.empty() ? deps.environment("DLO_SERVER").value_or("") : server_option;
    std::string token = token_option.empty() ? deps.environment("DLO_TOKEN").value_or("") : token_option;
    // A token pasted with its line end would otherwise end the header early.
    std::erase_if(token, [](char c) { return c <= ' ' || c == 0x7f; });
    if (server.empty()) server = kDefaultServer;
    if (server.find("://") == std::string::npos) server = "http://" + server;
    api_ = std::make_unique<ApiClient>(server, token);
  }
  return *api_;
}

Style Context::OutStyle() const {
  if (!deps.terminal.out) return {};
  bool colour = deps.environment("NO_COLOR").value_or("").empty() && deps.environment("TERM").value_or("") != "dumb";
  return {.width = deps.terminal.columns, .colour = colour};
}

void Context::Print(std::string_view text) const {
  deps.out.write(text.data(), static_cast<std::streamsize>(text.size()));
}

void Context::Note(std::string_view text) const {
  deps.err << text << "\n" << std::flush;
}

int Context::Report(const Error& error) const {
  if (json) {
    Note(boost::json::serialize(boost::json::object{{"error", {{"code", error.code}, {"message", error.message}}}}));
  } else {
    Note("dlo: " + EscapeLine(error.message));
  }
  return ExitFor(error);
}

int Context::Usage(const std::string& message) const {
  (void)Report({ErrorKind::invalid, "usage", message});
  return kUsage;
}

void Context::PrintJson(const ApiAnswer& answer) const {
  Print(answer.body);
  if (!answer.body.ends_with('\n')) Print("\n");
}

bool Context::Ask(const std::string& question) const {
  deps.err << question << " [y/N] " << std::flush;
  std::string answer;
  std::getline(deps.in, answer);
  while (!answer.empty() && (answer.back() == '\r' || answer.back() == ' ')) answer.pop_back();
  return answer == "y" || answer == "Y" || answer == "yes";
}

std::string Context::Ago(std::optional<Time> time) const {
  if (!time) return "-";
  return FormatAge(std::max(deps.clock.Now() - *time, Duration(0)));
}

int ExitFor(const Error& error) {
  if (error.code == kUnreachableCode) return kUnreachable;
  return error.kind == ErrorKind::invalid ? kUsage : kRefused;
}

std::optional<EventId> ParseId(std::string_view text) {
  if (text.starts_with('#')) text.remove_prefix(1);
  EventId id = 0;
  auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (ec != std::errc() || end != text.data() + text.size() || id <= 0) return std::nullopt;
  return id;
}

Result<std::vector<EventId>> ParseIds(const std::vector<std::string>& texts) {
  std::vector<EventId> ids;
  for (const std::string& text : texts) {
    std::optional<EventId> id = ParseId(text);
    if (!id) {
      return Fail(ErrorKind::invalid, "usage",
                  fmt::format("\"{}\" is no id; ids are the numbers in the first column of `dlo list`", text));
    }
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace dlo::cli
