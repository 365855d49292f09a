#include "store/embedded/revisions.h"

#include <fmt/format.h>

#include <boost/json.hpp>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/access.h"
#include "store/embedded/triage.h"

namespace dlo::store {
namespace {

struct Newest {
  int number = 0;  // of any revision
  int in_effect = 0;
};

std::string_view Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

Result<Newest> ReadNewest(Db& db, EventId id) {
  Statement rows = db.Prepare(
      "SELECT (SELECT coalesce(max(number), 0) FROM revisions WHERE event_id = ?1), "
      "(SELECT coalesce(revision, 0) FROM events WHERE id = ?1)");
  const auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  return Newest{static_cast<int>(rows.Int(0)), static_cast<int>(rows.Int(1))};
}

Result<void> Check(const LetterRow& row, const Newest& newest, const RevisionRequest& request) {
  const auto refuse = [](std::string code, std::string message) -> Result<void> {
    return Fail(ErrorKind::conflict, std::move(code), std::move(message));
  };
  if (row.state != State::dead && row.state != State::held) {
    if (row.replaying && (row.state == State::waiting || row.state == State::running)) {
      return refuse("in_replay", fmt::format("Event {} is being replayed by replay {}; wait for its outcome.", row.id,
                                             row.replay_id));
    }
    return refuse("not_dead_lettered", fmt::format("Event {} is {}; only a dead letter's payload can be corrected.",
                                                   row.id, Name(row.state)));
  }
  if (request.after && *request.after != newest.number) {
    return refuse("revised_meanwhile", fmt::format("The newest revision of event {} is {}, not {}: look at it first.",
                                                   row.id, newest.number, *request.after));
  }
  if (!request.body && newest.in_effect == 0) {
    return refuse("no_revision", fmt::format("Replays of event {} send the original already.", row.id));
  }
  if (newest.number >= kMaxRevisions) {
    return refuse("too_many_revisions",
                  fmt::format("Event {} has {} revisions, and no more are kept.", row.id, newest.number));
  }
  return {};
}

Result<std::string> OriginalDigest(Db& db, EventId id) {
  Statement rows = db.Prepare("SELECT body_sha256 FROM receipts WHERE id = ?1");
  const auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  return rows.String(0);
}

Result<void> WriteRow(Db& db, EventId id, const Revision& revision, const std::optional<std::string>& body,
                      std::string_view role, std::string_view digest) {
  Statement insert = db.Prepare(
      "INSERT INTO revisions (event_id, number, at, actor, role, reason, body_bytes, body_sha256, body) "
      "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)");
  insert.Bind(1, id)
      .Bind(2, revision.number)
      .Bind(3, ToMicros(revision.at))
      .Bind(4, revision.actor)
      .Bind(5, role)
      .Bind(6, revision.reason)
      .Bind(7, revision.body_bytes)
      .BindBlob(8, digest);
  if (body) {
    insert.BindBlob(9, *body);
  } else {
    insert.BindNull(9);
  }
  return insert.Run();
}

/// Its payload is another from now on. What was parked for the old one's damage is so no longer.
Result<void> PointAt(Db& db, Counts& counts, const LetterRow& row, std::optional<int> number, bool mended) {
  const FailureClass after = mended ? FailureClass::permanent : row.failure_class;
  auto done = db.Prepare("UPDATE events SET revision = ?2, class = ?3 WHERE id = ?1 AND state = ?4 AND class = ?5")
                  .Bind(1, row.id)
                  .Bind(2, number)
                  .Bind(3, static_cast<int>(after))
                  .Bind(4, static_cast<int>(row.state))
                  .Bind(5, static_cast<int>(row.failure_class))
                  .Run();
  if (!done) return done;
  if (db.Changes() != 1) {
    return Fail(ErrorKind::unavailable, "changed_meanwhile",
                fmt::format("Event {} changed meanwhile; try again.", row.id));
  }
  if (mended) counts.Move(row.source, row.state, row.failure_class, row.state, after);
  return {};
}

}  // namespace

Result<Revision> InsertRevision(Db& db, Counts& counts, const RevisionRequest& request, bool original_whole,
                                const Actor& actor, Time now) {
  if (auto ok = CheckActor(actor); !ok) return std::unexpected(ok.error());
  const auto row = ReadLetterRow(db, request.id);
  if (!row) return std::unexpected(row.error());
  if (!*row) return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", request.id));
  const auto newest = ReadNewest(db, request.id);
  if (!newest) return std::unexpected(newest.error());
  if (auto ok = Check(**row, *newest, request); !ok) return std::unexpected(ok.error());
  const bool corrupt = (*row)->failure_class == FailureClass::corrupt;
  if (corrupt && !original_whole) {
    return Fail(ErrorKind::conflict, "corrupt",
                fmt::format("The stored bytes of event {} fail their digest, so nothing of it is sent; restore the "
                            "journal from a backup.",
                            request.id));
  }
  Revision made{.number = newest->number + 1,
                .at = now,
                .actor = CleanText(actor.name, 200),
                .reason = CleanText(actor.reason, 4'096),
                .original = !request.body,
                .body_bytes = request.body ? std::ssize(*request.body) : 0};
  auto digest = request.body ? Result<std::string>(Bytes(Sha256(*request.body))) : OriginalDigest(db, request.id);
  if (!digest) return std::unexpected(digest.error());
  made.body_sha256 = HexEncode(*digest);
  const std::string role = CleanText(actor.role, 200);
  auto done = WriteRow(db, request.id, made, request.body, role, *digest);
  if (done) {
    done = PointAt(db, counts, **row, request.body ? std::optional(made.number) : std::nullopt, corrupt);
  }
  if (done) {
    boost::json::object details = {{"revision", made.number}, {"original", made.original}};
    details["sha256"] = made.body_sha256;
    details["bytes"] = made.body_bytes;
    if (corrupt) details["class"] = Name(FailureClass::permanent);
    done = WriteAudit(db, actor, now, "revise", request.id, boost::json::serialize(details));
  }
  if (!done) return std::unexpected(done.error());
  return made;
}

Result<std::vector<Revision>> ReadRevisions(Db& db, EventId id) {
  Statement rows = db.Prepare(
      "SELECT number, at, actor, reason, body_bytes, body_sha256, body IS NULL FROM revisions WHERE event_id = ?1 "
      "ORDER BY number DESC");
  rows.Bind(1, id);
  std::vector<Revision> revisions;
  for (;;) {
    const auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return revisions;
    revisions.push_back({.number = static_cast<int>(rows.Int(0)),
                         .at = FromMicros(rows.Int(1)),
                         .actor = rows.String(2),
                         .reason = rows.String(3),
                         .original = rows.Int(6) != 0,
                         .body_bytes = rows.Int(4),
                         .body_sha256 = HexEncode(rows.Text(5))});
  }
}

Result<std::string> ReadRevisionBody(Db& db, EventId id, int number) {
  Statement rows =
      db.Prepare("SELECT body_sha256, body FROM revisions WHERE event_id = ?1 AND number = ?2 AND body IS NOT NULL");
  const auto row = rows.Bind(1, id).Bind(2, number).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) {
    return Fail(ErrorKind::not_found, "no_such_revision", fmt::format("Event {} has no revision {}.", id, number));
  }
  std::string body = rows.String(1);
  if (Bytes(Sha256(body)) != rows.Text(0)) {
    return Fail(
        ErrorKind::corrupt, "corrupt",
        fmt::format("The stored bytes of revision {} of event {} fail their digest; enter it again.", number, id));
  }
  return body;
}

}  // namespace dlo::store
