// Taking receipts of the journal into the index: here it is decided what is new, what was delivered before and what
// claims to be a known event with another content. Index thread only, inside its transaction.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "dlo/service.h"
#include "store/embedded/hot_cache.h"
#include "store/embedded/index_context.h"
#include "store/embedded/journal.h"
#include "store/embedded/key_index.h"

namespace dlo::store {

/// How an event of the archive stood, for an index that is rebuilt.
struct ArchivedStand {
  State state = State::succeeded;
  FailureClass failure_class = FailureClass::none;
  std::string code, message;  // of its newest failure
};
using ArchivedStands = std::unordered_map<EventId, ArchivedStand>;

/// One receipt, durable in the journal.
struct Incoming {
  const std::shared_ptr<const Receipt>& receipt;
  const Place& place;
  const Sha256Digest& body_sha256;
  std::int64_t key_digest = 0;
  bool surely_new = false;                   // no event of this digest is in the index: the look-up is left out
  const ArchivedStands* archived = nullptr;  // of its segment, when it is known from there
};

/// "<source> NUL <key>" and its number in the index.
[[nodiscard]] std::int64_t KeyDigest(const std::function<std::int64_t(std::string_view)>& digest,
                                     const Receipt& receipt);

class Intake {
 public:
  struct Options {
    std::function<bool(const std::string& source, std::string_view first, std::string_view second)> same_event;
    std::function<bool(const std::string& source)> holds_lane;
    std::size_t keys_in_memory = 0;
  };

  Intake(const Journal& journal, HotCache& hot, Options options);

  /// Inserts an event (waiting, or as its disposition says), counts a delivery of a known one, or keeps a conflict.
  /// Taking in a receipt whose event is there changes nothing.
  Result<Accepted> TakeIn(IndexContext& context, const Incoming& incoming);

  /// The first act of a transaction that takes receipts in.
  Result<void> Begin(Db& db) { return keys_.Load(db); }
  /// Moves the mark and adds the duplicates counted since; the last act before a commit.
  Result<void> Finish(Db& db, const Mark& mark, std::size_t receipts);
  /// After a rollback.
  /// What can be done while nothing is queued: a share of it in a transaction of its own.
  [[nodiscard]] bool HasIdleWork() const { return keys_.MoveDue(); }
  Result<void> WorkWhileIdle(Db& db);
  void Forget() {
    duplicates_ = 0;
    keys_.Forget();
  }

 private:
  struct Known;
  struct KnownRow;
  struct NewRow;
  Result<Known> LookUp(IndexContext& context, const Incoming& incoming, std::int64_t source) const;
  [[nodiscard]] bool SameEvent(const KnownRow& row, const Receipt& receipt) const;
  Result<Accepted> TakeInPruned(IndexContext& context, const Incoming& incoming, const NewRow& row);
  Result<Accepted> Repeat(IndexContext& context, const Receipt& receipt, EventId id);
  Result<Accepted> Conflict(IndexContext& context, const Incoming& incoming, std::int64_t source, const Known& known);
  Result<void> FindLane(NewRow& row, IndexContext& context, const Receipt& receipt) const;
  static Result<void> InsertReceipt(Db& db, const Incoming& incoming, std::int64_t source, const NewRow& row);
  Result<void> Insert(IndexContext& context, const Incoming& incoming, std::int64_t source, const NewRow& row);

  const Journal& journal_;
  HotCache& hot_;
  Options options_;
  KeyIndex keys_;
  std::int64_t duplicates_ = 0;
};

Result<Mark> ReadMark(Db& db);

}  // namespace dlo::store
