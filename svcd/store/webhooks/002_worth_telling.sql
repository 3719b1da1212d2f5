-- Which events a watch tells, how often a receiver has refused an event, and bodies that are kept after delivery.

-- The names of the events that are told, separated by blanks; NULL for the default ones.
ALTER TABLE watch ADD COLUMN events TEXT;

-- Also a fate: refused.
ALTER TABLE event ADD COLUMN refusals INTEGER NOT NULL DEFAULT 0;

CREATE INDEX event_with_kept_body ON event (coalesce(delivered_at, created_at))
    WHERE fate <> 'waiting' AND length(body) > 0;
