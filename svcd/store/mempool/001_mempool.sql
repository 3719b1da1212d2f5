-- The transfers that wait, under their local numbers. A negative number is that of a transfer which nobody has been
-- told of: a reorganisation has left it without cover. Checked is what svcd/store/mempool_store.py packs, so that a
-- start need neither take the body apart nor check its signature again.
CREATE TABLE waiting (
    sequence INTEGER PRIMARY KEY,
    checked  BLOB NOT NULL,
    body     BLOB NOT NULL
) STRICT;
