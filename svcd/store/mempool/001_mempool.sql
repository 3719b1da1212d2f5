-- The waiting transfers by their numbers. Checked is packed by svcd/store/mempool_store.py, so that a start need neither
-- parse the body nor verify its signature again.
CREATE TABLE waiting (
    sequence INTEGER PRIMARY KEY,
    checked  BLOB NOT NULL,
    body     BLOB NOT NULL
) STRICT;
