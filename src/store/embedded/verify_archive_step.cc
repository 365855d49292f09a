// The archive by itself: its manifest's chain and every file of it.
#include <fmt/format.h>

#include <algorithm>

#include "store/embedded/verify.h"

namespace dlo::store {

Result<void> CheckArchive(VerifyScope& scope, std::vector<StepReport>& reports) {
  if (scope.archive.empty()) return {};
  auto archive = VerifyArchive(scope.files, scope.archive);
  if (!archive) return std::unexpected(archive.error());
  if (archive->lines == 0 && archive->problems.empty()) return {};
  StepReport report{.name = "archive", .checked = archive->files, .unit = "files"};
  for (const std::string& problem : archive->problems) {
    // A damaged segment shows itself while the journal is read, too.
    if (std::ranges::find(scope.journal_report.problems, problem) != scope.journal_report.problems.end()) continue;
    report.Add({problem, 0, "put that file back from a copy; until then nothing of its line is pruned"});
  }
  report.notes.push_back(
      fmt::format("{} segments, manifest of {} lines, head {}", archive->segments, archive->lines, archive->head));
  scope.archive_report = std::move(*archive);
  reports.push_back(std::move(report));
  return {};
}

}  // namespace dlo::store
