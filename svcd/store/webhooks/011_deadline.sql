-- Until when the payment of a watch must have been seen; NULL if the watch has no such deadline.
ALTER TABLE watch ADD COLUMN pay_until INTEGER;
