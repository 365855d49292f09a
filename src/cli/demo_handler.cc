// `dlo demo-handler`: the sample billing application as a process.
#include <fmt/format.h>

#include "base/time_text.h"
#include "cli/billing_app.h"
#include "cli/context.h"
#include "server/http_server.h"

namespace dlo::cli {
namespace {

struct Options {
  std::string listen = "127.0.0.1:3000";
  std::string outage = "0s";
  bool fixed = false;
};

int Run(Context& context, const Options& options) {
  std::optional<Duration> outage = ParseDuration(options.outage);
  if (!outage) return context.Usage(fmt::format("--outage \"{}\" is no duration; write 10s or 2m", options.outage));
  BillingApp app({.fixed = options.fixed, .outage = *outage}, context.deps.clock);
  server::HttpServer http({.threads = 1}, context.deps.clock);
  if (auto ok = http.Start(options.listen, app); !ok) return context.Report(ok.error());
  std::string address = options.listen.substr(0, options.listen.rfind(':'));
  context.Note(
      fmt::format("sample billing handler, version {}, on http://{}:{}; POST /fix makes it version 2, GET / counts",
                  options.fixed ? 2 : 1, address, http.port()));
  while (context.deps.wait(std::chrono::hours(1))) {
  }
  http.Stop();
  return kDone;
}

}  // namespace

void AddDemoHandlerCommand(CLI::App& app, Context& context) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("demo-handler", "Run a sample billing handler that refuses some events, to try dlo against");
  command->add_option("--listen", options->listen, "host:port; port 0 takes any free one")->capture_default_str();
  command->add_flag("--fixed", options->fixed, "Start as version 2, which handles every currency and customer");
  command->add_option("--outage", options->outage, "Answer 503 for so long first (10s)")->capture_default_str();
  command->add_flag("--json", context.json, "Errors as JSON on stderr");
  command->callback([&context, options] { context.run = [&context, options] { return Run(context, *options); }; });
}

}  // namespace dlo::cli
