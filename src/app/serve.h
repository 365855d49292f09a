// `dlo serve`, `dlo config check` and `dlo verify`.
#pragma once

#include <functional>
#include <iosfwd>
#include <string>

#include "app/config_file.h"
#include "dlo/time.h"
#include "env/files.h"

namespace dlo::app {

/// Serves until `wait` says that the process was asked to stop. Returns the exit code: 0 after a clean stop, 1 when it
/// could not start (the reason is on stderr) or its store failed for good (a restart recovers).
int Serve(const std::string& config_path, const Environment& environment, const std::function<bool(Duration)>& wait);

/// Prints what is wrong, all of it, or a summary. Returns 0 or 1.
int CheckConfig(const std::string& config_path, const Environment& environment, std::ostream& out);

struct VerifyArguments {
  std::string config;  // path
  std::string heads;   // path; empty = the configured file, if it is there
  bool json = false;
  std::ostream* progress = nullptr;  // a terminal; null = silent
};

/// Reads the whole configured store, takes no lock and changes nothing; prints a report that names each damaged place.
/// Returns 0 when all of it is as it was written, 1 otherwise.
int Verify(const VerifyArguments& arguments, const Environment& environment, Files& files, std::ostream& out);

/// Writes the archive of the configured store into the folder `to`, decompressed, with SHA256SUMS. Returns 0 or 1.
int ExportArchive(const std::string& config_path, const std::string& to, bool json, const Environment& environment,
                  Files& files, std::ostream& out);

}  // namespace dlo::app
