#include "store/embedded/sidecar.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/encoding.h"
#include "base/time_text.h"
#include "store/embedded/reads.h"

namespace dlo::store {
namespace {

namespace json = boost::json;

constexpr std::array kTables = {
    SidecarTable{"events",
                 "SELECT e.id, n.name AS source, e.received_at, e.state, e.class, e.token, e.attempts, e.tries, "
                 "e.attempt_no, e.crashes, e.replay_id, e.replays, e.replays_failed, e.fingerprint, e.parked_at, "
                 "e.finished_at FROM events e LEFT JOIN names n ON n.id = e.source WHERE e.id BETWEEN ?1 AND ?2 "
                 "ORDER BY e.id",
                 "DELETE FROM events WHERE id = ?1"},
    SidecarTable{
        "receipts",
        "SELECT id, key, kind, subject, account, livemode, occurred_at, segment, position, length, body_bytes, "
        "body_sha256, conflict_of, last_seen_at, deliveries FROM receipts WHERE id BETWEEN ?1 AND ?2 "
        "ORDER BY id",
        "DELETE FROM receipts WHERE id = ?1"},
    SidecarTable{"failures",
                 "SELECT event_id AS id, first_failed_at, last_failed_at, code, message, detail, handler_version, "
                 "hold_link, hold_owner, hold_until, wake_on_handler, resolve_code, resolve_reason FROM failures "
                 "WHERE event_id BETWEEN ?1 AND ?2 ORDER BY event_id",
                 "DELETE FROM failures WHERE event_id = ?1"},
    SidecarTable{
        "attempts",
        "SELECT a.event_id AS id, a.number, a.token, a.started_at, a.finished_at, w.name AS worker, "
        "t.name AS target, a.outcome, a.code, a.message, a.detail, a.http_status, a.handler_version, a.effect, "
        "a.replay_id, a.late FROM attempts a LEFT JOIN names w ON w.id = a.worker "
        "LEFT JOIN names t ON t.id = a.target WHERE a.event_id BETWEEN ?1 AND ?2 "
        "ORDER BY a.event_id, a.number",
        "DELETE FROM attempts WHERE event_id = ?1"},
    SidecarTable{"audit",
                 "SELECT event_id AS id, seq, at, actor, role, action, reason, details FROM audit "
                 "WHERE event_id BETWEEN ?1 AND ?2 AND event_id <> 0 ORDER BY event_id, seq",
                 nullptr},
};

bool IsUtf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto c = static_cast<unsigned char>(text[i]);
    const std::size_t more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c < 0xF5 ? 3 : 9;
    if (more == 9 || (c >= 0x80 && c < 0xC2) || i + more >= text.size() + (more == 0 ? 1 : 0)) return false;
    std::uint32_t value = more == 0 ? c : c & (0x3FU >> more);
    for (std::size_t k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + k]);
      if ((next & 0xC0) != 0x80) return false;
      value = value << 6 | (next & 0x3F);
    }
    if ((more == 2 && value < 0x800) || (more == 3 && (value < 0x10000 || value > 0x10FFFF)) ||
        (value >= 0xD800 && value < 0xE000)) {
      return false;
    }
    i += more + 1;
  }
  return true;
}

/// Senders choose keys and subjects: what is no text is kept as {"hex":…}.
json::value TextValue(std::string_view text) {
  if (IsUtf8(text)) return json::string(text);
  return json::object{{"hex", HexEncode(text)}};
}

json::value ColumnValue(Statement& row, int column) {
  switch (sqlite3_column_type(row.handle(), column)) {
    case SQLITE_INTEGER:
      return row.Int(column);
    case SQLITE_BLOB:
      return json::object{{"hex", HexEncode(row.Text(column))}};
    case SQLITE_NULL:
      return nullptr;
    default:
      return TextValue(row.Text(column));
  }
}

std::string Text(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  if (value == nullptr) return {};
  if (const auto* text = value->if_string()) return std::string(*text);
  if (const auto* object = value->if_object()) {
    if (const json::value* hex = object->if_contains("hex"); hex != nullptr && hex->is_string()) {
      return HexDecode(std::string_view(hex->as_string())).value_or(std::string());
    }
  }
  return {};
}

std::optional<std::int64_t> Number(const json::object& record, std::string_view name) {
  const json::value* value = record.if_contains(name);
  if (value == nullptr || !value->is_int64()) return std::nullopt;
  return value->as_int64();
}

std::int64_t NumberOr0(const json::object& record, std::string_view name) {
  return Number(record, name).value_or(0);
}

std::optional<Time> Moment(const json::object& record, std::string_view name) {
  const auto us = Number(record, name);
  if (!us) return std::nullopt;
  return FromMicros(*us);
}

