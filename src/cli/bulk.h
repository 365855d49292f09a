// Acts of triage on all letters that match: shown with their exact number, agreed to, then followed.
#pragma once

#include <boost/json.hpp>
#include <string>

#include "cli/context.h"
#include "cli/filter_options.h"

namespace dlo::cli {

struct BulkOptions {
  FilterOptions filter;
  bool all = false, dry_run = false, yes = false, force = false;
  std::int64_t max = 10'000;

  /// `until`: as of FilterOptions::AddTo.
  void AddTo(CLI::App* command, std::string_view until = "until");
  /// Was anything said that selects many?
  [[nodiscard]] bool Given() const { return all || dry_run || !filter.Empty(); }
};

/// POST /v1/dead-letters/{act} with `words` of the act's own.
int ActWhere(Context& context, BulkOptions& options, const std::string& act, const boost::json::object& words,
             const std::string& reason);

/// A question about many letters: nullopt = go on, otherwise the exit code.
std::optional<int> Agree(Context& context, bool yes, const std::string& question);

}  // namespace dlo::cli
