// The shape of the index: numbered migrations with checksums, and the proof at start that what the laws of the store
// rest on is really there.
#pragma once

#include "dlo/result.h"
#include "dlo/time.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// Brings the database to this version, each migration in a transaction with full flush, and sets the rows of `meta`
/// that everybody expects. Errors invalid: "schema_newer" (made by a later version), "schema_changed" (a migration that
/// was applied differs from ours), "foreign_database" (tables of something else), "constraint_missing".
Result<void> Migrate(Db& db, Time now);

/// The unique indexes exist, are unique and are over the columns they should be.
Result<void> VerifyConstraints(Db& db);

}  // namespace dlo::store
