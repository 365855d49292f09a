#include "store/embedded/notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/fingerprint.h"
#include "store/embedded/access.h"

namespace dlo::store {
namespace {

constexpr std::size_t kMaxText = 16'384;  // bytes: 4,000 characters of any language
constexpr int kMaxRows = 500;

Result<bool> Exists(Statement rows) {
  const auto row = rows.Step();
  if (!row) return std::unexpected(row.error());
  return *row;
}

Note ReadNote(const Statement& row, EventId event_id, const std::string& fingerprint) {
  Note note;
  note.id = row.Int(0);
  note.event_id = event_id;
  if (event_id == 0) note.fingerprint = fingerprint;
  note.at = FromMicros(row.Int(1));
  note.actor = row.String(2);
  note.role = row.String(3);
  note.text = row.String(4);
  return note;
}

}  // namespace

Result<void> CheckNoted(Db& db, EventId event_id, const std::string& fingerprint) {
  if (event_id != 0) {
    Statement rows = db.Prepare("SELECT 1 FROM events WHERE id = ?1");
    rows.Bind(1, event_id);
    const auto found = Exists(std::move(rows));
    if (!found) return std::unexpected(found.error());
    if (!*found) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", event_id));
    return {};
  }
  const auto number = FingerprintNumber(fingerprint);
  bool known = false;
  if (number) {
    Statement rows = db.Prepare(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM events INDEXED BY events_groups WHERE fingerprint = ?1 AND letter NOT "
        "NULL) OR EXISTS (SELECT 1 FROM notes WHERE fingerprint = ?1)");
    rows.Bind(1, *number);
    const auto found = Exists(std::move(rows));
    if (!found) return std::unexpected(found.error());
    known = *found;
  }
  if (known) return {};
  return Fail(ErrorKind::not_found, "no_such_group",
              "No dead letter has this fingerprint; see the groups for those that there are.");
}

Result<Note> InsertNote(Db& db, const Note& note, const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  if (auto ok = CheckNoted(db, note.event_id, note.fingerprint); !ok) return std::unexpected(ok.error());
  const auto fingerprint = FingerprintNumber(note.fingerprint);
  std::optional<std::int64_t> event_id;
  if (note.event_id != 0) event_id = note.event_id;
  {
    Statement count = event_id ? db.Prepare("SELECT count(*) FROM notes WHERE event_id = ?1")
                               : db.Prepare("SELECT count(*) FROM notes WHERE fingerprint = ?1");
    if (const auto row = count.Bind(1, event_id ? event_id : fingerprint).Step(); !row) {
      return std::unexpected(row.error());
    }
    if (count.Int(0) >= kMaxNotes) {
      return Fail(ErrorKind::conflict, "too_many_notes",
                  fmt::format("There are {} notes already; go on in the issue and link it.", kMaxNotes));
    }
  }
  Note made = note;
  made.at = now;
  made.actor = CleanText(actor.name, 200);
  made.role = CleanText(actor.role, 200);
  made.text = CleanText(note.text, kMaxText);
  auto done =
      db.Prepare("INSERT INTO notes (event_id, fingerprint, at, actor, role, text) VALUES (?1, ?2, ?3, ?4, ?5, ?6)")
          .Bind(1, event_id)
          .Bind(2, event_id ? std::nullopt : fingerprint)
          .Bind(3, ToMicros(now))
          .Bind(4, made.actor)
          .Bind(5, made.role)
          .Bind(6, made.text)
          .Run();
  if (!done) return std::unexpected(done.error());
  made.id = sqlite3_last_insert_rowid(db.handle());
  const std::string details = event_id ? fmt::format(R"({{"note":{}}})", made.id)
                                       : fmt::format(R"({{"note":{},"fingerprint":"{}"}})", made.id, note.fingerprint);
  if (auto audited = WriteAudit(db, actor, now, "note", note.event_id, details); !audited) {
    return std::unexpected(audited.error());
  }
  return made;
}

Result<std::vector<Note>> ReadNotes(Db& db, EventId event_id, const std::string& fingerprint, std::int64_t before,
                                    int limit) {
  Statement rows =
      event_id != 0
          ? db.Prepare(
                "SELECT id, at, actor, role, text FROM notes WHERE event_id = ?1 AND id < ?2 ORDER BY id DESC "
                "LIMIT ?3")
          : db.Prepare(
                "SELECT id, at, actor, role, text FROM notes WHERE fingerprint = ?1 AND id < ?2 ORDER BY id "
                "DESC LIMIT ?3");
  rows.Bind(1, event_id != 0 ? std::optional<std::int64_t>(event_id) : FingerprintNumber(fingerprint))
      .Bind(2, before > 0 ? before : INT64_MAX)
      .Bind(3, std::clamp(limit, 1, kMaxRows));
  std::vector<Note> notes;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return notes;
    notes.push_back(ReadNote(rows, event_id, fingerprint));
  }
}

}  // namespace dlo::store
