-- Transfers that do not match an order, of which merchants may be told.

-- The txids that the watch has told, 32 bytes each; NULL if it tells none, or none any more.
ALTER TABLE watch ADD COLUMN told_mismatches BLOB;

CREATE INDEX watch_telling_mismatches ON watch (reference, recipient) WHERE told_mismatches IS NOT NULL;
