#include "store/embedded/handler_versions.h"

#include "base/time_text.h"

namespace dlo::store {

Result<void> NoteHandlerVersion(IndexContext& context, std::int64_t source, EventId id, std::int64_t attempt_no,
                                std::string_view version, Time at) {
  if (version.empty() || !context.names.FirstOf(source, version)) return {};
  return context.db
      .Prepare(
          "INSERT INTO handler_versions (target, version, first_seen) SELECT a.target, ?3, ?4 FROM attempts a "
          "WHERE a.event_id = ?1 AND a.number = ?2 "
          "AND (SELECT count(*) FROM handler_versions v WHERE v.target = a.target) < ?5 "
          "ON CONFLICT (target, version) DO NOTHING")
      .Bind(1, id)
      .Bind(2, attempt_no)
      .Bind(3, version)
      .Bind(4, ToMicros(at))
      .Bind(5, kMaxVersions)
      .Run();
}

}  // namespace dlo::store
