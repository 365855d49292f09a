// An index in memory with rows put in by hand, for tests of what reads and changes letters.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/encoding.h"
#include "base/time_text.h"
#include "dlo/dead_letters.h"
#include "store/embedded/counts.h"
#include "store/embedded/lanes.h"
#include "store/embedded/schema_text.h"
#include "store/embedded/sqlite.h"

namespace dlo::store {

inline const Time kStart = *ParseTime("2026-11-30T12:00:00Z");

struct RowSpec {
  std::string source = "stripe";
  std::string key;  // empty: "evt_<id>"
  std::string kind = "invoice.paid";
  std::string subject, account;
  std::optional<bool> livemode;
  std::optional<Time> received_at;  // unset: kStart + id seconds
  State state = State::dead;
  std::optional<FailureClass> failure_class;  // unset: permanent for dead and held, else none
  bool in_lane = false;                       // parked, and its source says hold
  bool replaying = false;
  std::int64_t replay_id = 0;
  int replays_failed = 0;
  std::optional<Time> parked_at;  // unset: received_at + 1 h
  std::string fingerprint = "00000000000000aa";
  std::string code = "http_422", message = "No such subscription";
};

class LettersFixture : public testing::Test {
 protected:
  LettersFixture() {
    auto db = Db::Open(":memory:", Db::Mode::writer);
    if (!db) throw Failure(db.error());
    db_ = std::move(*db);
    for (const char* migration : kMigrations) OrThrow(db_->Exec(migration));
    OrThrow(db_->Exec("INSERT INTO meta VALUES ('journal_seq', 0), ('duplicates', 0), ('pruned', 0)"));
  }

  std::int64_t NameId(const std::string& name) {
    OrThrow(db_->Prepare("INSERT INTO names (name) VALUES (?1) ON CONFLICT (name) DO NOTHING").Bind(1, name).Run());
    return Number("SELECT id FROM names WHERE name = '" + name + "'");
  }

  std::int64_t Number(const std::string& sql) {
    auto rows = OrThrow(db_->PrepareOnce(sql));
    EXPECT_TRUE(OrThrow(rows.Step())) << sql;
    return rows.Int(0);
  }

