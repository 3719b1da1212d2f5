-- The alarms of the node that are on, which merchants have been told of, and the watches that want to be told.

CREATE TABLE alarm (
    kind TEXT PRIMARY KEY
) STRICT, WITHOUT ROWID;

CREATE INDEX watch_wanting_alarms ON watch (merchant, callback_url, number)
    WHERE ending IS NULL AND events LIKE '%node.alarm%';
