// sim [--seeds N] [--first S] [--seed S] [--steps N]: runs worlds; the first that breaks a rule prints its seed, what
// broke and its last events, and ends with 1. The same seed gives the same run.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "sim/world.h"

namespace {

int Run(int argc, char** argv) {
  std::uint64_t first = 1, seeds = 100;
  int steps = dlo::sim::Options().steps;
  bool whole = false;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view word = argv[i];
    const std::uint64_t value = std::strtoull(argv[i + 1], nullptr, 10);
    if (word == "--seeds")
      seeds = value;
    else if (word == "--first")
      first = value;
    else if (word == "--steps")
      steps = static_cast<int>(value);
    else if (word == "--seed") {
      first = value;
      seeds = 1;
      whole = true;
    } else {
      fmt::print(stderr, "usage: sim [--seeds N] [--first S] [--seed S] [--steps N]\n");
      return 2;
    }
  }
  dlo::log::SetLevel("off");
  const auto began = std::chrono::steady_clock::now();
  dlo::sim::Report sum;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    const dlo::sim::Report report = dlo::sim::World({.seed = seed, .steps = steps}).Run();
    if (whole || !report.failure.empty()) {
      for (const std::string& line : report.history) fmt::print("{}\n", line);
    }
    if (!report.failure.empty()) {
      fmt::print("seed {}: BROKEN: {}\nagain: sim --seed {} --steps {}\n", seed, report.failure, seed, steps);
      return 1;
    }
    sum.events += report.events;
    sum.calls += report.calls;
    sum.effects += report.effects;
    sum.deaths += report.deaths;
    sum.acts += report.acts;
    if ((seed - first + 1) % 500 == 0) fmt::print("{} seeds held\n", seed - first + 1);
  }
  fmt::print("{} seeds held: {} events, {} calls, {} effects, {} deaths, {} acts of triage, {:.0f} s\n", seeds,
             sum.events, sum.calls, sum.effects, sum.deaths, sum.acts,
             std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return Run(argc, argv);
}
