// What a person sees of an event: the row of a list, the whole of it, its attempts, and the filter that selects them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "dlo/event.h"
#include "dlo/outcome.h"
#include "dlo/states.h"
#include "dlo/time.h"

namespace dlo {

/// Empty = everything (in a list of dead letters: states dead and held). Fields are and-ed, members of a list or-ed.
/// This is accrue's filter (type, since, until, livemode) and more.
struct Filter {
  std::vector<std::string> types;  // event kinds
  std::vector<std::string> sources;
  std::vector<std::string> subjects;
  std::vector<std::string> accounts;
  std::vector<FailureClass> classes;
  std::vector<State> states;
  std::optional<Time> since;  // received_at >= since
  std::optional<Time> until;  // received_at < until (the API turns an inclusive date into the next day's start)
  std::optional<bool> livemode;
  std::optional<std::string> fingerprint;  // 16 hex digits
  std::optional<std::string> q;            // text in error message, key or subject
  std::vector<EventId> ids;
  /// Held letters whose date had passed by then, or whose handler version was seen. Time{} = by now.
  std::optional<Time> overdue;
  std::optional<std::string> not_judged_by;  // no attempt was judged by this handler version

  [[nodiscard]] bool Empty() const;
};

/// One row of a list: everything but bytes (body, headers) and long text.
struct Letter {
  EventId id = 0;
  std::string source, key, kind, subject, account;
  std::optional<bool> livemode;
  std::optional<Time> occurred_at;
  Time received_at{};
  Time last_seen_at{};  // newest delivery of the same key
  std::int64_t deliveries = 1;
  std::int64_t body_bytes = 0;
  State state = State::waiting;
  FailureClass failure_class = FailureClass::none;
  int attempts = 0;  // live tries; tries of replays are not in it
  int tries = 0;     // tries in the current dispatch (live, or the current replay); the retry budget reads this one
  int attempt_number = 0;               // number of the newest attempt row; rises for ever
  int crashes = 0;                      // tries in the current dispatch whose worker died
  int replays = 0;                      // replays begun
  int replays_failed = 0;               // replays that ended dead again; the poison cap reads this one alone
  std::int64_t replay_id = 0;           // current or last replay
  std::optional<Time> due_at;           // waiting
  std::optional<Time> lease_until;      // running
  std::optional<Time> first_failed_at;  // never changed once set
  std::optional<Time> last_failed_at;
  std::optional<Time> parked_at;
  std::optional<Time> finished_at;
  std::string code, message;                           // of the newest failure
  std::string fingerprint;                             // 16 hex digits; empty while it never failed
  std::string handler_version;                         // that judged last
  EventId conflict_of = 0;                             // class conflict: the first receipt of this key
  std::string hold_link, hold_owner, wake_on_handler;  // held
  std::optional<Time> hold_until;
  bool wake_seen = false;                   // held, and a handler version that wake_on_handler names was seen
  std::optional<ResolveCode> resolve_code;  // resolved
  std::string resolve_reason;
  int revision = 0;                // the corrected payload that a replay sends; 0 = the original
  bool behind = false;             // waiting behind an earlier event of its subject
  std::int64_t events_behind = 0;  // set by Show and List for letters that hold their subject: how many wait behind
};

/// One attempt, newest first wherever a list of them is given.
struct Attempt {
  int number = 1;
  Time started_at{};
  std::optional<Time> finished_at;  // unset: running, or its worker died
  std::string worker;               // who
  std::string target;
  std::optional<OutcomeKind> outcome;
  std::string code, message, detail;
  int http_status = 0;
  std::string handler_version, effect;
  std::int64_t replay_id = 0;
  int revision = 0;   // of the payload that was sent; 0 = the original
  bool late = false;  // the answer came after the lease was lost: recorded, not applied
};

/// A corrected payload beside the original, which stays as it was received.
struct Revision {
  int number = 1;  // counts up per event
  Time at{};
  std::string actor, reason;
  bool original = false;  // withdraws those before it: replays send the original again
  std::int64_t body_bytes = 0;
  std::string body_sha256;  // hex
};

/// A word of a person, on an event or on a group of like failures. Never changed or removed.
struct Note {
  std::int64_t id = 0;
  EventId event_id = 0;     // 0: on a group
  std::string fingerprint;  // empty: on an event
  Time at{};
  std::string actor, role, text;
};

/// One event, whole (without its body; see Payload).
struct LetterDetail {
  Letter letter;
  std::string detail;  // of the newest failure
  Verdict verdict;
  std::string body_sha256;               // hex
  std::vector<Header> headers;           // secrets redacted by the server, not here
  std::vector<Attempt> attempts;         // newest first
  std::vector<Revision> revisions;       // newest first
  std::vector<Note> notes, group_notes;  // newest first, at most 50 each; of its group: of its fingerprint
};

struct AuditRecord {
  std::int64_t seq = 0;
  Time at{};
  std::string actor;  // token name, "system", or the embedding program's word
  std::string role;
  std::string action;  // "replay", "hold", "release", "resolve", "reopen", "bulk_replay", "drain", "token_create", ...
  EventId event_id = 0;  // 0 = not about one event
  std::string reason;
  std::string details;  // JSON: filter, counts, before and after
};

struct Group {
  std::string value;  // the fingerprint, type, account, source or class
  std::int64_t count = 0;
  Time first_seen{}, last_seen{};                  // by parked_at
  EventId sample_id = 0;                           // newest
  std::string failure_class, code, kind, message;  // of the sample
  /// The newest handler version seen for the sample's target; empty: none said its version. Of the group's letters, so
  /// many were not judged by the newest version of their target, and so many are held and wait for one that was seen.
  std::string handler_version;
  std::int64_t not_judged = 0, ready = 0;
  std::int64_t notes = 0;  // on the group; by fingerprint only
  std::string last_note;
};

}  // namespace dlo
