#include "store/embedded/counts.h"

namespace dlo::store {

Result<void> Counts::Flush(Db& db) {
  for (const auto& [row, delta] : moves_) {
    if (delta == 0) continue;
    const auto& [source, state, failure_class] = row;
    Result<void> written = db.Prepare(
                                 "INSERT INTO counts (source, state, class, n) VALUES (?1, ?2, ?3, ?4) "
                                 "ON CONFLICT (source, state, class) DO UPDATE SET n = n + excluded.n")
                               .Bind(1, source)
                               .Bind(2, state)
                               .Bind(3, failure_class)
                               .Bind(4, delta)
                               .Run();
    if (!written) return written;
  }
  if (Result<void> written = replays_.Flush(db); !written) return written;
  Clear();
  return {};
}

}  // namespace dlo::store
