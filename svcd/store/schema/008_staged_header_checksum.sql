-- The first eight bytes of a SHA-256 over the other columns: a header that the disk has damaged must not become part of
-- the chain, and its hash does not cover its signature nor the chain variables after it.
ALTER TABLE snapshot_header ADD COLUMN checksum BLOB NOT NULL DEFAULT x'';
