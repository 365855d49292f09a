-- Migration 1: the index of states. Times are microseconds since 1970 UTC. Numbers of state, class and codes are those
-- of include/dlo/states.h. The CHECKs repeat the law of src/model/law.h.

CREATE TABLE meta (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
-- journal_segment, journal_offset, journal_seq: up to where the journal is taken in. keys_through: up to
-- which event event_keys is complete. duplicates, pruned: counts.

CREATE TABLE names (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);  -- sources, targets and workers, by number

-- What a receipt says, written once: a change of state rewrites none of it. Only a repeat counts up here.
CREATE TABLE receipts (
  id            INTEGER PRIMARY KEY,            -- as events.id
  source        INTEGER NOT NULL,               -- names.id
  key_digest    INTEGER NOT NULL,               -- 64 bits of SHA-256(source NUL key)
  key_ordinal   INTEGER NOT NULL DEFAULT 0,     -- 0, or more for a true digest clash; conflicts count on from -1 down
  key           TEXT NOT NULL,
  kind          TEXT NOT NULL,
  subject       TEXT NOT NULL,
  account       TEXT NOT NULL,
  livemode      INTEGER,
  occurred_at   INTEGER,
  segment       INTEGER NOT NULL,               -- where the receipt is
  position      INTEGER NOT NULL,
  length        INTEGER NOT NULL,
  body_bytes    INTEGER NOT NULL,
  body_sha256   BLOB NOT NULL,
  conflict_of   INTEGER,                        -- events.id
  last_seen_at  INTEGER NOT NULL,
  deliveries    INTEGER NOT NULL DEFAULT 1
);

-- Where each event stands: small rows, many to a page, since each is written several times.
CREATE TABLE events (
  id            INTEGER PRIMARY KEY,            -- receipt order (journal seq)
  source        INTEGER NOT NULL,               -- names.id
  received_at   INTEGER NOT NULL,
  state         INTEGER NOT NULL,
  class         INTEGER NOT NULL DEFAULT 0,
  due_at        INTEGER,
  lane          INTEGER,                        -- 64-bit digest of (source, subject) while it occupies its subject's lane
  behind        INTEGER NOT NULL DEFAULT 0,     -- 1: waiting, and an earlier (or a running) event is in the lane
  token         INTEGER NOT NULL DEFAULT 0,     -- last lease token; strictly rises
  lease_until   INTEGER,
  worker        INTEGER,
  attempts      INTEGER NOT NULL DEFAULT 0,     -- live tries
  tries         INTEGER NOT NULL DEFAULT 0,     -- tries in this dispatch
  attempt_no    INTEGER NOT NULL DEFAULT 0,     -- newest attempt row
  crashes       INTEGER NOT NULL DEFAULT 0,     -- in this dispatch
  replaying     INTEGER NOT NULL DEFAULT 0,
  replay_id     INTEGER NOT NULL DEFAULT 0,
  replays       INTEGER NOT NULL DEFAULT 0,
  replays_failed INTEGER NOT NULL DEFAULT 0,
  fingerprint   INTEGER,                        -- of the newest failure
  parked_at     INTEGER,
  finished_at   INTEGER,
  -- The state again while it is 3 or 4, else NULL. The letters' indexes ask for this and not for `state`: a statement that
  -- does not set it costs them nothing, and most events never become letters.
  letter        INTEGER,
  -- One expression, whose first branch is the one that each new event takes: it is evaluated for every insert.
  CHECK (class BETWEEN 0 AND 7 AND CASE state
    WHEN 0 THEN due_at NOT NULL AND lease_until IS NULL AND finished_at IS NULL AND letter IS NULL
      AND (behind = 0 OR lane NOT NULL)
    WHEN 1 THEN lease_until NOT NULL AND due_at IS NULL AND finished_at IS NULL AND letter IS NULL AND behind = 0
    WHEN 2 THEN finished_at NOT NULL AND due_at IS NULL AND lease_until IS NULL AND letter IS NULL AND behind = 0
      AND class = 0 AND replaying = 0 AND lane IS NULL
    WHEN 3 THEN letter IS 3 AND class <> 0 AND due_at IS NULL AND lease_until IS NULL AND finished_at IS NULL AND behind = 0
    WHEN 4 THEN letter IS 4 AND class <> 0 AND due_at IS NULL AND lease_until IS NULL AND finished_at IS NULL AND behind = 0
    WHEN 5 THEN finished_at NOT NULL AND due_at IS NULL AND lease_until IS NULL AND letter IS NULL AND behind = 0
    WHEN 6 THEN finished_at NOT NULL AND due_at IS NULL AND lease_until IS NULL AND letter IS NULL AND behind = 0
    ELSE 0 END)
);
CREATE INDEX events_due ON events (source, due_at, id) WHERE state = 0 AND behind = 0;
CREATE INDEX events_in_lane ON events (id) WHERE lane NOT NULL;  -- for the start: lanes are kept in memory (lanes.h)
CREATE INDEX events_lease ON events (lease_until) WHERE lease_until NOT NULL;
CREATE INDEX events_letters ON events (id) WHERE letter NOT NULL;
CREATE INDEX events_groups ON events (fingerprint, id) WHERE letter NOT NULL;
CREATE INDEX events_parked_lane ON events (source, parked_at) WHERE letter NOT NULL AND lane NOT NULL;
CREATE INDEX events_oldest ON events (source, parked_at) WHERE letter = 3;

-- The index of key digests; rows of the newest events, after meta's keys_through, are still to come (key_index.h).
CREATE TABLE event_keys (
  key_digest INTEGER NOT NULL, key_ordinal INTEGER NOT NULL, event_id INTEGER NOT NULL,
  PRIMARY KEY (key_digest, key_ordinal)
) WITHOUT ROWID;

-- What only an event that failed needs; one row from its first failure on.
CREATE TABLE failures (
  event_id        INTEGER PRIMARY KEY,
  first_failed_at INTEGER NOT NULL,             -- never changed once set; 0: resolved and never failed
  last_failed_at  INTEGER NOT NULL,
  code            TEXT NOT NULL,
  message         TEXT NOT NULL,
  detail          TEXT NOT NULL,
  handler_version TEXT NOT NULL DEFAULT '',
  hold_link       TEXT NOT NULL DEFAULT '',
  hold_owner      TEXT NOT NULL DEFAULT '',
  hold_until      INTEGER,
  wake_on_handler TEXT NOT NULL DEFAULT '',
  resolve_code    INTEGER,
  resolve_reason  TEXT NOT NULL DEFAULT ''
);
CREATE INDEX failures_hold ON failures (hold_until) WHERE hold_until IS NOT NULL;  -- held with a date

CREATE TABLE attempts (
  event_id        INTEGER NOT NULL,
  number          INTEGER NOT NULL,
  token           INTEGER NOT NULL,
  started_at      INTEGER NOT NULL,
  finished_at     INTEGER,
  worker          INTEGER NOT NULL,             -- names.id
  target          INTEGER NOT NULL,             -- names.id
  outcome         INTEGER,                      -- OutcomeKind
  code            TEXT,
  message         TEXT,
  detail          TEXT,
  http_status     INTEGER,
  handler_version TEXT,
  effect          TEXT,
  replay_id       INTEGER NOT NULL DEFAULT 0,
  late            INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (event_id, number)
) WITHOUT ROWID;

-- Exact counts, moved in the transaction that moves a state.
CREATE TABLE counts (
  source INTEGER NOT NULL, state INTEGER NOT NULL, class INTEGER NOT NULL, n INTEGER NOT NULL,
  PRIMARY KEY (source, state, class)
) WITHOUT ROWID;

CREATE TABLE replays (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL,
  actor TEXT NOT NULL, reason TEXT NOT NULL, filter TEXT NOT NULL, digest TEXT NOT NULL, count INTEGER NOT NULL,
  queued INTEGER NOT NULL DEFAULT 0,            -- of count: not yet released; released in order of event_id,
  released_through INTEGER NOT NULL DEFAULT 0,  -- as far as this one
  ended INTEGER NOT NULL DEFAULT 0,             -- of count: in state 1
  batch_size INTEGER NOT NULL, stagger_us INTEGER NOT NULL, next_batch_at INTEGER NOT NULL, finished_at INTEGER,
  CHECK (state IN ('running', 'paused', 'cancelled', 'done'))
);
CREATE INDEX replays_open ON replays (id) WHERE state IN ('running', 'paused');
CREATE TABLE replay_items (
  replay_id INTEGER NOT NULL, event_id INTEGER NOT NULL,
  state INTEGER NOT NULL,                       -- 0 queued, or released (as far as released_through), 1 ended
  result INTEGER NOT NULL DEFAULT 0,            -- ReplayResult; 100 skipped: state, 101 skipped: in another replay
  class INTEGER NOT NULL DEFAULT 0,             -- FailureClass, when dead again
  PRIMARY KEY (replay_id, event_id)
) WITHOUT ROWID;

CREATE TABLE audit (
  seq INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, actor TEXT NOT NULL, role TEXT NOT NULL, action TEXT NOT NULL,
  event_id INTEGER NOT NULL DEFAULT 0, reason TEXT NOT NULL, details TEXT NOT NULL
);
CREATE INDEX audit_event ON audit (event_id, seq) WHERE event_id <> 0;
CREATE TRIGGER audit_no_update BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_no_delete BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

CREATE TABLE tokens (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, role TEXT NOT NULL, hash TEXT NOT NULL UNIQUE,
  created_at INTEGER NOT NULL, revoked_at INTEGER,
  CHECK (role IN ('viewer', 'operator', 'admin'))
);
CREATE UNIQUE INDEX tokens_live_name ON tokens (name) WHERE revoked_at IS NULL;

CREATE TABLE rejected (
  id INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER NOT NULL, source TEXT NOT NULL, reason TEXT NOT NULL,
  remote TEXT NOT NULL, headers BLOB NOT NULL, body BLOB NOT NULL
);

CREATE TABLE source_pauses (
  source TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, message TEXT NOT NULL, since INTEGER NOT NULL
) WITHOUT ROWID;
