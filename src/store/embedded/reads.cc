#include "store/embedded/reads.h"

#include <fmt/format.h>

#include <charconv>
#include <unordered_map>

#include "base/encoding.h"
#include "base/time_text.h"
#include "model/fingerprint.h"
#include "store/embedded/filter_sql.h"
#include "store/embedded/handler_versions.h"
#include "store/embedded/notes.h"
#include "store/embedded/revisions.h"

namespace dlo::store {
namespace {

// In the order of the indexes in ReadLetterFrom.
const std::string kLetterColumns =
    std::string(
        "SELECT e.id, n.name, r.key, r.kind, r.subject, r.account, r.livemode, r.occurred_at, e.received_at, "
        "r.last_seen_at, r.deliveries, r.body_bytes, e.state, e.class, e.attempts, e.tries, e.attempt_no, e.crashes, "
        "e.replays, e.replays_failed, e.replay_id, e.due_at, e.lease_until, e.parked_at, e.finished_at, e.fingerprint, "
        "r.conflict_of, e.behind, f.first_failed_at, f.last_failed_at, f.code, f.message, f.handler_version, "
        "f.hold_link, f.hold_owner, f.hold_until, f.wake_on_handler, f.resolve_code, f.resolve_reason, e.revision, "
        "e.state = 4 AND ") +
    kWakeSeen +
    " FROM events e CROSS JOIN receipts r ON r.id = e.id LEFT JOIN names n ON n.id = e.source "
    "LEFT JOIN failures f ON f.event_id = e.id WHERE ";

std::optional<Time> OptTime(const Statement& row, int column) {
  const auto us = row.OptInt(column);
  if (!us) return std::nullopt;
  return FromMicros(*us);
}

/// Of a failure: 0 stands for never.
std::optional<Time> FailureTime(const Statement& row, int column) {
  const std::int64_t us = row.Int(column);
  if (us == 0) return std::nullopt;
  return FromMicros(us);
}

std::string FingerprintText(std::optional<std::int64_t> number) {
  return number ? fmt::format("{:016x}", static_cast<std::uint64_t>(*number)) : std::string();
}

Letter ReadLetterFrom(const Statement& row) {
  int column = 0;
  const auto number = [&] { return row.Int(column++); };
  const auto small = [&] { return static_cast<int>(row.Int(column++)); };
  const auto text = [&] { return row.String(column++); };
  const auto time = [&] { return OptTime(row, column++); };
  Letter l;
  l.id = number();
  l.source = text();
  l.key = text();
  l.kind = text();
  l.subject = text();
  l.account = text();
  if (const auto livemode = row.OptInt(column++)) l.livemode = *livemode != 0;
  l.occurred_at = time();
  l.received_at = FromMicros(number());
  l.last_seen_at = FromMicros(number());
  l.deliveries = number();
  l.body_bytes = number();
  l.state = static_cast<State>(number());
  l.failure_class = static_cast<FailureClass>(number());
  l.attempts = small();
  l.tries = small();
  l.attempt_number = small();
  l.crashes = small();
  l.replays = small();
  l.replays_failed = small();
  l.replay_id = number();
  l.due_at = time();
  l.lease_until = time();
  l.parked_at = time();
  l.finished_at = time();
  l.fingerprint = FingerprintText(row.OptInt(column++));
  l.conflict_of = number();
  l.behind = number() != 0;
  l.first_failed_at = FailureTime(row, column++);
  l.last_failed_at = FailureTime(row, column++);
  l.code = text();
  l.message = text();
  l.handler_version = text();
  l.hold_link = text();
  l.hold_owner = text();
  l.hold_until = time();
  l.wake_on_handler = text();
  if (const auto code = row.OptInt(column++)) l.resolve_code = static_cast<ResolveCode>(*code);
  l.resolve_reason = text();
  l.revision = small();
  l.wake_seen = number() != 0;
  return l;
}

std::unexpected<Error> NoSuchEvent(EventId id) {
  return Fail(ErrorKind::not_found, "not_found", fmt::format("There is no event {}.", id));
}

/// Only words that the kept counts know.
bool CountsKnow(const Filter& filter) {
  Filter rest = filter;
  rest.states.clear();
  rest.classes.clear();
  rest.sources.clear();
  return rest.Empty();
}

Result<std::int64_t> ParseCursor(const std::string& cursor) {
  if (cursor.empty()) return INT64_MAX;
  std::int64_t id = 0;
  const char* last = cursor.data() + cursor.size();
  const auto [end, error] = std::from_chars(cursor.data(), last, id);
  if (error != std::errc() || end != last || id < 1) {
    return Fail(ErrorKind::invalid, "bad_cursor", "The cursor is not one that a list gave; begin again without it.");
  }
  return id;
}

struct GroupKey {
  std::string_view by;
  const char* column;
};
constexpr GroupKey kGroupKeys[] = {{"fingerprint", "e.fingerprint"},
                                   {"type", "r.kind"},
                                   {"account", "r.account"},
                                   {"source", "e.source"},
                                   {"class", "e.class"}};

Group ReadGroup(const Statement& row, std::string_view by) {
  Group group;
  group.count = row.Int(1);
  group.first_seen = FromMicros(row.Int(2));
  group.last_seen = FromMicros(row.Int(3));
  group.sample_id = row.Int(4);
  group.failure_class = Name(static_cast<FailureClass>(row.Int(5)));
  group.kind = row.String(6);
  group.code = row.String(7);
  group.message = row.String(8);
  if (by == "fingerprint") {
    group.value = FingerprintText(row.OptInt(0));
  } else if (by == "source") {
    group.value = row.String(9);
  } else if (by == "class") {
    group.value = group.failure_class;
  } else {
    group.value = row.String(0);
  }
  return group;
}

/// Which handler version is the newest, and what it has not judged: only where a handler ever said its version.
Result<void> TellVersions(Db& db, const FilterSql& sql, const char* column, std::vector<Group>& groups,
                          std::string_view by) {
  {
    Statement any = db.Prepare("SELECT EXISTS (SELECT 1 FROM handler_versions)");
    const auto row = any.Step();
    if (!row) return std::unexpected(row.error());
    if (any.Int(0) == 0) return {};
  }
  // The newest version of the target that tried the letter last.
  auto rows = db.PrepareOnce(fmt::format(
      "SELECT {0}, sum(nv.version NOT NULL AND NOT EXISTS (SELECT 1 FROM attempts ja WHERE ja.event_id = e.id AND "
      "ja.handler_version = nv.version)), sum(e.state = 4 AND {1}), max(CASE WHEN nv.version NOT NULL THEN "
      "printf('%020d', e.id) || nv.version END) FROM events e{2} "
      "LEFT JOIN attempts la ON la.event_id = e.id AND la.number = e.attempt_no "
      "LEFT JOIN handler_versions nv ON nv.id = (SELECT max(hv.id) FROM handler_versions hv WHERE hv.target = "
      "la.target) "
      "WHERE {3} GROUP BY 1",
      column, kWakeSeen, sql.Joins(std::string_view(column).starts_with("r."), true), sql.where()));
  if (!rows) return std::unexpected(rows.error());
  sql.BindTo(*rows);
  std::unordered_map<std::string, Group*> by_value;
  for (Group& group : groups) by_value.emplace(group.value, &group);
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return {};
    std::string value = rows->String(0);
    if (by == "fingerprint") value = FingerprintText(rows->OptInt(0));
    if (by == "class") value = Name(static_cast<FailureClass>(rows->Int(0)));
    if (by == "source") {
      Statement name = db.Prepare("SELECT name FROM names WHERE id = ?1");
      if (const auto found = name.Bind(1, rows->Int(0)).Step(); !found) return std::unexpected(found.error());
      value = name.String(0);
    }
    const auto found = by_value.find(value);
    if (found == by_value.end()) continue;
    found->second->not_judged = rows->Int(1);
    found->second->ready = rows->Int(2);
    if (!rows->IsNull(3)) found->second->handler_version = rows->String(3).substr(20);
  }
}

Result<void> TellNotes(Db& db, std::vector<Group>& groups) {
  for (Group& group : groups) {
    const auto number = FingerprintNumber(group.value);
    if (!number) continue;
    Statement rows = db.Prepare(
        "SELECT count(*), max(id), (SELECT text FROM notes WHERE fingerprint = ?1 ORDER BY id DESC LIMIT 1) FROM notes "
        "WHERE fingerprint = ?1");
    const auto row = rows.Bind(1, *number).Step();
    if (!row) return std::unexpected(row.error());
    group.notes = rows.Int(0);
    group.last_note = rows.String(2);
  }
  return {};
}

Attempt ReadAttempt(const Statement& row) {
  Attempt a;
  a.number = static_cast<int>(row.Int(0));
  a.started_at = FromMicros(row.Int(1));
  a.finished_at = OptTime(row, 2);
  a.worker = row.String(3);
  a.target = row.String(4);
  if (const auto outcome = row.OptInt(5)) a.outcome = static_cast<OutcomeKind>(*outcome);
  a.code = row.String(6);
  a.message = row.String(7);
  a.detail = row.String(8);
  a.http_status = static_cast<int>(row.Int(9));
  a.handler_version = row.String(10);
  a.effect = row.String(11);
  a.replay_id = row.Int(12);
  a.late = row.Int(13) != 0;
  a.revision = static_cast<int>(row.Int(14));
  return a;
}

}  // namespace

