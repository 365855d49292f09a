// `dlo serve`, `dlo config check` and `dlo verify`: the only commands that are not calls to a server; the app does
// their work.
#include <string>

#include "cli/context.h"

namespace dlo::cli {

void AddServeCommands(CLI::App& app, Context& context) {
  struct Options {
    ServeOptions serve{.config = "dlo.toml"};
    std::string check = "dlo.toml";
    VerifyRequest verify{.config = "dlo.toml"};
  };
  auto options = std::make_shared<Options>();
  CLI::App* serve =
      app.add_subcommand("serve", "Run the server: receive, dispatch, and answer the admin API, until SIGTERM");
  serve->add_option("--config,-c", options->serve.config, "Configuration file")->capture_default_str();
  serve->callback(
      [&context, options] { context.run = [&context, options] { return context.deps.serve(options->serve); }; });

  CLI::App* config = app.add_subcommand("config", "Work with a configuration file");
  config->require_subcommand(1);
  CLI::App* check = config->add_subcommand("check", "Say whether a configuration file is right, and what is wrong");
  check->add_option("--config,-c,path", options->check, "Configuration file")->capture_default_str();
  check->add_flag("--json", context.json, "Errors as JSON on stderr");
  check->callback(
      [&context, options] { context.run = [&context, options] { return context.deps.config_check(options->check); }; });

  CLI::App* verify = app.add_subcommand(
      "verify",
      "Read the journal, the audit log and the index, and name what is not as it was written; changes nothing, also "
      "beside a running server");
  verify->add_option("--config,-c", options->verify.config, "Configuration file of the store")->capture_default_str();
  verify->add_option("--heads", options->verify.heads,
                     "Heads that were kept outside, one a line ([evidence] head_file)");
  verify->add_flag("--json", context.json, "The report as JSON");
  verify->callback([&context, options] {
    context.run = [&context, options] {
      options->verify.json = context.json;
      return context.deps.verify(options->verify);
    };
  });
}

}  // namespace dlo::cli
