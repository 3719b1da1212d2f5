-- Several nodes that share this database, of which one leads; a database of one node leaves these tables empty.
-- Times are those of the database's clock.

CREATE TABLE lease (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    -- Grows with each change of the leader; every transaction of a leader checks it.
    term       INTEGER NOT NULL,
    -- '' if the last leader has given the lease back.
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

INSERT INTO lease VALUES (1, 0, '', 0);

-- What each node has last said of itself.
CREATE TABLE node_report (
    node    TEXT PRIMARY KEY,
    seen_at INTEGER NOT NULL,
    -- 1 if its chain is the network's as far as it knows, otherwise 0.
    ready   INTEGER NOT NULL,
    -- Cumulative work, 32 bytes big-endian.
    work    BLOB NOT NULL
) STRICT;

-- Watches of which an event was asked for again, until the leader has taken note.
CREATE TABLE asked_again (
    watch INTEGER PRIMARY KEY
) STRICT;

-- The circuit breakers that are open, of each merchant and callback host, for the next leader.
CREATE TABLE open_breaker (
    merchant  TEXT NOT NULL,
    host      TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    probe_at  INTEGER NOT NULL,
    probes    INTEGER NOT NULL,
    PRIMARY KEY (merchant, host)
) STRICT;

-- The cumulative work of the chain up to each followed block, 32 bytes big-endian; NULL where it was not kept yet.
ALTER TABLE trail ADD COLUMN work BLOB;
