// Tokens and the audit log as rows.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/access.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

/// One record of one act, in the act's transaction, chained to the one before: the only writer of the audit log.
/// `details` is a JSON object.
Result<void> WriteAudit(Db& db, const Actor& actor, Time now, std::string_view action, EventId event_id,
                        std::string_view details);

/// Error conflict "name_taken"; invalid: "bad_token_name", "bad_role", "actor_missing".
Result<Token> CreateToken(Db& db, const std::string& name, const std::string& role, const std::string& hash,
                          const Actor& actor, Time now);
/// Error not_found "no_such_token" when no live token has the name.
Result<Token> RevokeToken(Db& db, const std::string& name, const Actor& actor, Time now);
/// Oldest first, revoked ones included.
Result<std::vector<Token>> ReadTokens(Db& db);
/// Newest first; `before` 0 = from the newest; at most 500.
Result<std::vector<AuditRecord>> ReadAudit(Db& db, const AuditFilter& filter, std::int64_t before, int limit);
inline Result<std::vector<AuditRecord>> ReadAudit(Db& db, EventId event_id, std::int64_t before, int limit) {
  return ReadAudit(db, AuditFilter{.event_id = event_id}, before, limit);
}

/// Every act says who acts: error invalid, "actor_missing".
Result<void> CheckActor(const Actor& actor);

}  // namespace dlo::store
