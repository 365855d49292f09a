-- Migration 5: the chain of the audit log. Each record's hash covers its fields and the hash before it (audit_chain.h,
-- docs/formats.md), so that nothing in the middle can change without all that follows.

ALTER TABLE audit ADD COLUMN body_sha256 BLOB;  -- of the event it is about, as it was when this was written
ALTER TABLE audit ADD COLUMN hash BLOB;         -- NULL: older than the chain, covered by its base

CREATE TABLE audit_chain (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  base_seq INTEGER NOT NULL, base_hash BLOB NOT NULL,  -- over all records that are older than the chain
  head_seq INTEGER NOT NULL, head_hash BLOB NOT NULL   -- the newest record
);
-- With older records a program must hash first (StartAuditChain).
INSERT INTO audit_chain SELECT 1, 0, zeroblob(32), 0, zeroblob(32) WHERE NOT EXISTS (SELECT 1 FROM audit);

CREATE TRIGGER audit_chained BEFORE INSERT ON audit
  WHEN NEW.seq IS NOT (SELECT head_seq + 1 FROM audit_chain) OR length(NEW.hash) IS NOT 32
  BEGIN SELECT RAISE(ABORT, 'an audit record must go on with the chain'); END;
CREATE TRIGGER audit_chain_no_delete BEFORE DELETE ON audit_chain
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_chain_goes_on BEFORE UPDATE ON audit_chain
  WHEN NEW.head_seq IS NOT OLD.head_seq + 1 OR NEW.base_seq IS NOT OLD.base_seq OR NEW.base_hash IS NOT OLD.base_hash
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
