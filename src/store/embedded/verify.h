// Reads a whole store and says what in it is not as it was written: a list of steps, each of which knows one thing. It
// takes no lock, changes nothing and works beside a running server: the index is read in one snapshot, and of the
// journal what that snapshot knows.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "dlo/result.h"
#include "env/files.h"
#include "store/embedded/archive_verify.h"
#include "store/embedded/journal_verify.h"
#include "store/embedded/sqlite.h"
#include "store/evidence.h"

namespace dlo::store {

struct Damage {
  std::string what;      // names the place: "audit record 17: ..."
  std::int64_t seq = 0;  // of the record or event; 0 = none in particular
  std::string advice;    // what to do about it
};

struct StepReport {
  std::string name;
  std::int64_t checked = 0;
  std::string unit;             // of `checked`: "audit records"
  std::int64_t damaged = 0;     // may be more than are in the list
  std::vector<Damage> damages;  // the first kMaxDamages, in order
  std::vector<std::string> notes;

  static constexpr std::size_t kMaxDamages = 100;
  void Add(Damage damage);
};

struct VerifyScope {
  Files& files;
  std::string journal;  // folder
  std::string archive;  // folder; empty or not there: there is none
  Db* db = nullptr;     // in one read transaction; null: there is no index
  std::int64_t indexed = 0;
  bool heads_given = false;
  std::vector<EvidenceHead> heads;
  /// Called now and then with how far a step is; may be unset.
  std::function<void(std::string_view step, std::int64_t done)> progress;
  JournalReport journal_report;  // what the first step found
  ArchiveReport archive_report;

  void Tell(std::string_view step, std::int64_t done) const {
    if (progress && done % 10'000 == 0) progress(step, done);
  }
};

/// An error is of the disk or the database alone, and ends the step.
struct VerifyStep {
  Result<void> (*run)(VerifyScope& scope, std::vector<StepReport>& reports);
};
/// In the order in which they run. None needs another.
[[nodiscard]] std::span<const VerifyStep> VerifySteps();

struct VerifyOptions {
  std::string database;    // path
  std::string archive;     // folder; empty = none
  std::string heads_file;  // empty = none
  std::function<void(std::string_view step, std::int64_t done)> progress;
};
struct VerifyReport {
  std::vector<StepReport> steps;
  JournalReport journal;
  ArchiveReport archive;
  [[nodiscard]] const Damage* First() const;
};
/// Error: a file that cannot be read, or an index that an older dlo made and this one has never opened.
Result<VerifyReport> VerifyStore(Files& files, const VerifyOptions& options);

// The steps.
Result<void> CheckJournal(VerifyScope& scope, std::vector<StepReport>& reports);  // and payloads against the index
Result<void> CheckArchive(VerifyScope& scope, std::vector<StepReport>& reports);  // its manifest and files
Result<void> CheckAudit(VerifyScope& scope, std::vector<StepReport>& reports);    // and the heads kept outside
Result<void> CheckIndex(VerifyScope& scope, std::vector<StepReport>& reports);    // rows, counts, states

}  // namespace dlo::store
