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

INSERT INTO watch_count
    SELECT merchant, host, count(*), count(*) FILTER (WHERE state <> 'confirmed')
    FROM watch WHERE ending IS NULL GROUP BY merchant, host;
INSERT INTO watch_count SELECT merchant, '', sum(active), sum(unconfirmed) FROM watch_count GROUP BY merchant;
INSERT INTO watch_count
    SELECT '', '', coalesce(sum(active), 0), coalesce(sum(unconfirmed), 0) FROM watch_count WHERE host = '';

DROP INDEX watch_by_host;
CREATE INDEX watch_pending ON watch (number) WHERE ending IS NULL AND state = 'pending';