  /// Puts an event in, with its failure, its count and its place in the journal's numbers.
  EventId Add(const RowSpec& spec = {}) {
    const EventId id = ++last_id_;
    const Time received = spec.received_at.value_or(kStart + std::chrono::seconds(id));
    const bool parked = spec.state == State::dead || spec.state == State::held;
    const auto failure_class = spec.failure_class.value_or(parked ? FailureClass::permanent : FailureClass::none);
    const bool open = spec.state == State::waiting || spec.state == State::running;
    const bool final = spec.state == State::succeeded || spec.state == State::replayed || spec.state == State::resolved;
    const auto lane = open || spec.in_lane ? LaneOf(spec.source, spec.subject) : std::nullopt;
    const std::int64_t source = NameId(spec.source);
    const std::string key = spec.key.empty() ? "evt_" + std::to_string(id) : spec.key;
    const std::string digest(32, '\x11');
    const auto when = [](bool set, Time t) { return set ? std::optional(ToMicros(t)) : std::nullopt; };
    OrThrow(db_->Prepare("INSERT INTO receipts (id, source, key_digest, key, kind, subject, account, livemode, "
                         "segment, position, "
                         "length, body_bytes, body_sha256, last_seen_at) "
                         "VALUES (?1, ?2, ?1, ?3, ?4, ?5, ?6, ?7, 1, ?1 * 100, 100, 10, ?9, ?8)")
                .Bind(1, id)
                .Bind(2, source)
                .Bind(3, key)
                .Bind(4, spec.kind)
                .Bind(5, spec.subject)
                .Bind(6, spec.account)
                .Bind(7, spec.livemode)
                .Bind(8, ToMicros(received))
                .BindBlob(9, digest)
                .Run());
    OrThrow(
        db_->Prepare("INSERT INTO events (id, source, received_at, state, class, due_at, lane, behind, "
                     "lease_until, attempts, "
                     "attempt_no, replaying, replay_id, replays_failed, fingerprint, parked_at, finished_at, letter) "
                     "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, 1, 1, ?10, ?11, ?12, ?13, ?14, ?15, "
                     "CASE WHEN ?4 IN (3, 4) THEN ?4 END)")
            .Bind(1, id)
            .Bind(2, source)
            .Bind(3, ToMicros(received))
            .Bind(4, static_cast<int>(spec.state))
            .Bind(5, static_cast<int>(failure_class))
            .Bind(6, when(spec.state == State::waiting, received))
            .Bind(7, lane)
            .Bind(8, lane.has_value() && spec.state == State::waiting)
            .Bind(9, when(spec.state == State::running, received + std::chrono::minutes(1)))
            .Bind(10, spec.replaying)
            .Bind(11, spec.replay_id)
            .Bind(12, spec.replays_failed)
            .Bind(13, failure_class == FailureClass::none
                          ? std::nullopt
                          : std::optional(static_cast<std::int64_t>(std::stoull(spec.fingerprint, nullptr, 16))))
            .Bind(14, when(parked, spec.parked_at.value_or(received + std::chrono::hours(1))))
            .Bind(15, when(final, received + std::chrono::hours(2)))
            .Run());
    if (failure_class != FailureClass::none) {
      OrThrow(db_->Prepare("INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail) "
                           "VALUES (?1, ?2, ?2, ?3, ?4, 'detail')")
                  .Bind(1, id)
                  .Bind(2, ToMicros(received))
                  .Bind(3, spec.code)
                  .Bind(4, spec.message)
                  .Run());
    }
    Counts counts;
    counts.Add(source, spec.state, failure_class, 1);
    OrThrow(counts.Flush(*db_));
    lanes_.Enter(lane, id);
    OrThrow(lanes_.Settle(*db_, lane));
    lanes_.Commit();
    OrThrow(db_->Exec("UPDATE meta SET value = value + 1 WHERE name = 'journal_seq'"));
    return id;
  }

  /// As the index thread runs it: one transaction, counts written with it, undone as a whole on an error.
  template <typename F>
  auto InTransaction(F&& fn) -> std::invoke_result_t<F&, Counts&> {
    Counts counts;
    OrThrow(db_->Exec("BEGIN"));
    auto result = fn(counts);
    if (result) {
      OrThrow(counts.Flush(*db_));
      OrThrow(db_->Exec("COMMIT"));
      lanes_.Commit();
    } else {
      OrThrow(db_->Exec("ROLLBACK"));
      lanes_.RollBackTo(0);
    }
    return result;
  }

  /// Every kept count is that of the rows, and the lanes keep their laws.
  void ExpectSound() {
    EXPECT_EQ(Number("SELECT count(*) FROM (SELECT source, state, class, count(*) AS n FROM events GROUP BY 1, 2, 3 "
                     "EXCEPT SELECT source, state, class, n FROM counts)"),
              0);
    EXPECT_EQ(Number("SELECT sum(n) FROM counts"), last_id_);
    EXPECT_EQ(Number("SELECT count(*) FROM (SELECT lane FROM events WHERE state = 1 AND lane IS NOT NULL GROUP BY lane "
                     "HAVING count(*) > 1)"),
              0);
    EXPECT_EQ(
        Number("SELECT count(*) FROM events e WHERE e.state = 0 AND e.lane IS NOT NULL AND e.behind <> EXISTS "
               "(SELECT 1 FROM events o WHERE o.lane = e.lane AND o.id <> e.id AND (o.id < e.id OR o.state = 1))"),
        0);
  }

  Actor actor_{.name = "jane", .role = "operator", .reason = "because"};
  std::unique_ptr<Db> db_;
  Lanes lanes_;
  EventId last_id_ = 0;
};

inline std::vector<EventId> Ids(const std::vector<Letter>& letters) {
  std::vector<EventId> ids;
  for (const Letter& l : letters) ids.push_back(l.id);
  return ids;
}

}  // namespace dlo::store
