-- Several merchants, of whom each sees its own watches only.

ALTER TABLE watch ADD COLUMN merchant TEXT NOT NULL DEFAULT 'default';
