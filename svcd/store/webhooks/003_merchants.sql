-- Several merchants, of whom each sees its own watches only.

ALTER TABLE watch ADD COLUMN merchant TEXT NOT NULL DEFAULT 'default';

DROP INDEX watch_by_host;
CREATE INDEX watch_by_host ON watch (merchant, host) WHERE ending IS NULL;
