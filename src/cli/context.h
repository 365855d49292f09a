// What every command has: the parsed common options, the client, and one way each to print, to note and to fail.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/api_client.h"
#include "cli/cli.h"
#include "cli/table.h"
#include "dlo/event.h"
#include "dlo/result.h"

namespace dlo::cli {

/// Lives for one RunCli. A command registers its options and a callback that sets `run`.
struct Context {
  explicit Context(const CliDeps& d) : deps(d) {}

  const CliDeps& deps;
  std::string program = "dlo";  // as it can be typed again
  std::string server_option, token_option;
  bool json = false;
  std::function<int()> run;

  /// A subcommand with the common options; `action` is its whole work and returns an Exit.
  CLI::App* Command(CLI::App& parent, const std::string& name, const std::string& about, std::function<int()> action);
  /// Made at the first call, from --server and --token or the environment.
  ApiClient& api();

  [[nodiscard]] Style OutStyle() const;
  /// On a terminal where tables do better with fewer columns.
  [[nodiscard]] bool Narrow() const { return deps.terminal.out && deps.terminal.columns < 110; }
  /// To stdout, which carries only what was asked for.
  void Print(std::string_view text) const;
  /// A line to stderr: hints, warnings, progress.
  void Note(std::string_view text) const;
  /// Prints the error (as JSON with --json) and returns the exit code that fits it.
  int Report(const Error& error) const;
  int Usage(const std::string& message) const;
  /// Bytes of the API unchanged, ended by a newline.
  void PrintJson(const ApiAnswer& answer) const;
  /// Asks on the terminal; only "y" or "yes" is yes.
  [[nodiscard]] bool Ask(const std::string& question) const;
  /// Now, as "12 min" before it.
  [[nodiscard]] std::string Ago(std::optional<Time> time) const;

 private:
  std::unique_ptr<ApiClient> api_;
};

/// Exit code for an error of the API or of ours.
[[nodiscard]] int ExitFor(const Error& error);
/// "123" or "#123"; nullopt for anything else, also for 0.
[[nodiscard]] std::optional<EventId> ParseId(std::string_view text);
/// Each as an id, or a usage error that names the one that is not.
[[nodiscard]] Result<std::vector<EventId>> ParseIds(const std::vector<std::string>& texts);

void AddServeCommands(CLI::App& app, Context& context);
void AddListCommands(CLI::App& app, Context& context);
void AddShowCommand(CLI::App& app, Context& context);
void AddStatsCommand(CLI::App& app, Context& context);
void AddTailCommand(CLI::App& app, Context& context);
void AddTriageCommands(CLI::App& app, Context& context);
void AddReplayCommands(CLI::App& app, Context& context);
void AddReplaysCommands(CLI::App& app, Context& context);
void AddAccessCommands(CLI::App& app, Context& context);
void AddSendCommand(CLI::App& app, Context& context);
void AddDemoHandlerCommand(CLI::App& app, Context& context);
void AddDemoCommand(CLI::App& app, Context& context);

}  // namespace dlo::cli
