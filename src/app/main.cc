// The process: environment, signals, exit code. Everything else is in the layers.
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>

#include "app/serve.h"
#include "cli/cli.h"

namespace {

int stop_pipe[2] = {-1, -1};

extern "C" void OnStopSignal(int) {
  const char byte = 1;
  [[maybe_unused]] const auto written = write(stop_pipe[1], &byte, 1);
}

/// The first SIGINT or SIGTERM asks for a stop; a second one ends the process as usual. A peer that went is an error of
/// a write, not a signal.
void InstallSignals() {
  if (pipe(stop_pipe) != 0) std::abort();
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // no SA_RESTART: Ctrl-C must end a prompt
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

/// True after that long, false at once when asked to stop.
bool Wait(dlo::Duration length) {
  pollfd asked{stop_pipe[0], POLLIN, 0};
  timespec time{};
  time.tv_sec = length / std::chrono::seconds(1);
  time.tv_nsec = (length % std::chrono::seconds(1)).count() * 1000;
  return ppoll(&asked, 1, &time, nullptr) <= 0;
}

std::optional<std::string> Environment(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

int Columns() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace

int main(int argc, char** argv) {
  InstallSignals();
  dlo::RealClock clock;
  dlo::RealFiles files;
  const dlo::cli::CliDeps deps{
      .serve =
          [&](const dlo::cli::ServeOptions& options) { return dlo::app::Serve(options.config, Environment, Wait); },
      .config_check = [&](const std::string& path) { return dlo::app::CheckConfig(path, Environment, std::cout); },
      .verify =
          [&](const dlo::cli::VerifyRequest& request) {
            return dlo::app::Verify({.config = request.config,
                                     .heads = request.heads,
                                     .json = request.json,
                                     .progress = isatty(STDERR_FILENO) == 1 ? &std::cerr : nullptr},
                                    Environment, files, std::cout);
          },
      .archive_export =
          [&](const std::string& path, const std::string& to, bool json) {
            return dlo::app::ExportArchive(path, to, json, Environment, files, std::cout);
          },
      .environment = Environment,
      .wait = Wait,
      .clock = clock,
      .files = files,
      .in = std::cin,
      .out = std::cout,
      .err = std::cerr,
      .terminal = {isatty(STDIN_FILENO) == 1, isatty(STDOUT_FILENO) == 1, isatty(STDERR_FILENO) == 1, Columns()},
  };
  try {
    return dlo::cli::RunCli(argc, argv, deps);
  } catch (const std::exception& e) {
    std::cerr << "dlo: " << e.what() << '\n';
    return dlo::cli::kRefused;
  }
}
