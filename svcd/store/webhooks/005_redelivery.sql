-- Deliveries that merchants look at and ask for again.

-- The receiver's last answer, and when the last attempt ended.
ALTER TABLE event ADD COLUMN last_status INTEGER;
ALTER TABLE event ADD COLUMN attempted_at INTEGER;
-- When the merchant asked for the event again; it waits behind events that have not been sent yet.
ALTER TABLE event ADD COLUMN redelivery_at INTEGER;
-- When the merchant last asked for the event, also while it waited.
ALTER TABLE event ADD COLUMN asked_at INTEGER;
-- Attempts before that.
ALTER TABLE event ADD COLUMN earlier_attempts INTEGER NOT NULL DEFAULT 0;
-- When its next attempt is due; NULL if at once. That of the event whose turn it is becomes the due time of the watch.
ALTER TABLE event ADD COLUMN due INTEGER;

CREATE INDEX watch_by_merchant ON watch (merchant);
