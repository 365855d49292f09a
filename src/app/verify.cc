// `dlo verify`: the report of the store's check, for people and as JSON.
#include "store/embedded/verify.h"

#include <fmt/format.h>

#include <boost/json.hpp>
#include <iostream>

#include "app/office.h"
#include "app/serve.h"
#include "store/embedded/embedded_store.h"

namespace dlo::app {
namespace {

namespace json = boost::json;
using store::Damage;
using store::StepReport;
using store::VerifyReport;

json::object View(const Damage& damage) {
  return {{"seq", damage.seq}, {"what", damage.what}, {"do", damage.advice}};
}

json::object View(const VerifyReport& report, const std::string& folder, const std::string& archive) {
  json::array steps, problems;
  for (const StepReport& step : report.steps) {
    json::array damages;
    for (const Damage& damage : step.damages) {
      damages.push_back(View(damage));
      problems.emplace_back(damage.what);
    }
    steps.push_back(json::object{{"step", step.name},
                                 {"checked", step.checked},
                                 {"unit", step.unit},
                                 {"damaged", step.damaged},
                                 {"damages", std::move(damages)},
                                 {"notes", json::array(step.notes.begin(), step.notes.end())}});
  }
  const Damage* first = report.First();
  return {{"sound", first == nullptr},
          {"first", first != nullptr ? json::value(View(*first)) : json::value(nullptr)},
          {"steps", std::move(steps)},
          {"journal", folder},
          {"segments", report.journal.segments},
          {"records", report.journal.records},
          {"bytes", report.journal.bytes},
          {"last_seq", report.journal.last_seq},
          {"torn_bytes", report.journal.torn_bytes},
          {"archive",
           {{"folder", archive},
            {"segments", report.archive.segments},
            {"files", report.archive.files},
            {"bytes", report.archive.bytes},
            {"original_bytes", report.archive.original_bytes},
            {"lines", report.archive.lines},
            {"head", report.archive.head}}},
          {"problems", std::move(problems)}};
}

void Print(const VerifyReport& report, const std::string& folder, std::ostream& out) {
  constexpr std::size_t kShown = 10;
  out << fmt::format("{}: {} receipts in {} segments, {} bytes, newest receipt {}\n", folder, report.journal.records,
                     report.journal.segments, report.journal.bytes, report.journal.last_seq);
  for (const StepReport& step : report.steps) {
    out << fmt::format("  {:<11}{:>9} {:<9} {}\n", step.name, step.checked, step.unit,
                       step.damaged == 0 ? "sound" : fmt::format("{} DAMAGED", step.damaged));
    for (const std::string& note : step.notes) out << "    " << note << '\n';
    for (std::size_t i = 0; i < std::min(step.damages.size(), kShown); ++i) {
      out << "    DAMAGED " << step.damages[i].what << '\n';
    }
    if (step.damaged > static_cast<std::int64_t>(kShown)) {
      out << fmt::format("    and {} more; --json tells the first {}\n", step.damaged - std::int64_t{kShown},
                         StepReport::kMaxDamages);
    }
  }
  const Damage* first = report.First();
  if (first == nullptr) return;
  out << "First: " << first->what << "\nDo:    " << first->advice << '\n';
}

/// One line that is written over; ends blank.
class ProgressLine {
 public:
  explicit ProgressLine(std::ostream* terminal) : terminal_(terminal) {}
  ~ProgressLine() {
    if (terminal_ != nullptr && told_) *terminal_ << "\r\x1b[K" << std::flush;
  }
  void Tell(std::string_view step, std::int64_t done) {
    if (terminal_ == nullptr) return;
    told_ = true;
    *terminal_ << "\r\x1b[K" << step << ": " << done << std::flush;
  }

 private:
  std::ostream* terminal_;
  bool told_ = false;
};

int Refuse(const Error& error) {
  std::cerr << "dlo verify: " << error.message << '\n';
  return 1;
}

}  // namespace

int Verify(const VerifyArguments& arguments, const Environment& environment, Files& files, std::ostream& out) {
  const Result<Config> config = LoadConfig(arguments.config, environment);
  if (!config) return Refuse(config.error());
  store::VerifyOptions options{
      .database = DatabasePath(*config), .archive = ArchivePath(*config), .heads_file = arguments.heads};
  const std::string& configured = config->evidence.head_file;
  if (options.heads_file.empty() && !configured.empty() && files.Exists(configured)) options.heads_file = configured;
  Result<VerifyReport> report = [&] {
    ProgressLine line(arguments.progress);
    options.progress = [&line](std::string_view step, std::int64_t done) { line.Tell(step, done); };
    return store::VerifyStore(files, options);
  }();
  if (!report) return Refuse(report.error());
  const std::string folder = store::JournalFolder(options.database);
  if (arguments.json) {
    out << json::serialize(View(*report, folder, options.archive)) << '\n';
  } else {
    Print(*report, folder, out);
  }
  return report->First() == nullptr ? 0 : 1;
}

}  // namespace dlo::app