Snapshot::Snapshot(Db& db) : db_(db) {
  if (sqlite3_get_autocommit(db.handle()) != 0) began_ = db.Exec("BEGIN").has_value();
}

Snapshot::~Snapshot() {
  if (began_) (void)db_.Exec("COMMIT");
}

Result<Page> ListLetters(Db& db, const Filter& filter, int limit, const std::string& cursor) {
  if (limit < 1 || limit > kMaxPage) {
    return Fail(ErrorKind::invalid, "bad_limit", fmt::format("The limit of a list is 1 to {}.", kMaxPage));
  }
  const auto before = ParseCursor(cursor);
  if (!before) return std::unexpected(before.error());
  const auto sql = FilterSql::ForLetters(filter);
  if (!sql) return std::unexpected(sql.error());

  const Snapshot snapshot(db);
  Page page;
  std::vector<Letter>& found = page.items;
  {
    const int next = sql->next_parameter();
    auto rows = db.PrepareOnce(
        fmt::format("{}{} AND e.id < ?{} ORDER BY e.id DESC LIMIT ?{}", kLetterColumns, sql->where(), next, next + 1));
    if (!rows) return std::unexpected(rows.error());
    sql->BindTo(*rows);
    rows->Bind(next, *before).Bind(next + 1, limit + 1);  // one more tells whether there is another page
    for (;;) {
      auto row = rows->Step();
      if (!row) return std::unexpected(row.error());
      if (!*row) break;
      found.push_back(ReadLetterFrom(*rows));
    }
  }
  if (found.size() > static_cast<std::size_t>(limit)) {
    found.pop_back();
    page.next = std::to_string(found.back().id);
  }
  return page;
}

