-- The alarms of the node that are on, which merchants have been told of, and the watches that want to be told.

CREATE TABLE alarm (
    -- The kind and what the alarm is about, such as the hash of a tip that a deep reorganisation undid.
    id       TEXT PRIMARY KEY,
    kind     TEXT NOT NULL,
    sentence TEXT NOT NULL,
    -- Unix milliseconds; NULL if the node tells when it is over.
    ends_at  INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX watch_wanting_alarms ON watch (merchant, callback_url, number)
    WHERE ending IS NULL AND events LIKE '%node.alarm%';
