// What must hold in a World, from its own history: what was sent and answered, what the billing application did, and
// the rows of the index as a second pair of eyes reads them.
#include <fmt/format.h>

#include <algorithm>

#include "base/encoding.h"
#include "sim/world.h"

namespace dlo::sim {
namespace {

// The shortest lease that a claim takes; who was answered within it was the owner.
constexpr Duration kLease = std::chrono::seconds(60);
constexpr int kBudget = 6;

std::string_view Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

void World::Require(bool holds, const std::string& what) {
  if (!holds) throw Broken{what};
}

std::int64_t World::Number(const char* sql, EventId id) {
  store::Statement row = eyes_->Prepare(sql);
  const auto found = row.Bind(1, id).Step();
  Require(found.has_value(), "the index can be read");
  return *found ? row.Int(0) : 0;
}

std::map<EventId, World::Row> World::Rows() {
  std::map<EventId, Row> rows;
  store::Statement row = eyes_->Prepare(
      "SELECT e.id, n.name, r.key, r.subject, r.body_sha256, r.key_ordinal, e.state, e.class, e.tries, "
      "coalesce(e.lane, 0), e.behind FROM events e JOIN receipts r ON r.id = e.id JOIN names n ON n.id = e.source");
  for (;;) {
    const auto more = row.Step();
    Require(more.has_value(), "the index can be read");
    if (!*more) return rows;
    rows[row.Int(0)] = {row.String(1), row.String(2), row.String(3), row.String(4), row.Int(5),
                        row.Int(6),    row.Int(7),    row.Int(8),    row.Int(9),    row.Int(10)};
  }
}

void World::Audit() {
  // What is answered is in the journal; the index must come to it.
  for (int i = 0; i < 3; ++i) store_->StepIndex();
  const std::map<EventId, Row> rows = Rows();
  CheckAnswers(rows);
  CheckRows(rows);
  CheckReplays();
}

/// Each letter of a replay is in one place: waiting for its turn, on its way, or at its one end; and what a replay says
/// of itself is what its letters say.
void World::CheckReplays() {
  const auto none = [this](const char* sql, const char* what) { Require(Number(sql) == 0, what); };
  none(
      "SELECT count(*) FROM replay_items i JOIN replays r ON r.id = i.replay_id JOIN events e ON e.id = i.event_id "
      "WHERE i.state IN (1, 2) AND NOT (e.replaying = 1 AND e.replay_id = i.replay_id AND e.state IN (0, 1)) "
      "AND ?1 = ?1",
      "a letter that was handed over is on its way");
  none(
      "SELECT count(*) FROM events e WHERE e.replaying = 1 AND NOT EXISTS (SELECT 1 FROM replay_items i "
      "WHERE i.replay_id = e.replay_id AND i.source = e.source AND i.event_id = e.id AND i.state IN (1, 2)) "
      "AND ?1 = ?1",
      "an event on its way belongs to its replay");
  none(
      "SELECT count(*) FROM (SELECT i.event_id FROM replay_items i JOIN replays r ON r.id = i.replay_id "
      "WHERE i.state IN (1, 2) OR (i.state = 0 AND r.state <> 'cancelled') GROUP BY 1 HAVING count(*) > 1) "
      "WHERE ?1 = ?1",
      "a letter is in one replay at a time");
  none(
      "SELECT count(*) FROM (SELECT r.*, sum(i.state = 0) q, sum(i.state = 3) d, sum(i.state = 3 AND i.result = 1) c1, "
      "sum(i.state = 3 AND i.result = 2) c2, sum(i.state = 3 AND i.result = 3) c3, sum(i.state = 3 AND i.result = 5) "
      "c5, sum(i.state = 3 AND i.result = 4) c4, sum(i.state = 3 AND i.result >= 100) s, count(i.event_id) n "
      "FROM replays r JOIN replay_items i ON i.replay_id = r.id WHERE r.state <> 'plan' GROUP BY r.id) "
      "WHERE (n <> count OR queued <> iif(state = 'cancelled', 0, q) OR ended <> d + iif(state = 'cancelled', q, 0) "
      "OR skipped <> s + iif(state = 'cancelled', q, 0) OR committed <> c1 OR already_applied <> c2 OR gone <> c3 "
      "OR resolved <> c5 OR dead_again <> c4) AND ?1 = ?1",
      "a replay's counts are those of its letters");
  none(
      "SELECT count(*) FROM replay_sources s WHERE (s.queued, s.open, s.retrying) <> "
      "(SELECT sum(i.state = 0), sum(i.state IN (1, 2)), sum(i.state = 2) FROM replay_items i "
      "WHERE i.replay_id = s.replay_id AND i.source = s.source) AND ?1 = ?1",
      "the counts of a replay's sources are those of its letters");
  none(
      "SELECT count(*) FROM replays WHERE state <> 'plan' AND state <> 'cancelled' "
      "AND (state = 'done') <> (ended = count) AND ?1 = ?1",
      "a replay is done with its last letter and not before");
}

void World::CheckAnswers(const std::map<EventId, Row>& rows) {
  for (const Sent& sent : sent_) {
    if (!sent.answer) continue;
    const auto found = rows.find(sent.answer->id);
    const std::string name = fmt::format("event {} ({}:{})", sent.answer->id, sent.receipt->source, sent.receipt->key);
    Require(found != rows.end(), "nothing acknowledged is lost: " + name);
    Require(found->second.source == sent.receipt->source && found->second.key == sent.receipt->key &&
                found->second.sha256 == Bytes(Sha256(sent.receipt->body)),
            "what was acknowledged is what was sent: " + name);
    const bool conflict = sent.answer->status == AcceptStatus::conflict;
    Require(!conflict || found->second.ordinal < 0, "a conflict is kept apart: " + name);
  }
}

void World::CheckRows(const std::map<EventId, Row>& rows) {
  std::set<std::pair<std::string, std::string>> firsts;
  std::set<std::tuple<std::string, std::string, std::string>> digests;
  for (const auto& [source, key, body] : contents_) digests.insert({source, key, std::string(Bytes(Sha256(body)))});
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> counts;  // by state and class
  std::set<std::int64_t> fronts;
  for (const auto& [id, row] : rows) {
    const std::string name = fmt::format("event {} ({}:{}, state {})", id, row.source, row.key, row.state);
    Require(digests.contains({row.source, row.key, row.sha256}), "nothing is invented: " + name);
    Require(row.ordinal < 0 || firsts.insert({row.source, row.key}).second, "one event of a key: " + name);
    Require(row.tries <= kBudget, "budgets are kept: " + name);
    ++counts[{row.state, row.failure_class}];
    if (row.state <= 1 && row.lane != 0 && row.behind == 0) {
      Require(fronts.insert(row.lane).second, "one of a subject at a time: " + name);
    }
    const bool effect = billing_.applied.contains(row.source + ":" + row.key);
    Require((row.state != 2 && row.state != 5) || effect, "no success without its effect: " + name);
    if (row.state == 2 || row.state == 5 || row.state == 6) {
      final_.insert(id);
    } else {
      Require(!final_.contains(id), "a final state is final: " + name);
    }
  }
  for (const auto& [key, body] : billing_.applied) {
    const std::size_t colon = key.find(':');
    const auto content = std::tuple(key.substr(0, colon), key.substr(colon + 1), body);
    Require(contents_.contains(content), "no effect of what was never sent: " + key);
    Require(firsts.contains({std::get<0>(content), std::get<1>(content)}), "no effect of what is not stored: " + key);
  }
  Require(Number("SELECT max(seq) FROM audit WHERE ?1 = ?1") >= audit_floor_, "acts that were answered stay");
  store::Statement kept = eyes_->Prepare("SELECT state, class, sum(n) FROM counts GROUP BY 1, 2 HAVING sum(n) <> 0");
  for (;;) {
    const auto more = kept.Step();
    Require(more.has_value(), "the index can be read");
    if (!*more) break;
    const std::pair key{kept.Int(0), kept.Int(1)};
    Require(counts[key] == kept.Int(2), fmt::format("counts are exact: state {} class {}", key.first, key.second));
    counts.erase(key);
  }
  Require(std::ranges::all_of(counts, [](const auto& one) { return one.second == 0; }), "every state is counted");
}

/// Where it waits in its subject is settled when it is claimed: an earlier letter that is replayed after that comes
/// next.
void World::CheckClaim(const store::Claimed& claimed) {
  const EventId id = claimed.run.id;
  claimed_at_[{id, claimed.run.attempt}] = clock_.Now();
  const std::string name = fmt::format("event {} attempt {}", id, claimed.run.attempt);
  Require(Number("SELECT count(*) FROM receipts e JOIN receipts r ON r.source = e.source AND r.subject = e.subject "
                 "JOIN events o "
                 "ON o.id = r.id WHERE e.id = ?1 "
                 "AND e.subject <> '' AND o.id < e.id AND o.state = 0",
                 id) == 0,
          "in receipt order within a subject: " + name);
  Require(
      claimed.run.replaying || Number("SELECT count(*) FROM events o JOIN events e ON e.id = ?1 AND e.lane = o.lane "
                                      "WHERE o.id < e.id AND o.state IN (3, 4)",
                                      id) == 0,
      "a parked event that holds its subject holds it: " + name);
}

void World::CheckStart(const Call& call) {
  ++report_.calls;
  Note(fmt::format("call {}: event {} attempt {}{}", call.number, call.id, call.attempt, call.replay ? " replay" : ""));
  const std::string name = fmt::format("event {} attempt {}", call.id, call.attempt);
  Require(Number("SELECT state = 1 FROM events WHERE id = ?1", call.id) == 1, "a handler has a lease: " + name);
  Require(Number("SELECT attempt_no FROM events WHERE id = ?1", call.id) == call.attempt,
          "an attempt is counted before its handler runs: " + name);
  for (const auto& [number, other] : billing_.open) {
    Require(other.id != call.id || LeaseEnd(other) <= clock_.Now(), "one owner at a time: " + name);
  }
  Require(Number("SELECT count(*) FROM receipts e JOIN receipts r ON r.source = e.source AND r.subject = e.subject "
                 "JOIN events o "
                 "ON o.id = r.id WHERE e.id = ?1 "
                 "AND e.subject <> '' AND o.id <> e.id AND o.state = 1",
                 call.id) == 0,
          "one of a subject at a time: " + name);
}

/// A lease runs from its claim, which may be some time before its handler is called.
Time World::LeaseEnd(const Call& call) const {
  const auto claimed = claimed_at_.find({call.id, call.attempt});
  return (claimed == claimed_at_.end() ? call.began : claimed->second) + kLease;
}

void World::CheckAnswer(const Call& call) {
  if (LeaseEnd(call) <= clock_.Now()) return;
  const std::string name = fmt::format("event {} attempt {}", call.id, call.attempt);
  Require(Number("SELECT state = 1 FROM events WHERE id = ?1", call.id) == 1 &&
              Number("SELECT attempt_no FROM events WHERE id = ?1", call.id) == call.attempt,
          "nobody but its owner moves an event: " + name);
}

void World::CheckBytes() {
  for (const Sent& sent : sent_) {
    if (!sent.answer) continue;
    const auto payload = store_->Payload(sent.answer->id);
    Require(payload && *payload == sent.receipt->body, fmt::format("the bytes of event {} are kept", sent.answer->id));
    const auto shown = store_->Show(sent.answer->id);
    Require(shown && shown->headers == sent.receipt->headers,
            fmt::format("the headers of event {} are kept", sent.answer->id));
  }
}

void World::CheckEnd() {
  Audit();
  CheckBytes();
  Require(Number("SELECT count(*) FROM events WHERE state IN (0, 1, 3, 4) AND ?1 = ?1") == 0, "everything is final");
  Require(Number("SELECT count(*) FROM replays WHERE state NOT IN ('done', 'cancelled') AND ?1 = ?1") == 0,
          "every replay has ended");
  const auto figures = store_->Read();
  const auto recounted = store_->Recount();
  Require(figures && recounted, "the figures can be read");
  Require(figures->accounting_difference == 0 && recounted->accounting_difference == 0,
          "the accounting difference is 0");
  Require(figures->indexed == figures->receipts, "the index has the whole journal");
}

}  // namespace dlo::sim
