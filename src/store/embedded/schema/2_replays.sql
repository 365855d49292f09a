-- Migration 2: a replay is a plan, then maybe a canary, then it runs, and a person or its own failures can halt it. Its
-- counts stand in its row, so that progress costs the same for ten letters and for a million.

CREATE TABLE replays_new (
  id INTEGER PRIMARY KEY, kind TEXT NOT NULL, state TEXT NOT NULL, created_at INTEGER NOT NULL,
  stage TEXT NOT NULL DEFAULT 'running',        -- what a resume goes on with
  actor TEXT NOT NULL, reason TEXT NOT NULL, filter TEXT NOT NULL, digest TEXT NOT NULL, count INTEGER NOT NULL,
  in_other INTEGER NOT NULL DEFAULT 0,          -- letters left out: they were another replay's
  batch_size INTEGER NOT NULL, stagger_us INTEGER NOT NULL, next_batch_at INTEGER NOT NULL, finished_at INTEGER,
  stop_percent INTEGER NOT NULL DEFAULT 50,     -- dead again: more than this share stops it
  canary INTEGER NOT NULL DEFAULT 0,            -- letters of each group that go first
  canary_left INTEGER NOT NULL DEFAULT 0,       -- of them: not ended
  canary_ended INTEGER NOT NULL DEFAULT 0,      -- of them: ended and not skipped
  canary_dead INTEGER NOT NULL DEFAULT 0,       -- of those: dead again
  -- Of count. queued: not yet handed over; ended: all that follow.
  queued INTEGER NOT NULL DEFAULT 0, ended INTEGER NOT NULL DEFAULT 0, skipped INTEGER NOT NULL DEFAULT 0,
  committed INTEGER NOT NULL DEFAULT 0, already_applied INTEGER NOT NULL DEFAULT 0, gone INTEGER NOT NULL DEFAULT 0,
  resolved INTEGER NOT NULL DEFAULT 0, dead_again INTEGER NOT NULL DEFAULT 0,
  parked INTEGER NOT NULL DEFAULT 0,            -- of dead_again: no longer class exhausted
  suppressed INTEGER NOT NULL DEFAULT 0,        -- of committed: told to send no notifications
  recent INTEGER NOT NULL DEFAULT 0,            -- a bit for each of the last ends, the newest lowest: 1 dead again
  recent_n INTEGER NOT NULL DEFAULT 0,
  mark_at INTEGER NOT NULL DEFAULT 0, mark_ended INTEGER NOT NULL DEFAULT 0,  -- some seconds ago, for the rate
  next_mark_at INTEGER NOT NULL DEFAULT 0, next_mark_ended INTEGER NOT NULL DEFAULT 0,
  word TEXT NOT NULL DEFAULT '', word_of TEXT NOT NULL DEFAULT '',            -- why it is in its state, and who said so
  CHECK (state IN ('plan', 'canary', 'running', 'paused', 'stopped', 'cancelled', 'done')),
  CHECK (stage IN ('canary', 'running'))
);

-- One source of a replay: its target may stand still while those of others go on.
CREATE TABLE replay_sources (
  replay_id INTEGER NOT NULL, source INTEGER NOT NULL,
  queued INTEGER NOT NULL,
  open INTEGER NOT NULL DEFAULT 0,              -- handed over, not ended
  retrying INTEGER NOT NULL DEFAULT 0,          -- of open: failed at least once since
  released_through INTEGER NOT NULL DEFAULT 0,  -- none that is queued has an id up to this one
  PRIMARY KEY (replay_id, source)
) WITHOUT ROWID;

CREATE TABLE replay_items_new (
  replay_id INTEGER NOT NULL, source INTEGER NOT NULL, event_id INTEGER NOT NULL,
  state INTEGER NOT NULL,                       -- 0 queued, 1 handed over, 2 likewise and failed since, 3 ended
  canary INTEGER NOT NULL DEFAULT 0,
  result INTEGER NOT NULL DEFAULT 0,            -- ReplayResult, or a reason for skipping (replay_items.h)
  class INTEGER NOT NULL DEFAULT 0,             -- FailureClass, when dead again
  PRIMARY KEY (replay_id, source, event_id)
) WITHOUT ROWID;

INSERT INTO replay_items_new (replay_id, source, event_id, state, result, class)
  SELECT i.replay_id, e.source, i.event_id, CASE WHEN i.state = 1 THEN 3 WHEN i.event_id <= r.released_through THEN 1 ELSE 0 END,
         i.result, i.class
  FROM replay_items i JOIN replays r ON r.id = i.replay_id JOIN events e ON e.id = i.event_id;

INSERT INTO replay_sources (replay_id, source, queued, open, released_through)
  SELECT i.replay_id, i.source, sum(i.state = 0), sum(i.state = 1), max(r.released_through)
  FROM replay_items_new i JOIN replays r ON r.id = i.replay_id GROUP BY 1, 2;

INSERT INTO replays_new (id, kind, state, created_at, actor, reason, filter, digest, count, batch_size, stagger_us,
                         next_batch_at, finished_at, queued, ended, skipped, committed, already_applied, gone, resolved,
                         dead_again, parked, mark_at, next_mark_at)
  SELECT r.id, r.kind, r.state, r.created_at, r.actor, r.reason, r.filter, r.digest, r.count, r.batch_size, r.stagger_us,
         r.next_batch_at, r.finished_at, coalesce(sum(i.state = 0), 0), coalesce(sum(i.state = 3), 0),
         coalesce(sum(i.state = 3 AND i.result >= 100), 0), coalesce(sum(i.state = 3 AND i.result = 1), 0),
         coalesce(sum(i.state = 3 AND i.result = 2), 0), coalesce(sum(i.state = 3 AND i.result = 3), 0),
         coalesce(sum(i.state = 3 AND i.result = 5), 0), coalesce(sum(i.state = 3 AND i.result = 4), 0),
         coalesce(sum(i.state = 3 AND i.result = 4 AND i.class <> 1), 0), r.created_at, r.created_at
  FROM replays r LEFT JOIN replay_items_new i ON i.replay_id = r.id GROUP BY r.id;

DROP TABLE replays;
DROP TABLE replay_items;
ALTER TABLE replays_new RENAME TO replays;
ALTER TABLE replay_items_new RENAME TO replay_items;

-- Those that still have letters of their own: a letter is in one replay at a time.
CREATE INDEX replays_holding ON replays (id)
  WHERE state IN ('plan', 'canary', 'running', 'paused', 'stopped') AND queued > 0;
CREATE INDEX replays_active ON replays (id) WHERE state IN ('plan', 'canary', 'running');
CREATE INDEX replay_items_canary ON replay_items (replay_id, source, event_id) WHERE canary = 1 AND state = 0;
CREATE INDEX replay_items_told ON replay_items (replay_id, source, event_id) WHERE result = 4 OR result >= 100;
