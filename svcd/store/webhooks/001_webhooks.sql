-- Watches over payments, the events they have to tell, and how far the chain has been followed.
-- Times are Unix milliseconds; hashes are blobs of 32 bytes.

CREATE TABLE watch (
    number       INTEGER PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    reference    TEXT NOT NULL,
    recipient    TEXT NOT NULL,
    amount       INTEGER NOT NULL,
    required     INTEGER NOT NULL,
    since_height INTEGER,
    callback_url TEXT NOT NULL,
    host         TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    state        TEXT NOT NULL,
    epoch        INTEGER NOT NULL,
    sequence     INTEGER NOT NULL,
    close_height INTEGER,
    ending       TEXT,
    txid         BLOB,
    block_hash   BLOB,
    height       INTEGER,
    position     INTEGER,
    block_time   INTEGER,
    -- When the watch has something to say by itself.
    wake_height  INTEGER,
    wake_at      INTEGER,
    ended_at     INTEGER,
    -- When its next event may be sent; NULL if none waits.
    due          INTEGER
) STRICT;

CREATE INDEX watch_by_payment ON watch (reference, recipient, amount) WHERE ending IS NULL;
CREATE INDEX watch_by_host ON watch (host) WHERE ending IS NULL;
CREATE INDEX watch_by_height ON watch (height) WHERE ending IS NULL AND height IS NOT NULL;
CREATE INDEX watch_by_wake_height ON watch (wake_height) WHERE ending IS NULL AND wake_height IS NOT NULL;
CREATE INDEX watch_by_wake_at ON watch (wake_at) WHERE ending IS NULL AND wake_at IS NOT NULL;
CREATE INDEX watch_by_due ON watch (due) WHERE due IS NOT NULL;
CREATE INDEX watch_by_end ON watch (ended_at) WHERE ended_at IS NOT NULL;

CREATE TABLE event (
    number       INTEGER PRIMARY KEY,
    watch        INTEGER NOT NULL,
    sequence     INTEGER NOT NULL,
    epoch        INTEGER NOT NULL,
    id           TEXT NOT NULL,
    name         TEXT NOT NULL,
    body         BLOB NOT NULL,
    created_at   INTEGER NOT NULL,
    -- waiting, delivered, superseded, abandoned or dropped
    fate         TEXT NOT NULL,
    attempts     INTEGER NOT NULL,
    delivered_at INTEGER,
    last_error   TEXT,
    UNIQUE (watch, sequence)
) STRICT;

CREATE INDEX event_waiting ON event (watch, sequence) WHERE fate = 'waiting';
CREATE INDEX event_waiting_since ON event (created_at) WHERE fate = 'waiting';

-- The canonical blocks that have been followed, the newest few thousand; the highest is where the watches stand.
CREATE TABLE trail (
    height INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL
) STRICT;
