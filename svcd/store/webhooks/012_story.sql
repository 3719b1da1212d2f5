-- What an event says, in short: JSON with the payment's state, its block and the tip. Unlike the body it is kept as long
-- as the event; NULL if an earlier version has made the event.
ALTER TABLE event ADD COLUMN summary TEXT;

-- A merchant looks its watches up by the reference of the order.
CREATE INDEX watch_by_reference ON watch (merchant, reference);
