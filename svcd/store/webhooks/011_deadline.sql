-- Until when the payment of a watch must have been seen; NULL if the watch has no such deadline.
ALTER TABLE watch ADD COLUMN pay_until INTEGER;

-- NULL stands for the default events, which payment.mismatched has joined.
UPDATE watch SET events = 'payment.confirmed payment.confirming payment.expired payment.pending payment.reorged'
    WHERE events IS NULL;
