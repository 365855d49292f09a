#include "cli/cli.h"

#include <fmt/format.h>

#include <ostream>
#include <string_view>

#include "cli/context.h"

namespace dlo::cli {
namespace {

constexpr char kAbout[] =
    "dlo, the Dead Letter Office: receives webhooks durably, hands them to your handler, and keeps what failed until\n"
    "somebody decided what becomes of it.";
constexpr char kFooter[] =
    "Exit codes: 0 done, 1 not found or refused, 2 usage, 3 server unreachable, 4 partly done.\n"
    "Environment: DLO_SERVER, DLO_TOKEN, NO_COLOR. `dlo COMMAND --help` tells more.";

// What was typed up to the command, for "see `dlo token create --help`".
std::string CommandWords(const CLI::App& app) {
  std::string words = "dlo";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    words += " " + at->get_name();
  }
  return words;
}

// The errors of the parser name the flag but not the way out.
int ReportParseError(const CLI::App& app, const Context& context, const CLI::ParseError& error) {
  std::string message = error.what();
  while (message.ends_with('.') || message.ends_with('\n')) message.pop_back();
  return context.Usage(fmt::format("{}; see `{} --help`", message, CommandWords(app)));
}

}  // namespace

int RunCli(int argc, const char* const* argv, const CliDeps& deps) {
  CLI::App app{kAbout, "dlo"};
  Context context(deps);
  if (argc > 0 && std::string_view(argv[0]).find('/') != std::string_view::npos) context.program = argv[0];
  app.footer(kFooter);
  app.set_version_flag("--version", "dlo " DLO_VERSION);
  app.require_subcommand(1);
  app.add_option("--server", context.server_option, "Address of the server (or DLO_SERVER; http://127.0.0.1:8686)");
  app.add_option("--token", context.token_option, "Bearer token (or DLO_TOKEN)");
  app.add_flag("--json", context.json, "Print JSON; errors as JSON on stderr");
  AddServeCommands(app, context);
  AddSendCommand(app, context);
  AddListCommands(app, context);
  AddShowCommand(app, context);
  AddStatsCommand(app, context);
  AddTailCommand(app, context);
  AddReplayCommands(app, context);
  AddReplaysCommands(app, context);
  AddTriageCommands(app, context);
  AddAccessCommands(app, context);
  AddDemoHandlerCommand(app, context);
  AddDemoCommand(app, context);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help, deps.out, deps.err);
  } catch (const CLI::Success& version) {
    return app.exit(version, deps.out, deps.err);
  } catch (const CLI::ParseError& error) {
    // A parse that fails leaves flags unset, and the error's form hangs on one of them.
    for (int i = 1; i < argc; ++i) context.json = context.json || std::string_view(argv[i]) == "--json";
    return ReportParseError(app, context, error);
  }
  int code = context.run ? context.run() : context.Usage("no command; see `dlo --help`");
  deps.out.flush();
  return code;
}

}  // namespace dlo::cli
