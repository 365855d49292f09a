// The queue as rows: claims, fenced results, leases. Each function works inside the caller's transaction on the index
// thread; ExpiredLeases reads only.
#pragma once

#include <span>
#include <vector>

#include "store/embedded/hot_cache.h"
#include "store/embedded/index_context.h"
#include "store/embedded/journal.h"
#include "store/queue.h"

namespace dlo::store {

/// A claimed event whose bytes cannot be read just now (not: whose bytes are wrong) is put off by this, uncounted.
inline constexpr Duration kUnreadableWait = std::chrono::seconds(60);

/// Where claims take the bytes from.
struct Bodies {
  const Journal& journal;
  HotCache& hot;
};

/// Records how the attempt ended and moves the event, or, when the token no longer owns it, records the answer as late.
Result<ApplyStatus> ApplyTransition(IndexContext& context, HotCache& hot, const Transition& transition);
/// Takes what is due of one source; appends to `claimed`.
Result<void> ClaimDue(IndexContext& context, Bodies bodies, const ClaimWant& want, const Lease& lease, Time now,
                      std::vector<Claimed>& claimed);
Result<ExchangeResult> ExchangeWork(IndexContext& context, Bodies bodies, const ExchangeRequest& request);

Result<std::vector<LeaseRef>> RenewLeases(Db& db, std::span<const LeaseRef> leases, Time until);
Result<std::vector<RunContext>> ReadExpiredLeases(Db& db, Time now, int max);
Result<int> HandBackLeases(IndexContext& context, std::span<const LeaseRef> leases, Time now);
Result<int> ExpireLeases(Db& db, Time now);

}  // namespace dlo::store
