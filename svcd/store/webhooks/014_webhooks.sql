-- Watches over payments, their events, the blocks up to which the chain has been followed, and the lease of the leader.
-- Schemas of lower numbers were never released. Times are Unix milliseconds; hashes are blobs of 32 bytes, work is 32
-- bytes big-endian.

CREATE TABLE watch (
    number           INTEGER PRIMARY KEY,
    id               TEXT NOT NULL UNIQUE,
    -- Of several merchants each sees its own watches only.
    merchant         TEXT NOT NULL,
    reference        TEXT NOT NULL,
    recipient        TEXT NOT NULL,
    amount           INTEGER NOT NULL,
    required         INTEGER NOT NULL,
    since_height     INTEGER,
    callback_url     TEXT NOT NULL,
    host             TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    expires_at       INTEGER NOT NULL,
    -- Until when the payment must have been seen; NULL if the watch has no such deadline.
    pay_until        INTEGER,
    -- The names of the wanted events, in alphabetical order, separated by blanks.
    events           TEXT NOT NULL,
    state            TEXT NOT NULL,
    epoch            INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    close_height     INTEGER,
    ending           TEXT,
    txid             BLOB,
    block_hash       BLOB,
    height           INTEGER,
    position         INTEGER,
    block_time       INTEGER,
    -- The height and the time at which the watch is due without any new transfer.
    wake_height      INTEGER,
    wake_at          INTEGER,
    ended_at         INTEGER,
    -- The txids of the payment.mismatched events of the watch, 32 bytes each; NULL if it has no further such events.
    reported_mismatches BLOB,
    -- The height of the tip at the last evaluation that changed the watch; NULL before the first.
    evaluated_height INTEGER,
    -- When its next event may be sent; NULL if none waits.
    due              INTEGER
) STRICT;