Result<std::int64_t> CountLetters(Db& db, const Filter& filter) {
  const auto sql = FilterSql::ForLetters(filter);
  if (!sql) return std::unexpected(sql.error());
  // The kept counts have the same columns under the same names, but for `letter`.
  auto rows = db.PrepareOnce(CountsKnow(filter)
                                 ? "SELECT coalesce(sum(e.n), 0) FROM (SELECT *, CASE WHEN state IN (3, 4) THEN state "
                                   "END AS letter FROM counts) e "
                                   "WHERE " +
                                       sql->where()
                                 : fmt::format("SELECT count(*) FROM events e{} WHERE {}", sql->Joins(), sql->where()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  if (auto row = rows->Step(); !row) return std::unexpected(row.error());
  return rows->Int(0);
}

Result<std::vector<Group>> GroupLetters(Db& db, const Filter& filter, const std::string& by) {
  const auto* key =
      std::find_if(std::begin(kGroupKeys), std::end(kGroupKeys), [&](const GroupKey& k) { return k.by == by; });
  if (key == std::end(kGroupKeys)) {
    return Fail(ErrorKind::invalid, "bad_group", "Groups are by fingerprint, type, account, source or class.");
  }
  const auto sql = FilterSql::ForLetters(filter);
  if (!sql) return std::unexpected(sql.error());
  // An event that is not parked (other states were asked for) counts by its receipt.
  auto rows = db.PrepareOnce(fmt::format(
      "SELECT g.value, g.n, g.first, g.last, g.sample, s.class, sr.kind, sf.code, sf.message, sn.name "
      "FROM (SELECT {} AS value, count(*) AS n, min(coalesce(e.parked_at, e.received_at)) AS first, "
      "max(coalesce(e.parked_at, e.received_at)) AS last, max(e.id) AS sample "
      "FROM events e{} WHERE {} GROUP BY 1) g "
      "CROSS JOIN events s ON s.id = g.sample CROSS JOIN receipts sr ON sr.id = g.sample LEFT JOIN failures sf ON "
      "sf.event_id = g.sample "
      "LEFT JOIN names sn ON sn.id = s.source ORDER BY g.n DESC, g.sample DESC LIMIT ?{}",
      key->column, sql->Joins(std::string_view(key->column).starts_with("r.")), sql->where(), sql->next_parameter()));
  if (!rows) return std::unexpected(rows.error());
  sql->BindTo(*rows);
  rows->Bind(sql->next_parameter(), kMaxGroups);
  std::vector<Group> groups;
  for (;;) {
    const auto row = rows->Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) break;
    groups.push_back(ReadGroup(*rows, by));
  }
  if (auto told = TellVersions(db, *sql, key->column, groups, by); !told) return std::unexpected(told.error());
  if (by == "fingerprint") {
    if (auto told = TellNotes(db, groups); !told) return std::unexpected(told.error());
  }
  return groups;
}

Result<Letter> ReadLetter(Db& db, EventId id) {
  static const std::string kSql = kLetterColumns + "e.id = ?1";
  Statement rows = db.Prepare(kSql);
  auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return NoSuchEvent(id);
  return ReadLetterFrom(rows);
}

Result<LetterDetail> ShowLetter(Db& db, EventId id, const Receipt* receipt) {
  const Snapshot snapshot(db);
  LetterDetail out;
  auto letter = ReadLetter(db, id);
  if (!letter) return std::unexpected(letter.error());
  out.letter = std::move(*letter);
  {
    Statement rows = db.Prepare(
        "SELECT r.body_sha256, f.detail FROM receipts r LEFT JOIN failures f ON f.event_id = r.id WHERE r.id = ?1");
    auto row = rows.Bind(1, id).Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return NoSuchEvent(id);
    out.body_sha256 = HexEncode(rows.Text(0));
    out.detail = rows.String(1);
  }
  auto attempts = ReadAttempts(db, id);
  if (!attempts) return std::unexpected(attempts.error());
  out.attempts = std::move(*attempts);
  auto revisions = ReadRevisions(db, id);
  if (!revisions) return std::unexpected(revisions.error());
  out.revisions = std::move(*revisions);
  auto notes = ReadNotes(db, id, {}, 0, kNotesShown);
  if (!notes) return std::unexpected(notes.error());
  out.notes = std::move(*notes);
  if (!out.letter.fingerprint.empty()) {
    auto group_notes = ReadNotes(db, 0, out.letter.fingerprint, 0, kNotesShown);
    if (!group_notes) return std::unexpected(group_notes.error());
    out.group_notes = std::move(*group_notes);
  }
  if (receipt != nullptr) {
    out.verdict = receipt->verdict;
    out.headers = receipt->headers;
  }
  return out;
}

Result<std::vector<Attempt>> ReadAttempts(Db& db, EventId id) {
  if (auto place = PlaceOf(db, id); !place) return std::unexpected(place.error());
  Statement rows = db.Prepare(
      "SELECT a.number, a.started_at, a.finished_at, w.name, t.name, a.outcome, a.code, a.message, a.detail, "
      "a.http_status, "
      "a.handler_version, a.effect, a.replay_id, a.late, a.revision FROM attempts a LEFT JOIN names w ON w.id = "
      "a.worker "
      "LEFT JOIN names t ON t.id = a.target WHERE a.event_id = ?1 ORDER BY a.number DESC");
  rows.Bind(1, id);
  std::vector<Attempt> attempts;
  for (;;) {
    auto row = rows.Step();
    if (!row) return std::unexpected(row.error());
    if (!*row) return attempts;
    attempts.push_back(ReadAttempt(rows));
  }
}

Result<Place> PlaceOf(Db& db, EventId id) {
  Statement rows = db.Prepare("SELECT segment, position, length FROM receipts WHERE id = ?1");
  auto row = rows.Bind(1, id).Step();
  if (!row) return std::unexpected(row.error());
  if (!*row) return NoSuchEvent(id);
  return Place{.segment = rows.Int(0), .position = rows.Int(1), .length = rows.Int(2)};
}

}  // namespace dlo::store
