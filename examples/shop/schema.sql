PRAGMA journal_mode = WAL;
-- What the shop asks to be paid, and what it knows of the payment. A refund is an order too, which the shop pays.
CREATE TABLE IF NOT EXISTS orders (
    reference TEXT PRIMARY KEY,
    recipient TEXT NOT NULL,
    amount INTEGER NOT NULL,
    confirmations INTEGER NOT NULL,
    since_height INTEGER NOT NULL,
    refund_of TEXT UNIQUE REFERENCES orders (reference),
    what TEXT NOT NULL,
    payment_uri TEXT NOT NULL,
    checkout_url TEXT NOT NULL,
    expires_at INTEGER,
    -- How the amount was calculated; null for a refund, which returns the coins of the payment.
    price TEXT,
    currency TEXT,
    rate TEXT,
    rate_at INTEGER,
    state TEXT NOT NULL DEFAULT 'unpaid',
    depth INTEGER NOT NULL DEFAULT 0,
    txid TEXT,
    was_paid INTEGER NOT NULL DEFAULT 0,
    shipped INTEGER NOT NULL DEFAULT 0,
    -- The newest event that was taken: the id of its watch, and its place in it. Events can come twice, or late.
    watch TEXT,
    epoch INTEGER NOT NULL DEFAULT 0,
    sequence INTEGER NOT NULL DEFAULT 0
);
-- Of the orders that nobody has paid, which anybody can make, only the open ones are counted before the next.
CREATE INDEX IF NOT EXISTS unpaid_orders ON orders (expires_at) WHERE state = 'unpaid';
-- What a person must look at: transfers that pay no order, and alarms of the node, by the id of the event.
CREATE TABLE IF NOT EXISTS notices (id TEXT PRIMARY KEY, reference TEXT, notice TEXT NOT NULL);
