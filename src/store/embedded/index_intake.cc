#include "store/embedded/index_intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "base/time_text.h"
#include "model/fingerprint.h"
#include "store/embedded/index_values.h"
#include "store/embedded/lanes.h"
#include "store/embedded/prune.h"
#include "store/embedded/rules.h"

namespace dlo::store {
namespace {

constexpr std::size_t kMessageBytes = 1'000;
/// Keys are moved as for so many receipts at a time while nobody waits: some milliseconds.
constexpr std::size_t kIdleShare = 1'024;
/// So many conflicts of one key are asked whether they are the same event; the body's digest is compared with all.
constexpr std::size_t kConflictsCompared = 8;

std::string_view Bytes(const Sha256Digest& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace

std::int64_t KeyDigest(const std::function<std::int64_t(std::string_view)>& digest, const Receipt& receipt) {
  thread_local std::string text;
  text.assign(receipt.source).append(1, '\0').append(receipt.key);
  return digest ? digest(text) : Digest64(text);
}

struct Intake::KnownRow {
  EventId id = 0;
  Place place;
};

/// The rows of one key digest, as far as they matter to one receipt.
struct Intake::Known {
  std::optional<KnownRow> first;        // the event of this key
  std::vector<KnownRow> conflicts;      // other contents of this key, newest first
  std::optional<EventId> same_content;  // whichever of these has the receipt's body
  bool taken_in = false;                // the receipt itself
  std::int64_t next_ordinal = 0;        // for a key that only shares the digest
  std::int64_t next_conflict = -1;
};

/// What differs between the ways in which an event can begin.
struct Intake::NewRow {
  std::int64_t ordinal = 0;
  EventId conflict_of = 0;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::optional<std::int64_t> lane;
  bool behind = false;
  std::string code, message;  // dead
};

Intake::Intake(const Journal& journal, HotCache& hot, Options options)
    : journal_(journal), hot_(hot), options_(std::move(options)), keys_(options_.keys_in_memory) {}

Result<Accepted> Intake::TakeIn(IndexContext& context, const Incoming& incoming) {
  const Receipt& receipt = *incoming.receipt;
  const Result<std::int64_t> source = context.NameId(receipt.source);
  if (!source) return std::unexpected(source.error());

  NewRow row;
  if (!incoming.surely_new) {
    const Result<Known> known = LookUp(context, incoming, *source);
    if (!known) return std::unexpected(known.error());
    if (known->taken_in) return Accepted{AcceptStatus::stored, receipt.id};
    if (known->same_content) return Repeat(context, receipt, *known->same_content);
    if (known->first) {
      if (SameEvent(*known->first, receipt)) return Repeat(context, receipt, known->first->id);
      for (const KnownRow& conflict : known->conflicts) {
        if (SameEvent(conflict, receipt)) return Repeat(context, receipt, conflict.id);
      }
      if (!incoming.archived) return Conflict(context, incoming, *source, *known);
      row.conflict_of = known->first->id;
      row.ordinal = known->next_conflict;
    } else {
      row.ordinal = known->next_ordinal;
    }
  }
  const auto* stand = incoming.archived;
  const auto archived = stand != nullptr ? stand->find(receipt.id) : ArchivedStands::const_iterator();
  if (stand != nullptr && archived != stand->end()) {
    const ArchivedStand& then = archived->second;
    if (then.state == State::succeeded || then.state == State::replayed || then.state == State::resolved) {
      return TakeInPruned(context, incoming, row);
    }
    if (then.failure_class != FailureClass::none) {
      row.state = State::dead;
      row.failure_class = then.failure_class;
      row.code = then.code;
      row.message = then.message;
    }
  } else if (row.conflict_of != 0) {
    row.state = State::dead;
    row.failure_class = FailureClass::conflict;
    row.code = "conflict";
    row.message = fmt::format("same key as event {}, with another body", row.conflict_of);
  } else if (receipt.disposition == Disposition::invalid) {
    row.state = State::dead;
    row.failure_class = FailureClass::invalid;
    row.code = "invalid";
    row.message = CleanText(receipt.disposition_reason, kMessageBytes);
  } else if (receipt.disposition == Disposition::test_event) {
    row.state = State::resolved;
  }
  if (Result<void> placed = FindLane(row, context, receipt); !placed) return std::unexpected(placed.error());
  if (Result<void> done = Insert(context, incoming, *source, row); !done) return std::unexpected(done.error());
  if (row.state == State::waiting) {
    hot_.Keep(incoming.receipt);
    if (!row.behind) context.NotifyWork();
  }
  return Accepted{AcceptStatus::stored, receipt.id};
}

Result<Intake::Known> Intake::LookUp(IndexContext& context, const Incoming& incoming, std::int64_t source) const {
  Known known;
  const Result<std::vector<KeyIndex::Entry>> entries = keys_.Find(context.db, incoming.key_digest);
  if (!entries) return std::unexpected(entries.error());
  // Conflicts have negative ordinals and come first, newest first.
  for (const auto& [ordinal, id] : *entries) {
    known.next_ordinal = std::max(known.next_ordinal, ordinal + 1);
    known.next_conflict = std::min(known.next_conflict, ordinal - 1);
    const auto note = [&](const KnownRow& row, bool same_body) {
      if (row.id == incoming.receipt->id) known.taken_in = true;
      if (same_body) known.same_content = row.id;
      if (ordinal >= 0) {
        known.first = row;
      } else if (known.conflicts.size() < kConflictsCompared) {
        known.conflicts.push_back(row);
      }
    };
    Statement event =
        context.db.Prepare("SELECT source, key, body_sha256, segment, position, length FROM receipts WHERE id = ?1");
    const Result<bool> there = event.Bind(1, id).Step();
    if (!there) return std::unexpected(there.error());
    if (!*there) {
      const auto pruned = FindPruned(context.db, id, incoming.receipt.get(), &incoming.body_sha256);
      if (!pruned) return std::unexpected(pruned.error());
      if (*pruned && (*pruned)->same_key) note({id, (*pruned)->place}, (*pruned)->same_body);
    } else if (event.Int(0) == source && event.Text(1) == incoming.receipt->key) {
      note({id, {event.Int(3), event.Int(4), event.Int(5)}}, event.Text(2) == Bytes(incoming.body_sha256));
    }
  }
  return known;
}

bool Intake::SameEvent(const KnownRow& row, const Receipt& receipt) const {
  if (!options_.same_event) return false;
  if (const std::shared_ptr<const Receipt> hot = hot_.Get(row.id)) {
    return options_.same_event(receipt.source, hot->body, receipt.body);
  }
  // A body that cannot be read cannot be shown to be the same: the new one is kept as a conflict and nothing is lost.
  const Result<JournalRecord> record = journal_.ReadAt(row.place);
  return record && options_.same_event(receipt.source, record->receipt->body, receipt.body);
}

/// An event that was over when it was archived: its rows are not made again.
Result<Accepted> Intake::TakeInPruned(IndexContext& context, const Incoming& incoming, const NewRow& row) {
  const Receipt& receipt = *incoming.receipt;
  Result<void> done = KeepPruned(context.db, receipt.id, receipt.source, receipt.key, Bytes(incoming.body_sha256),
                                 row.conflict_of, incoming.place);
  if (done) done = CountPruned(context.db, 1);
  if (done) {
    done = context.db.Prepare("INSERT INTO event_keys (key_digest, key_ordinal, event_id) VALUES (?1, ?2, ?3)")
               .Bind(1, incoming.key_digest)
               .Bind(2, row.ordinal)
               .Bind(3, receipt.id)
               .Run();
  }
  if (!done) return std::unexpected(done.error());
  return Accepted{AcceptStatus::stored, receipt.id};
}

Result<Accepted> Intake::Repeat(IndexContext& context, const Receipt& receipt, EventId id) {
  Result<void> counted = context.db
                             .Prepare(
                                 "UPDATE receipts SET deliveries = deliveries + 1, "
                                 "last_seen_at = max(last_seen_at, ?2) WHERE id = ?1")
                             .Bind(1, id)
                             .Bind(2, ToMicros(receipt.received_at))
                             .Run();
  if (!counted) return std::unexpected(counted.error());
  ++duplicates_;
  return Accepted{AcceptStatus::duplicate, id};
}

Result<Accepted> Intake::Conflict(IndexContext& context, const Incoming& incoming, std::int64_t source,
                                  const Known& known) {
  NewRow row;
  row.ordinal = known.next_conflict;
  row.conflict_of = known.first->id;
  row.state = State::dead;
  row.failure_class = FailureClass::conflict;
  row.code = "conflict";
  row.message = fmt::format("same key as event {}, with another body", known.first->id);
  if (Result<void> placed = FindLane(row, context, *incoming.receipt); !placed) return std::unexpected(placed.error());
  if (Result<void> done = Insert(context, incoming, source, row); !done) return std::unexpected(done.error());
  return Accepted{AcceptStatus::conflict, incoming.receipt->id, known.first->id};
}

Result<void> Intake::FindLane(NewRow& row, IndexContext& context, const Receipt& receipt) const {
  const bool holds = row.state == State::dead && options_.holds_lane && options_.holds_lane(receipt.source);
  if (row.state != State::waiting && !holds) return {};
  row.lane = LaneOf(receipt.source, receipt.subject);
  if (!row.lane || row.state != State::waiting) return {};
  row.behind = context.lanes.Occupied(*row.lane);
  return {};
}

Result<void> Intake::InsertReceipt(Db& db, const Incoming& incoming, std::int64_t source, const NewRow& row) {
  const Receipt& receipt = *incoming.receipt;
  std::optional<std::int64_t> livemode, occurred, conflict_of;
  if (receipt.livemode) livemode = *receipt.livemode ? 1 : 0;
  if (receipt.occurred_at) occurred = ToMicros(*receipt.occurred_at);
  if (row.conflict_of != 0) conflict_of = row.conflict_of;
  return db
      .Prepare(
          "INSERT INTO receipts (id, source, key_digest, key_ordinal, key, kind, subject, account, livemode, "
          "occurred_at, segment, position, length, body_bytes, body_sha256, conflict_of, last_seen_at) "
          "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)")
      .Bind(1, receipt.id)
      .Bind(2, source)
      .Bind(3, incoming.key_digest)
      .Bind(4, row.ordinal)
      .Bind(5, receipt.key)
      .Bind(6, receipt.kind)
      .Bind(7, receipt.subject)
      .Bind(8, receipt.account)
      .Bind(9, livemode)
      .Bind(10, occurred)
      .Bind(11, incoming.place.segment)
      .Bind(12, incoming.place.position)
      .Bind(13, incoming.place.length)
      .Bind(14, static_cast<std::int64_t>(receipt.body.size()))
      .BindBlob(15, Bytes(incoming.body_sha256))
      .Bind(16, conflict_of)
      .Bind(17, ToMicros(receipt.received_at))
      .Run();
}

Result<void> Intake::Insert(IndexContext& context, const Incoming& incoming, std::int64_t source, const NewRow& row) {
  const Receipt& receipt = *incoming.receipt;
  const std::int64_t received = ToMicros(receipt.received_at);
  const bool dead = row.state == State::dead;
  const bool resolved = row.state == State::resolved;
  if (Result<void> done = InsertReceipt(context.db, incoming, source, row); !done) return done;
  std::optional<std::int64_t> fingerprint;
  if (dead) {
    fingerprint = FingerprintNumber(Fingerprint(row.failure_class, row.code, row.message, receipt.kind));
  }
  // Times are the receipt's, so that an index rebuilt from the journal says the same.
  Result<void> inserted = context.db
                              .Prepare(
                                  "INSERT INTO events (id, source, received_at, state, class, due_at, lane, behind, "
                                  "fingerprint, parked_at, finished_at, letter) "
                                  "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)")
                              .Bind(1, receipt.id)
                              .Bind(2, source)
                              .Bind(3, received)
                              .Bind(4, static_cast<int>(row.state))
                              .Bind(5, static_cast<int>(row.failure_class))
                              .Bind(6, When(row.state == State::waiting, received))
                              .Bind(7, row.lane)
                              .Bind(8, row.behind)
                              .Bind(9, fingerprint)
                              .Bind(10, When(dead, received))
                              .Bind(11, When(resolved, received))
                              .Bind(12, When(dead, static_cast<std::int64_t>(State::dead)))
                              .Run();
  if (!inserted) return inserted;
  keys_.Add(incoming.key_digest, {row.ordinal, receipt.id});
  if (row.lane && row.state == State::waiting && !row.behind) {
    context.lanes.EnterFront(*row.lane, receipt.id);
  } else {
    context.lanes.Enter(row.lane, receipt.id);
  }
  context.counts.Add(source, row.state, row.failure_class, 1);
  if (dead) {
    if (Result<void> queued = QueueForRules(context.db, receipt.id); !queued) return queued;
    context.counts.Arrive(source, fingerprint.value_or(0), row.failure_class, receipt.id, receipt.received_at);
    return context.db
        .Prepare(
            "INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail) "
            "VALUES (?1, ?2, ?2, ?3, ?4, '')")
        .Bind(1, receipt.id)
        .Bind(2, received)
        .Bind(3, row.code)
        .Bind(4, row.message)
        .Run();
  }
  if (resolved) {
    const std::string reason = CleanText(receipt.disposition_reason, kMessageBytes);
    return context.db
        .Prepare(
            "INSERT INTO failures (event_id, first_failed_at, last_failed_at, code, message, detail, "
            "resolve_code, resolve_reason) VALUES (?1, 0, 0, '', '', '', ?2, ?3)")
        .Bind(1, receipt.id)
        .Bind(2, static_cast<int>(ResolveCode::test_event))
        .Bind(3, reason)
        .Run();
  }
  return {};
}

Result<void> Intake::WorkWhileIdle(Db& db) {
  if (Result<void> begun = Begin(db); !begun) return begun;
  return keys_.Move(db, kIdleShare);
}

Result<void> Intake::Finish(Db& db, const Mark& mark, std::size_t receipts) {
  if (keys_.MoveOverdue()) {
    if (Result<void> moved = keys_.Move(db, receipts); !moved) return moved;
  }
  const auto set = [&db](const char* name, std::int64_t value) {
    return db.Prepare("UPDATE meta SET value = ?2 WHERE name = ?1").Bind(1, name).Bind(2, value).Run();
  };
  if (Result<void> done = set("journal_segment", mark.segment); !done) return done;
  if (Result<void> done = set("journal_offset", mark.offset); !done) return done;
  if (Result<void> done = set("journal_seq", mark.seq); !done) return done;
  if (duplicates_ != 0) {
    Result<void> done =
        db.Prepare("UPDATE meta SET value = value + ?1 WHERE name = 'duplicates'").Bind(1, duplicates_).Run();
    if (!done) return done;
  }
  duplicates_ = 0;
  return {};
}

Result<Mark> ReadMark(Db& db) {
  Statement statement = db.Prepare(
      "SELECT max(CASE name WHEN 'journal_segment' THEN value END), max(CASE name WHEN 'journal_offset' THEN value "
      "END), "
      "max(CASE name WHEN 'journal_seq' THEN value END) FROM meta");
  const Result<bool> row = statement.Step();
  if (!row) return std::unexpected(row.error());
  return Mark{statement.Int(0), statement.Int(1), statement.Int(2)};
}

}  // namespace dlo::store
