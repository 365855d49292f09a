#include "store/embedded/verify.h"

#include <fmt/format.h>

#include <array>

#include "store/embedded/embedded_store.h"
#include "store/embedded/schema_text.h"

namespace dlo::store {
namespace {

constexpr std::array kSteps = {VerifyStep{CheckJournal}, VerifyStep{CheckArchive}, VerifyStep{CheckAudit},
                               VerifyStep{CheckIndex}};
constexpr std::size_t kMaxLine = 4'096;

Result<std::string> ReadFile(Files& files, const std::string& path) {
  const auto file = files.Open(path, OpenMode::read);
  if (!file) return std::unexpected(file.error());
  const auto size = (*file)->Size();
  if (!size) return std::unexpected(size.error());
  std::string text(*size, '\0');
  const auto read = (*file)->ReadAt(0, text);
  if (!read) return std::unexpected(read.error());
  text.resize(*read);
  return text;
}

/// Lines that are no head (cut by a crash of the machine while they were written) prove nothing, in either direction.
std::vector<EvidenceHead> ParseHeads(std::string_view text, std::int64_t& unreadable) {
  std::vector<EvidenceHead> heads;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty()) continue;
    const auto head = line.size() <= kMaxLine ? HeadFromJson(line) : std::nullopt;
    if (head) {
      heads.push_back(*head);
    } else {
      ++unreadable;
    }
  }
  return heads;
}

Result<void> OpenIndex(const VerifyOptions& options, std::unique_ptr<Db>& db, VerifyScope& scope) {
  auto opened = Db::Open(options.database, Db::Mode::reader);
  if (!opened) return std::unexpected(opened.error());
  db = std::move(*opened);
  if (auto begun = db->Exec("BEGIN"); !begun) return begun;
  auto rows = db->PrepareOnce("SELECT count(*), (SELECT value FROM meta WHERE name = 'journal_seq') FROM migrations");
  auto row = rows ? rows->Step() : Result<bool>(std::unexpected(rows.error()));
  if (!row) return std::unexpected(row.error());
  if (rows->Int(0) < static_cast<std::int64_t>(kMigrations.size())) {
    return Fail(ErrorKind::invalid, "schema_older",
                "an older dlo made this store: let this one open it once (`dlo serve`), then verify it");
  }
  if (rows->Int(0) > static_cast<std::int64_t>(kMigrations.size())) {
    return Fail(ErrorKind::invalid, "schema_newer", "a newer dlo made this store: verify it with that one");
  }
  scope.db = db.get();
  scope.indexed = rows->Int(1);
  return {};
}

}  // namespace

void StepReport::Add(Damage damage) {
  ++damaged;
  if (damages.size() < kMaxDamages) damages.push_back(std::move(damage));
}

std::span<const VerifyStep> VerifySteps() {
  return kSteps;
}

const Damage* VerifyReport::First() const {
  for (const StepReport& step : steps) {
    if (!step.damages.empty()) return &step.damages.front();
  }
  return nullptr;
}

Result<VerifyReport> VerifyStore(Files& files, const VerifyOptions& options) {
  VerifyScope scope{.files = files,
                    .journal = JournalFolder(options.database),
                    .archive = options.archive,
                    .progress = options.progress};
  StepReport heads{.name = "heads file", .unit = "lines"};
  if (!options.heads_file.empty()) {
    const auto text = ReadFile(files, options.heads_file);
    if (!text) return std::unexpected(text.error());
    std::int64_t unreadable = 0;
    scope.heads = ParseHeads(*text, unreadable);
    scope.heads_given = true;
    heads.checked = std::ssize(scope.heads) + unreadable;
    if (unreadable > 0) heads.notes.push_back(fmt::format("{} lines are no heads and were passed over", unreadable));
    if (scope.heads.empty()) {
      heads.Add({options.heads_file + ": no line of it is a head", 0, "give the file that [evidence] head_file names"});
    }
  }
  std::unique_ptr<Db> db;
  // Not by our Files: SQLite has its own.
  if (files.Exists(options.database)) {
    if (auto opened = OpenIndex(options, db, scope); !opened) return std::unexpected(opened.error());
  }
  VerifyReport report;
  if (scope.heads_given) report.steps.push_back(std::move(heads));
  for (const VerifyStep& step : VerifySteps()) {
    if (auto done = step.run(scope, report.steps); !done) return std::unexpected(done.error());
  }
  report.journal = std::move(scope.journal_report);
  report.archive = std::move(scope.archive_report);
  return report;
}

}  // namespace dlo::store