/// Of the lines of one frame; `each` gets every record. False: some line is none.
Result<bool> EachLine(std::string_view lines, const std::function<Result<void>(const json::object&)>& each) {
  while (!lines.empty()) {
    const std::size_t end = lines.find('\n');
    if (end == std::string_view::npos) return false;
    boost::system::error_code error;
    const json::value value = json::parse(lines.substr(0, end), error);
    if (error || !value.is_object()) return false;
    if (auto done = each(value.as_object()); !done) return std::unexpected(done.error());
    lines.remove_prefix(end + 1);
  }
  return true;
}

void FillLetter(Letter& l, const json::object& event) {
  l.id = NumberOr0(event, "id");
  l.source = Text(event, "source");
  l.received_at = Moment(event, "received_at").value_or(Time{});
  l.state = static_cast<State>(NumberOr0(event, "state"));
  l.failure_class = static_cast<FailureClass>(NumberOr0(event, "class"));
  l.attempts = static_cast<int>(NumberOr0(event, "attempts"));
  l.tries = static_cast<int>(NumberOr0(event, "tries"));
  l.attempt_number = static_cast<int>(NumberOr0(event, "attempt_no"));
  l.crashes = static_cast<int>(NumberOr0(event, "crashes"));
  l.replay_id = NumberOr0(event, "replay_id");
  l.replays = static_cast<int>(NumberOr0(event, "replays"));
  l.replays_failed = static_cast<int>(NumberOr0(event, "replays_failed"));
  if (const auto fingerprint = Number(event, "fingerprint")) {
    l.fingerprint = fmt::format("{:016x}", static_cast<std::uint64_t>(*fingerprint));
  }
  l.parked_at = Moment(event, "parked_at");
  l.finished_at = Moment(event, "finished_at");
}

void FillReceipt(LetterDetail& d, const json::object& receipt) {
  Letter& l = d.letter;
  l.key = Text(receipt, "key");
  l.kind = Text(receipt, "kind");
  l.subject = Text(receipt, "subject");
  l.account = Text(receipt, "account");
  if (const auto live = Number(receipt, "livemode")) l.livemode = *live != 0;
  l.occurred_at = Moment(receipt, "occurred_at");
  l.last_seen_at = Moment(receipt, "last_seen_at").value_or(Time{});
  l.deliveries = NumberOr0(receipt, "deliveries");
  l.body_bytes = NumberOr0(receipt, "body_bytes");
  l.conflict_of = NumberOr0(receipt, "conflict_of");
  d.body_sha256 = HexEncode(Text(receipt, "body_sha256"));
}

void FillFailure(LetterDetail& d, const json::object& failure) {
  Letter& l = d.letter;
  if (NumberOr0(failure, "first_failed_at") != 0) {
    l.first_failed_at = Moment(failure, "first_failed_at");
    l.last_failed_at = Moment(failure, "last_failed_at");
  }
  l.code = Text(failure, "code");
  l.message = Text(failure, "message");
  l.handler_version = Text(failure, "handler_version");
  d.detail = Text(failure, "detail");
  if (const auto code = Number(failure, "resolve_code")) l.resolve_code = static_cast<ResolveCode>(*code);
  l.resolve_reason = Text(failure, "resolve_reason");
}

Attempt AttemptOf(const json::object& record) {
  Attempt a;
  a.number = static_cast<int>(NumberOr0(record, "number"));
  a.started_at = Moment(record, "started_at").value_or(Time{});
  a.finished_at = Moment(record, "finished_at");
  a.worker = Text(record, "worker");
  a.target = Text(record, "target");
  if (const auto outcome = Number(record, "outcome")) a.outcome = static_cast<OutcomeKind>(*outcome);
  a.code = Text(record, "code");
  a.message = Text(record, "message");
  a.detail = Text(record, "detail");
  a.http_status = static_cast<int>(NumberOr0(record, "http_status"));
  a.handler_version = Text(record, "handler_version");
  a.effect = Text(record, "effect");
  a.replay_id = NumberOr0(record, "replay_id");
  a.late = NumberOr0(record, "late") != 0;
  return a;
}

}  // namespace

std::span<const SidecarTable> SidecarTables() {
  return kTables;
}

bool IsDue(const RetentionCutoffs& cutoffs, State state, std::optional<std::int64_t> finished_at) {
  if (!finished_at) return false;
  const bool succeeded = state == State::succeeded;
  if (!succeeded && state != State::replayed && state != State::resolved) return false;
  const std::optional<Time>& cutoff = succeeded ? cutoffs.succeeded : cutoffs.closed;
  return cutoff && *finished_at <= ToMicros(*cutoff);
}

