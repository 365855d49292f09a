// What every benchmark needs: an end with a reason, medians, CPU by thread, and the table of figures.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace dlo::bench {

[[noreturn]] inline void Die(const std::string& why) {
  fmt::print(stderr, "bench: {}\n", why);
  std::exit(1);
}

/// CPU seconds that each of our threads has used so far, by name.
inline std::map<std::string, double> CpuByThread() {
  std::map<std::string, double> cpu;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string line;
    std::getline(std::ifstream(task.path() / "stat"), line);
    const std::size_t open = line.find('('), close = line.rfind(')');
    if (close == std::string::npos) continue;  // it has ended
    std::istringstream rest(line.substr(close + 2));
    std::string skipped;
    for (int field = 3; field < 14; ++field) rest >> skipped;
    double user = 0, kernel = 0;
    rest >> user >> kernel;
    cpu[line.substr(open + 1, close - open - 1)] += (user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return cpu;
}

/// What each living thread of this process has used since `before`, by name, for each of `count`. To stderr.
inline void TellCpu(std::string_view what, int count, const std::map<std::string, double>& before = {}) {
  fmt::print(stderr, "{}: us CPU each\n", what);
  for (auto [name, seconds] : CpuByThread()) {
    if (const auto earlier = before.find(name); earlier != before.end()) seconds -= earlier->second;
    if (seconds > 0.01) fmt::print(stderr, "  {:<16}{:6.2f}\n", name, seconds * 1e6 / count);
  }
}

inline double Median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// A folder on the disk of the build folder, since /tmp may be memory; gone with the object.
class Folder {
 public:
  explicit Folder(std::string_view name = "bench")
      : path_(std::filesystem::canonical("/proc/self/exe").parent_path() / fmt::format("{}-{}", name, getpid())) {}
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  /// A new empty folder in it, and nothing else.
  std::string Fresh() {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    return path_.string();
  }

 private:
  std::filesystem::path path_;
};

/// The words of a command line. Each is asked for by name; Finish refuses what nobody asked for.
class Words {
 public:
  Words(int argc, char** argv) : words_(argv + 1, argv + argc) {}
  bool Flag(std::string_view name) {
    known_ += fmt::format(" [{}]", name);
    return std::erase(words_, name) > 0;
  }
  int Number(std::string_view name, int otherwise, int least) {
    known_ += fmt::format(" [{} N]", name);
    const auto at = std::ranges::find(words_, name);
    if (at == words_.end() || at + 1 == words_.end()) return otherwise;
    const int value = std::max(least, std::atoi(std::string(at[1]).c_str()));
    words_.erase(at, at + 2);
    return value;
  }
  void Finish() const {
    if (!words_.empty()) Die(fmt::format("unknown: {}; usage:{}", words_.front(), known_));
  }

 private:
  std::vector<std::string_view> words_;
  std::string known_;
};

/// One line of the table. `ratio` is the share of the baseline's performance that we reach.
struct Figure {
  std::string name, unit;
  double value = 0, baseline = 0, ratio = 0, reach = 0;  // reach 0: none is set
};

/// As a list of JSON objects, or as a table.
inline void Tell(const std::vector<Figure>& figures, bool json) {
  if (json) {
    fmt::print("[");
    for (std::size_t i = 0; i < figures.size(); ++i) {
      const Figure& f = figures[i];
      fmt::print(R"({}{{"figure":"{}","value":{:.2f},"unit":"{}","baseline":{:.2f},"ratio":{:.3f},"reach":{}}})",
                 i == 0 ? "" : ",\n", f.name, f.value, f.unit, f.baseline, f.ratio,
                 f.reach > 0 ? fmt::format("{}", f.reach) : "null");
    }
    fmt::print("]\n");
    return;
  }
  fmt::print("{:<66}{:>12}{:>12}{:>8}{:>8}\n", "", "dlo", "baseline", "ratio", "reach");
  for (const Figure& f : figures) {
    fmt::print("{:<66}{:>12.{}f}{:>12.{}f}{:>8.2f}{:>8}\n", f.name + " (" + f.unit + ")", f.value,
               f.value < 100 ? 2 : 0, f.baseline, f.baseline < 100 ? 2 : 0, f.ratio,
               f.reach > 0 ? fmt::format("{}", f.reach) : "");
  }
}

}  // namespace dlo::bench
