// What the index knows of a segment's events, as it goes into the archive beside their bytes: NDJSON, a record a line
// with the names of the index's columns, compressed in frames of some hundred events. docs/formats.md has an example.
//
// kSidecarTables is the list of what goes in. A part that adds a table of events adds a row there, and its records are
// archived, shown by `dlo archive show`, exported and pruned with the others.
#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dlo/letters.h"
#include "dlo/result.h"
#include "store/embedded/journal_format.h"
#include "store/embedded/seekable.h"
#include "store/embedded/sqlite.h"
#include "store/retention.h"

namespace dlo::store {

struct SidecarTable {
  const char* name;
  /// Column `id` is the event's; ?1 and ?2 are the first and the last event of a block.
  const char* select;
  /// Takes the rows of event ?1 away; null: they stay (the audit log is append-only).
  const char* prune;
};

/// `events` is the first: its record says in `pruned` whether this sidecar lets the event's rows go.
std::span<const SidecarTable> SidecarTables();

inline constexpr EventId kSidecarBlock = 512;

/// An event of a sidecar, as far as pruning asks: its rows go only if it still stands so.
struct SidecarEvent {
  EventId id = 0;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  std::int64_t finished_at = 0, token = 0;
  bool pruned = false;
};

/// May the rows of an event that ended so go?
[[nodiscard]] bool IsDue(const RetentionCutoffs& cutoffs, State state, std::optional<std::int64_t> finished_at);

/// The records of the events from `first` to `last`, at most a block, as lines. `only_due` leaves the others out.
/// `held` are events on legal hold, in order.
Result<std::string> SidecarBlock(Db& db, EventId first, EventId last, const RetentionCutoffs& cutoffs, bool only_due,
                                 std::span<const EventId> held);

/// Calls `each` for every record, in the file's order. Error corrupt, "archive_damaged"; or what `each` returned.
Result<void> ReadSidecar(const SeekableFile& file, const std::string& path,
                         const std::function<Result<void>(const boost::json::object& record)>& each);
/// The events of a whole sidecar, in order. `after_frame` is called after each frame; its error ends the reading.
Result<std::vector<SidecarEvent>> SidecarEvents(const SeekableFile& file, const std::string& path,
                                                const std::function<Result<void>()>& after_frame);
[[nodiscard]] std::optional<SidecarEvent> SidecarEventOf(const boost::json::object& record);
struct SidecarFailure {
  EventId id = 0;
  std::string code, message;
};
[[nodiscard]] std::optional<SidecarFailure> SidecarFailureOf(const boost::json::object& record);
/// All records of one event, found by its block.
Result<std::vector<boost::json::object>> SidecarRecords(const SeekableFile& file, const std::string& path, EventId id);

/// What `Show` says of an event whose rows are gone; `receipt` as for ShowLetter.
[[nodiscard]] LetterDetail DetailOf(const std::vector<boost::json::object>& records, const Receipt* receipt);

}  // namespace dlo::store