Result<std::string> SidecarBlock(Db& db, EventId first, EventId last, const RetentionCutoffs& cutoffs, bool only_due,
                                 std::span<const EventId> held) {
  const Snapshot snapshot(db);
  std::string lines;
  std::vector<EventId> taken;
  for (const SidecarTable& table : kTables) {
    const bool events = &table == kTables.data();
    Statement rows = db.Prepare(table.select);
    rows.Bind(1, first).Bind(2, last);
    const int columns = sqlite3_column_count(rows.handle());
    for (;;) {
      const auto more = rows.Step();
      if (!more) return std::unexpected(more.error());
      if (!*more) break;
      json::object record{{"table", table.name}};
      for (int c = 0; c < columns; ++c) record[sqlite3_column_name(rows.handle(), c)] = ColumnValue(rows, c);
      const EventId id = NumberOr0(record, "id");
      if (events) {
        const bool due =
            IsDue(cutoffs, static_cast<State>(NumberOr0(record, "state")), Number(record, "finished_at")) &&
            !std::ranges::binary_search(held, id);
        if (only_due && !due) continue;
        record["pruned"] = due;
        taken.push_back(id);
      } else if (!std::ranges::binary_search(taken, id)) {
        continue;
      }
      lines += json::serialize(record);
      lines += '\n';
    }
  }
  return lines;
}

Result<void> ReadSidecar(const SeekableFile& file, const std::string& path,
                         const std::function<Result<void>(const json::object& record)>& each) {
  for (std::size_t i = 0; i < file.frames(); ++i) {
    const auto lines = file.Frame(i);
    if (!lines) return std::unexpected(lines.error());
    const auto whole = EachLine(*lines, each);
    if (!whole) return std::unexpected(whole.error());
    if (!*whole) return ArchiveDamaged(path, "a line of it is no JSON object");
  }
  return {};
}

std::optional<SidecarEvent> SidecarEventOf(const json::object& record) {
  const json::value* table = record.if_contains("table");
  if (table == nullptr || !table->is_string() || table->as_string() != kTables.front().name) return std::nullopt;
  const json::value* pruned = record.if_contains("pruned");
  return SidecarEvent{.id = NumberOr0(record, "id"),
                      .state = static_cast<State>(NumberOr0(record, "state")),
                      .failure_class = static_cast<FailureClass>(NumberOr0(record, "class")),
                      .finished_at = NumberOr0(record, "finished_at"),
                      .token = NumberOr0(record, "token"),
                      .pruned = pruned != nullptr && pruned->is_bool() && pruned->as_bool()};
}

std::optional<SidecarFailure> SidecarFailureOf(const json::object& record) {
  if (Text(record, "table") != "failures") return std::nullopt;
  return SidecarFailure{NumberOr0(record, "id"), Text(record, "code"), Text(record, "message")};
}

Result<std::vector<SidecarEvent>> SidecarEvents(const SeekableFile& file, const std::string& path,
                                                const std::function<Result<void>()>& after_frame) {
  std::vector<SidecarEvent> events;
  for (std::size_t i = 0; i < file.frames(); ++i) {
    const auto lines = file.Frame(i);
    if (!lines) return std::unexpected(lines.error());
    const auto whole = EachLine(*lines, [&](const json::object& record) -> Result<void> {
      if (const auto event = SidecarEventOf(record)) events.push_back(*event);
      return {};
    });
    if (!whole) return std::unexpected(whole.error());
    if (!*whole) return ArchiveDamaged(path, "a line of it is no JSON object");
    if (auto done = after_frame(); !done) return std::unexpected(done.error());
  }
  return events;
}

Result<std::vector<json::object>> SidecarRecords(const SeekableFile& file, const std::string& path, EventId id) {
  // The last frame whose first event is not behind `id`. Each frame begins with one.
  std::size_t low = 0, high = file.frames();
  while (high - low > 1) {
    const std::size_t middle = low + (high - low) / 2;
    const auto lines = file.Frame(middle);
    if (!lines) return std::unexpected(lines.error());
    boost::system::error_code error;
    const json::value first = json::parse(std::string_view(*lines).substr(0, lines->find('\n')), error);
    if (error || !first.is_object()) return ArchiveDamaged(path, "a line of it is no JSON object");
    (NumberOr0(first.as_object(), "id") <= id ? low : high) = middle;
  }
  std::vector<json::object> records;
  if (file.frames() == 0) return records;
  const auto lines = file.Frame(low);
  if (!lines) return std::unexpected(lines.error());
  const auto whole = EachLine(*lines, [&](const json::object& record) -> Result<void> {
    if (NumberOr0(record, "id") == id) records.push_back(record);
    return {};
  });
  if (!whole) return std::unexpected(whole.error());
  if (!*whole) return ArchiveDamaged(path, "a line of it is no JSON object");
  return records;
}

LetterDetail DetailOf(const std::vector<json::object>& records, const Receipt* receipt) {
  LetterDetail detail;
  for (const json::object& record : records) {
    const std::string table = Text(record, "table");
    if (table == "events") FillLetter(detail.letter, record);
    if (table == "receipts") FillReceipt(detail, record);
    if (table == "failures") FillFailure(detail, record);
    if (table == "attempts") detail.attempts.insert(detail.attempts.begin(), AttemptOf(record));
  }
  if (receipt != nullptr) {
    detail.verdict = receipt->verdict;
    detail.headers = receipt->headers;
  }
  return detail;
}

}  // namespace dlo::store
