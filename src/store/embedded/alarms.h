// Alarms and their outbox as rows. Those that write work inside the caller's transaction.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "store/alarms.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

Result<AlarmsNow> ReadAlarms(Db& db);
Result<bool> CommitAlarms(Db& db, const AlarmPass& pass);
Result<std::optional<Alert>> DueAlert(Db& db, const std::string& receiver, Time now);
Result<void> AlertAttempted(Db& db, std::int64_t id, const std::string& answer, Time now, std::optional<Time> retry_at);
Result<std::int64_t> QueueTestAlert(Db& db, const Alert& alert, const Actor& actor, Time now);
Result<Alert> GetAlert(Db& db, std::int64_t id);
Result<std::vector<Alert>> ListAlerts(Db& db, bool pending_only, std::int64_t before, int limit);
Result<std::int64_t> PendingAlerts(Db& db);
Result<std::int64_t> KeepReceivers(Db& db, const std::vector<std::string>& names);
Result<std::vector<OverdueHold>> OverdueHolds(Db& db, Time now);
Result<std::vector<LastReceipt>> LastReceipts(Db& db);
Result<void> NoteProbe(Db& db, Time at, const std::string& failed);

}  // namespace dlo::store
