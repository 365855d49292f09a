-- Migration 4: retention. What stays of an event whose rows were pruned: enough to know a resend of it, to tell another
-- content of its key, and to find its bytes. Its key's digest stays in event_keys.
CREATE TABLE pruned (
  id          INTEGER PRIMARY KEY,   -- as events.id was
  key_hash    BLOB NOT NULL,         -- 16 bytes of SHA-256(source NUL key)
  body_hash   BLOB NOT NULL,         -- 16 bytes of the body's SHA-256
  conflict_of INTEGER,
  segment     INTEGER NOT NULL,
  position    INTEGER NOT NULL,
  length      INTEGER NOT NULL
);

-- The lines of the archive's manifest that are pruned, as far as they may be.
INSERT INTO meta (name, value) VALUES ('archive_line', 0);

CREATE TABLE legal_holds (
  id INTEGER PRIMARY KEY, created_at INTEGER NOT NULL, actor TEXT NOT NULL, reason TEXT NOT NULL, filter TEXT NOT NULL,
  ended_at INTEGER, ended_by TEXT, end_reason TEXT
);
CREATE INDEX legal_holds_open ON legal_holds (id) WHERE ended_at IS NULL;
