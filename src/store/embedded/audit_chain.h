// The chain of the audit log: each record's hash is the SHA-256 over its fields, the digest of the body of the event it
// is about and the hash of the record before. docs/formats.md has the bytes. Whoever keeps one head outside of the
// store can show later that everything up to it is as it was.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/encoding.h"
#include "dlo/letters.h"
#include "dlo/result.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

struct AuditHead {
  std::int64_t seq = 0;
  Sha256Digest hash{};
};

/// `body_sha256`: 32 bytes, or empty where there is no event.
[[nodiscard]] Sha256Digest AuditHash(const AuditRecord& record, std::string_view body_sha256,
                                     const Sha256Digest& previous);

/// Writes the record, whose seq becomes the next one, and moves the head. In the transaction of the act.
Result<void> AppendAudit(Db& db, AuditRecord& record);

/// For a store from before the chain: hashes its records, which become the chain's base. Does nothing where there is a
/// chain. Run again after a crash, it begins anew.
Result<void> StartAuditChain(Db& db);

Result<AuditHead> ReadAuditHead(Db& db);

/// From rows of seq, at, actor, role, action, event_id, reason, details.
[[nodiscard]] AuditRecord ReadAuditRow(const Statement& row);

/// 32 bytes of a column; zeros for any other length.
[[nodiscard]] Sha256Digest DigestOf(std::string_view bytes);

}  // namespace dlo::store
