-- Deliveries that merchants look at and ask for again.

-- The receiver's last answer, and when the last attempt ended.
ALTER TABLE event ADD COLUMN last_status INTEGER;
ALTER TABLE event ADD COLUMN attempted_at INTEGER;
-- When the merchant asked for the event again; it waits behind events that have not been sent yet.
ALTER TABLE event ADD COLUMN redelivery_at INTEGER;
-- Attempts before that.
ALTER TABLE event ADD COLUMN earlier_attempts INTEGER NOT NULL DEFAULT 0;

CREATE INDEX watch_by_merchant ON watch (merchant);
