// The words that select dead letters: the same for every command, and the same as in the API.
#pragma once

#include <CLI/CLI.hpp>
#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/result.h"
#include "dlo/time.h"

namespace dlo::cli {

class FilterOptions {
 public:
  /// `until`: its name, where the command has an --until of its own.
  void AddTo(CLI::App* command, std::string_view until = "until");
  /// Sets one word, as if it had been typed.
  void Only(std::string_view name, const std::string& value);
  /// Checks times, and turns "2h" (so long before `now`) into a time. Error invalid names the option.
  Result<void> Check(Time now);
  [[nodiscard]] bool Empty() const;
  /// "type=a&type=b&since=..."; empty for an empty filter.
  [[nodiscard]] std::string Query() const;
  /// As POST /v1/replays takes it.
  [[nodiscard]] boost::json::object Json() const;
  /// As the user would type it: for messages.
  [[nodiscard]] std::string Words() const;

 private:
  struct Many {
    const char* name;
    std::vector<std::string> values;
  };
  struct One {
    const char* name;
    std::string value;
  };
  std::vector<Many> many_ = {{"type", {}},    {"source", {}}, {"subject", {}},
                             {"account", {}}, {"class", {}},  {"state", {}}};
  std::vector<One> one_ = {{"since", {}}, {"until", {}},   {"livemode", {}},     {"fingerprint", {}},
                           {"q", {}},     {"overdue", {}}, {"not-judged-by", {}}};
};

}  // namespace dlo::cli
