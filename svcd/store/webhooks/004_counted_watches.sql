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

CREATE TRIGGER watch_added AFTER INSERT ON watch WHEN NEW.ending IS NULL BEGIN
    INSERT INTO watch_count VALUES (NEW.merchant, '', 0, 0), (NEW.merchant, NEW.host, 0, 0) ON CONFLICT DO NOTHING;
    UPDATE watch_count SET active = active + 1, unconfirmed = unconfirmed + (NEW.state <> 'confirmed')
        WHERE merchant = NEW.merchant AND host IN (NEW.host, '') OR merchant = '' AND host = '';
END;

CREATE TRIGGER watch_changed AFTER UPDATE OF state, ending ON watch
    WHEN (OLD.ending IS NULL) <> (NEW.ending IS NULL) OR (OLD.state = 'confirmed') <> (NEW.state = 'confirmed')
BEGIN
    INSERT INTO watch_count VALUES (NEW.merchant, '', 0, 0), (NEW.merchant, NEW.host, 0, 0) ON CONFLICT DO NOTHING;
    UPDATE watch_count SET
            active = active + (NEW.ending IS NULL) - (OLD.ending IS NULL),
            unconfirmed = unconfirmed + (NEW.ending IS NULL AND NEW.state <> 'confirmed')
                - (OLD.ending IS NULL AND OLD.state <> 'confirmed')
        WHERE merchant = NEW.merchant AND host IN (NEW.host, '') OR merchant = '' AND host = '';
    DELETE FROM watch_count WHERE merchant = NEW.merchant AND host = NEW.host AND active = 0;
END;

DROP INDEX watch_by_host;
CREATE INDEX watch_pending ON watch (number) WHERE ending IS NULL AND state = 'pending';
