-- At most one row: the hash of the changes of the producers (docs/protocol.md 8a) by which all canonical blocks have been
-- checked.
CREATE TABLE checked_producers (
    row     INTEGER PRIMARY KEY CHECK (row = 1),
    changes BLOB NOT NULL
) STRICT;
