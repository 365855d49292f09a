// The queue as rows: claims, fenced results, leases. Each function works inside the caller's transaction on the index
// thread; ExpiredLeases reads only.
#pragma once

#include <span>
#include <vector>

#include "store/embedded/hot_cache.h"
#include "store/embedded/index_context.h"
#include "store/queue.h"

namespace dlo::store {

/// Records how the attempt ended and moves the event, or, when the token no longer owns it, records the answer as late.
Result<ApplyStatus> ApplyTransition(IndexContext& context, HotCache& hot, const Transition& transition);
/// Takes what is due of one source; appends to `claimed`, without receipts that are not in memory.
Result<void> ClaimDue(IndexContext& context, const HotCache& hot, const ClaimWant& want, const Lease& lease, Time now,
                      std::vector<Claimed>& claimed);
Result<ExchangeResult> ExchangeWork(IndexContext& context, HotCache& hot, const ExchangeRequest& request);

Result<std::vector<LeaseRef>> RenewLeases(Db& db, std::span<const LeaseRef> leases, Time until);
Result<std::vector<RunContext>> ReadExpiredLeases(Db& db, Time now, int max);
Result<int> HandBackLeases(IndexContext& context, std::span<const LeaseRef> leases, Time due);
Result<int> ExpireLeases(Db& db, Time now);

}  // namespace dlo::store
