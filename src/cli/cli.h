// The command line: everything `dlo` does besides serving is a call to a running server's admin API.
#pragma once

#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

#include "dlo/time.h"
#include "env/clock.h"
#include "env/files.h"

namespace dlo::cli {

/// What a shell script may rely on.
enum Exit : int {
  kDone = 0,
  kRefused = 1,      // not found, or the server said no
  kUsage = 2,        // the command line is wrong; nothing was done
  kUnreachable = 3,  // no server answered
  kPartly = 4,       // some of what was asked was done
};

struct ServeOptions {
  std::string config;  // path of the TOML file
};

struct VerifyRequest {
  std::string config;  // path of the TOML file
  std::string heads;   // path of a heads file; empty = the configured one, if there is one
  bool json = false;
};

struct Terminal {
  bool in = false, out = false, err = false;  // is it one?
  int columns = 80;                           // of out
};

/// What only the process may do. Everything outlives RunCli.
struct CliDeps {
  std::function<int(const ServeOptions&)> serve;
  std::function<int(const std::string& path)> config_check;
  std::function<int(const VerifyRequest&)> verify;
  std::function<int(const std::string& config_path, const std::string& to, bool json)> archive_export;
  std::function<std::optional<std::string>(const std::string& name)> environment;
  /// Returns true after that long, false at once when the process was asked to stop (SIGINT, SIGTERM).
  std::function<bool(Duration)> wait;
  Clock& clock;
  Files& files;
  std::istream& in;
  std::ostream& out;
  std::ostream& err;
  Terminal terminal;
};

/// Runs one command and returns the process's exit code. Throws nothing that a user could cause.
int RunCli(int argc, const char* const* argv, const CliDeps& deps);

}  // namespace dlo::cli
