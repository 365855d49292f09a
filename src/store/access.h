// Who may do what, and who did: tokens and the audit log.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlo/dead_letters.h"
#include "dlo/result.h"
#include "store/evidence.h"

namespace dlo::store {

struct Token {
  std::int64_t id = 0;
  std::string name;
  std::string role;  // viewer | operator | admin
  std::string hash;  // SHA-256 of the token, hex; the token itself is shown once and never stored
  Time created_at{};
  std::optional<Time> revoked_at;
};

/// Empty = all of the log.
struct AuditFilter {
  EventId event_id = 0;
  std::string actor, action;
  std::optional<Time> since, until;  // at >= since, at < until
};

class Access {
 public:
  virtual ~Access() = default;
  /// Audited in the same transaction, as is Revoke. Error conflict, code name_taken, for a live token of that name.
  virtual Result<Token> CreateToken(const std::string& name, const std::string& role, const std::string& hash,
                                    const Actor& actor, Time now) = 0;
  virtual Result<Token> RevokeToken(const std::string& name, const Actor& actor, Time now) = 0;
  /// Revoked ones included.
  virtual Result<std::vector<Token>> Tokens() = 0;
  /// Newest first; `before` 0 = from the newest.
  virtual Result<std::vector<AuditRecord>> Audit(const AuditFilter& filter, std::int64_t before, int limit) = 0;
  Result<std::vector<AuditRecord>> Audit(EventId event_id, std::int64_t before, int limit) {
    return Audit(AuditFilter{.event_id = event_id}, before, limit);
  }
  virtual Result<EvidenceHead> Head() = 0;
};

}  // namespace dlo::store
