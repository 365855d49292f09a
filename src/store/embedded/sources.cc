#include "store/embedded/sources.h"

#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/access.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

SourcePause ReadPause(const Statement& row) {
  return {
      .source = row.String(0), .fingerprint = row.String(1), .message = row.String(2), .since = FromMicros(row.Int(3))};
}

std::string Details(const SourcePause& pause) {
  return json::serialize(json::object{{"source", pause.source},
                                      {"fingerprint", pause.fingerprint},
                                      {"message", pause.message},
                                      {"since", FormatTime(pause.since)}});
}

}  // namespace

Result<void> PauseSource(Db& db, const SourcePause& pause, const Actor& actor) {
  if (auto ok = CheckActor(actor); !ok) return ok;
  SourcePause clean = pause;
  clean.message = CleanText(pause.message, 4'096);
  auto paused = db.Prepare(
                      "INSERT INTO source_pauses (source, fingerprint, message, since) VALUES (?1, ?2, ?3, ?4) "
                      "ON CONFLICT (source) DO NOTHING")
                    .Bind(1, clean.source)
                    .Bind(2, clean.fingerprint)
                    .Bind(3, clean.message)
                    .Bind(4, ToMicros(clean.since))
                    .Run();
  if (!paused || db.Changes() == 0) return paused;
  return WriteAudit(db, actor, clean.since, "source_pause", 0, Details(clean));
}

Result<void> ResumeSource(Db& db, const std::string& source, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return ok;
  SourcePause pause;
  {
    Statement find = db.Prepare("SELECT source, fingerprint, message, since FROM source_pauses WHERE source = ?1");
    auto row = find.Bind(1, source).Step();
    if (!row) return std::unexpected(row.error());
    if (!*row)
      return Fail(ErrorKind::not_found, "not_paused", "Source \"" + source + "\" is not paused; nothing to resume.");
    pause = ReadPause(find);
  }
  auto resumed = db.Prepare("DELETE FROM source_pauses WHERE source = ?1").Bind(1, source).Run();
  if (!resumed) return resumed;
  return WriteAudit(db, actor, now, "source_resume", 0, Details(pause));
}

Result<std::vector<SourcePause>> ReadPauses(Db& db) {
  Statement rows = db.Prepare("SELECT source, fingerprint, message, since FROM source_pauses ORDER BY source");
  std::vector<SourcePause> pauses;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return pauses;
    pauses.push_back(ReadPause(rows));
  }
}

}  // namespace dlo::store