CREATE INDEX watch_by_payment ON watch (reference, recipient, amount) WHERE ending IS NULL;
-- A merchant looks its watches up by the reference of the order.
CREATE INDEX watch_by_reference ON watch (merchant, reference);
CREATE INDEX watch_by_merchant ON watch (merchant);
CREATE INDEX watch_by_height ON watch (height) WHERE ending IS NULL AND height IS NOT NULL;
CREATE INDEX watch_by_wake_height ON watch (wake_height) WHERE ending IS NULL AND wake_height IS NOT NULL;
CREATE INDEX watch_by_wake_at ON watch (wake_at) WHERE ending IS NULL AND wake_at IS NOT NULL;
CREATE INDEX watch_by_due ON watch (due) WHERE due IS NOT NULL;
CREATE INDEX watch_by_end ON watch (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX watch_pending ON watch (number) WHERE ending IS NULL AND state = 'pending';
CREATE INDEX watch_wanting_alarms ON watch (merchant, callback_url, number)
    WHERE ending IS NULL AND events LIKE '%node.alarm%';
CREATE INDEX watch_with_mismatches ON watch (reference, recipient) WHERE reported_mismatches IS NOT NULL;

-- How many watches each merchant and each of its callback hosts has, so that no registration and no step counts them.
CREATE TABLE watch_count (
    -- '' with the host '' is for all merchants together.
    merchant    TEXT NOT NULL,
    -- '' for all hosts of the merchant together.
    host        TEXT NOT NULL,
    active      INTEGER NOT NULL,
    -- The active watches whose payment is not confirmed, to which the limits apply.
    unconfirmed INTEGER NOT NULL,
    PRIMARY KEY (merchant, host)
) STRICT, WITHOUT ROWID;

CREATE TABLE event (
    number           INTEGER PRIMARY KEY,
    watch            INTEGER NOT NULL,
    sequence         INTEGER NOT NULL,
    epoch            INTEGER NOT NULL,
    id               TEXT NOT NULL,
    name             TEXT NOT NULL,
    -- Empty once the event is not sent any more, or a while after its delivery.
    body             BLOB NOT NULL,
    -- JSON with the payment's state, its block and the tip. Kept as long as the event.
    summary          TEXT NOT NULL,
    created_at       INTEGER NOT NULL,
    -- waiting, delivered, superseded, abandoned, refused or dropped
    fate             TEXT NOT NULL DEFAULT 'waiting',
    attempts         INTEGER NOT NULL DEFAULT 0,
    refusals         INTEGER NOT NULL DEFAULT 0,
    delivered_at     INTEGER,
    last_error       TEXT,
    -- The receiver's last answer, and when the last attempt ended.
    last_status      INTEGER,
    attempted_at     INTEGER,
    -- When the merchant asked for the event again; it waits behind events that have not been sent yet.
    redelivery_at    INTEGER,
    -- When the merchant last asked for the event, even if it waited then.
    asked_at         INTEGER,
    -- Attempts before that.
    earlier_attempts INTEGER NOT NULL DEFAULT 0,
    -- When its next attempt is due; NULL if at once. That of the event whose turn it is becomes the due time of the watch.
    due              INTEGER,
    UNIQUE (watch, sequence)
) STRICT;

CREATE INDEX event_waiting ON event (watch, sequence) WHERE fate = 'waiting';
CREATE INDEX event_waiting_since ON event (created_at) WHERE fate = 'waiting';
CREATE INDEX event_with_kept_body ON event (coalesce(delivered_at, created_at))
    WHERE fate <> 'waiting' AND length(body) > 0;

-- The canonical blocks that have been followed, the newest few thousand; the highest is the cursor of all watches.
CREATE TABLE followed_block (
    height    INTEGER PRIMARY KEY,
    hash      BLOB NOT NULL,
    -- The cumulative work of the chain up to the block.
    work      BLOB NOT NULL,
    -- For the highest block: the height up to which all watches have been evaluated, while some of those that the blocks
    -- above it affect have not; NULL if none is left.
    evaluated INTEGER
) STRICT;

-- The active alarms of the node, for which events were created.
CREATE TABLE alarm (
    -- The kind and what the alarm is about, such as the hash of a tip that a deep reorganisation undid.
    id       TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,
    sentence TEXT NOT NULL,
    -- NULL if the node reports its end.
    ends_at  INTEGER
) STRICT, WITHOUT ROWID;

-- The circuit breakers that are open, of each merchant and receiver (host:port), for the next run or the next leader.
CREATE TABLE open_breaker (
    merchant  TEXT NOT NULL,
    receiver  TEXT NOT NULL,
    opened_at INTEGER NOT NULL,
    probe_at  INTEGER NOT NULL,
    probes    INTEGER NOT NULL,
    PRIMARY KEY (merchant, receiver)
) STRICT;

-- Several nodes that share this database, of which one leads; a database of one node leaves these tables as they are.
-- Their times are those of the database's clock.

CREATE TABLE lease (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    -- Grows with each change of the leader; every transaction of a leader checks it.
    term       INTEGER NOT NULL,
    -- '' if the last leader has given the lease back.
    holder     TEXT NOT NULL,
    expires_at INTEGER NOT NULL,
    -- Identifies the PostgreSQL database among its copies; '' before the first node has noted it.
    server     TEXT NOT NULL
) STRICT;

INSERT INTO lease VALUES (1, 0, '', 0, '');

-- The last report of each node.
CREATE TABLE node_report (
    node     TEXT PRIMARY KEY,
    seen_at  INTEGER NOT NULL,
    -- 1 if its chain is the network's as far as it knows, otherwise 0.
    ready    INTEGER NOT NULL,
    -- The cumulative work of its chain.
    work     BLOB NOT NULL,
    -- A digest of the settings that should be equal on all nodes.
    settings BLOB NOT NULL
) STRICT;

-- Watches of which an event was asked for again, until the leader has taken note.
CREATE TABLE asked_again (
    watch INTEGER PRIMARY KEY
) STRICT;
