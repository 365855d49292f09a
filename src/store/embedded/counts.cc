#include "store/embedded/counts.h"

#include "base/time_text.h"

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
  if (Result<void> written = FlushArrivals(db); !written) return written;
  Clear();
  return {};
}

Result<void> Counts::FlushArrivals(Db& db) {
  for (const auto& [cause, arrived] : arrived_) {
    Result<void> written =
        db.Prepare(
              "INSERT INTO arrivals (source, fingerprint, class, n, first_at, last_at, sample) "
              "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (source, fingerprint) DO UPDATE SET n = n + excluded.n, "
              "class = excluded.class, last_at = excluded.last_at, sample = max(sample, excluded.sample)")
            .Bind(1, cause.first)
            .Bind(2, cause.second)
            .Bind(3, arrived.failure_class)
            .Bind(4, arrived.n)
            .Bind(5, ToMicros(arrived.first_at))
            .Bind(6, ToMicros(arrived.last_at))
            .Bind(7, arrived.sample)
            .Run();
    if (!written) return written;
  }
  return {};
}

}  // namespace dlo::store
