-- Migration 3: decisions that last, and corrections. Times are microseconds since 1970 UTC.

ALTER TABLE events ADD COLUMN revision INTEGER;    -- of revisions, which a replay sends; NULL = the original, as for most
ALTER TABLE attempts ADD COLUMN revision INTEGER;  -- which was sent; likewise

-- One act on many letters: a frozen set, worked off in order of event_id.
CREATE TABLE decisions (
  id INTEGER PRIMARY KEY, act TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL,
  actor TEXT NOT NULL, role TEXT NOT NULL, reason TEXT NOT NULL, filter TEXT NOT NULL,
  link TEXT NOT NULL, owner TEXT NOT NULL, until INTEGER, wake_on_handler TEXT NOT NULL, resolve_code INTEGER,
  digest TEXT NOT NULL, count INTEGER NOT NULL, changed INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
  done_through INTEGER NOT NULL DEFAULT 0, finished_at INTEGER,
  -- freezing: its items are still being written, nobody was answered; dropped at the next start.
  CHECK (state IN ('freezing', 'running', 'done') AND act IN ('hold', 'release', 'resolve', 'reopen')
    AND (state <> 'done' OR changed + skipped = count))
);
CREATE INDEX decisions_open ON decisions (id) WHERE state <> 'done';
CREATE TABLE decision_items (
  decision_id INTEGER NOT NULL, event_id INTEGER NOT NULL,
  state INTEGER NOT NULL, attempt_no INTEGER NOT NULL,  -- as frozen: an event that has moved since is skipped
  skipped INTEGER,
  PRIMARY KEY (decision_id, event_id)
) WITHOUT ROWID;

-- Standing rules, and the letters that died while one was live and that no rule has looked at yet.
CREATE TABLE rules (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL, created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL,
  ended_at INTEGER,                               -- by a person, or when it expired; NULL = live
  expired INTEGER NOT NULL DEFAULT 0,
  actor TEXT NOT NULL, reason TEXT NOT NULL, filter TEXT NOT NULL,
  resolve_code INTEGER, link TEXT NOT NULL, owner TEXT NOT NULL,
  mark INTEGER NOT NULL,                          -- of rule_queue: it looks at what came after
  hits INTEGER NOT NULL DEFAULT 0, last_hit_at INTEGER,
  CHECK ((resolve_code IS NULL) = (link <> ''))
);
CREATE UNIQUE INDEX rules_live ON rules (name) WHERE ended_at IS NULL;
CREATE TABLE rule_queue (seq INTEGER PRIMARY KEY AUTOINCREMENT, event_id INTEGER NOT NULL);
CREATE TABLE rule_hits (
  rule_id INTEGER NOT NULL, event_id INTEGER NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (rule_id, event_id)
) WITHOUT ROWID;

CREATE TABLE notes (
  id INTEGER PRIMARY KEY, event_id INTEGER, fingerprint INTEGER, at INTEGER NOT NULL,
  actor TEXT NOT NULL, role TEXT NOT NULL, text TEXT NOT NULL,
  CHECK ((event_id IS NULL) <> (fingerprint IS NULL))
);
CREATE INDEX notes_event ON notes (event_id, id) WHERE event_id NOT NULL;
CREATE INDEX notes_group ON notes (fingerprint, id) WHERE fingerprint NOT NULL;
CREATE TRIGGER notes_no_update BEFORE UPDATE ON notes BEGIN SELECT RAISE(ABORT, 'notes are append-only'); END;
CREATE TRIGGER notes_no_delete BEFORE DELETE ON notes BEGIN SELECT RAISE(ABORT, 'notes are append-only'); END;

-- Corrected payloads. The body comes last, so that a list does not read it.
CREATE TABLE revisions (
  event_id INTEGER NOT NULL, number INTEGER NOT NULL, at INTEGER NOT NULL,
  actor TEXT NOT NULL, role TEXT NOT NULL, reason TEXT NOT NULL,
  body_bytes INTEGER NOT NULL, body_sha256 BLOB NOT NULL,  -- of the original's, where body is NULL
  body BLOB                                                -- NULL: the original again
);
CREATE UNIQUE INDEX revisions_event ON revisions (event_id, number);
CREATE TRIGGER revisions_no_update BEFORE UPDATE ON revisions BEGIN SELECT RAISE(ABORT, 'revisions are append-only'); END;

-- Which versions handlers said they are, in the order in which they were first seen.
CREATE TABLE handler_versions (
  id INTEGER PRIMARY KEY, target INTEGER NOT NULL, version TEXT NOT NULL, first_seen INTEGER NOT NULL
);
CREATE UNIQUE INDEX handler_versions_of ON handler_versions (target, version);
CREATE INDEX failures_wake ON failures (wake_on_handler) WHERE wake_on_handler <> '';
