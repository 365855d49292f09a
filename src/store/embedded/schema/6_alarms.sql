-- Migration 6: alarms. Letters that came in and nobody was told of yet, what fires, and the alerts on their way out.

-- Arrivals since the alarms last looked, by cause: counted up in the transaction that parks a letter, taken out in the
-- one that keeps what is to be told of them.
CREATE TABLE arrivals (
  source      INTEGER NOT NULL,                 -- names.id
  fingerprint INTEGER NOT NULL,
  class       INTEGER NOT NULL,
  n           INTEGER NOT NULL,
  first_at    INTEGER NOT NULL,
  last_at     INTEGER NOT NULL,
  sample      INTEGER NOT NULL,                 -- events.id of the newest
  PRIMARY KEY (source, fingerprint)
) WITHOUT ROWID;

-- pass: number of the newest pass over the alarms, the fence of the next. last_arrival_at, last_probe_at, probe_failed: as
-- they say; 0 = never.
CREATE TABLE alarm_marks (name TEXT PRIMARY KEY, value NOT NULL) WITHOUT ROWID;
INSERT INTO alarm_marks (name, value) VALUES ('pass', 0), ('last_arrival_at', 0), ('last_probe_at', 0), ('probe_failed', '');

-- What fires, once per receiver, since each has thresholds of its own.
CREATE TABLE alarm_conditions (
  receiver    TEXT NOT NULL,                    -- name of the [[alert]]
  rule        TEXT NOT NULL,
  name        TEXT NOT NULL,                    -- tells apart what one rule found: a fingerprint, a source; or empty
  source      TEXT NOT NULL,
  route       TEXT NOT NULL,                    -- page, ticket or outside: where it was told
  since       INTEGER NOT NULL,
  clear_since INTEGER NOT NULL,                 -- 0: it fires now; arrivals: when the newest came
  told_at     INTEGER NOT NULL,                 -- 0: not yet
  pending     INTEGER NOT NULL,                 -- arrivals that were not told
  total       INTEGER NOT NULL,
  what        TEXT NOT NULL,
  sample      INTEGER NOT NULL,
  PRIMARY KEY (receiver, rule, name)
) WITHOUT ROWID;

-- The outbox. A row is unsent until its receiver answered 2xx; a later one of the same condition takes the place of an
-- unsent one, so that a receiver that was down is not told the past.
CREATE TABLE alerts (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  alert      TEXT NOT NULL UNIQUE,              -- what receivers know it by, the same at each attempt
  receiver   TEXT NOT NULL,
  rule       TEXT NOT NULL,
  name       TEXT NOT NULL,
  source     TEXT NOT NULL,
  route      TEXT NOT NULL,
  status     TEXT NOT NULL,
  since      INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  n          INTEGER NOT NULL,                  -- letters it tells of for the first time
  total      INTEGER NOT NULL,
  what       TEXT NOT NULL,
  sample     INTEGER NOT NULL,
  attempts   INTEGER NOT NULL DEFAULT 0,
  next_at    INTEGER NOT NULL,
  sent_at    INTEGER,
  answer     TEXT NOT NULL DEFAULT '',          -- of the newest attempt
  CHECK (status IN ('firing', 'resolved', 'test'))
);
CREATE INDEX alerts_unsent ON alerts (receiver, id) WHERE sent_at IS NULL;
