-- What the shop asks to be paid, and what it knows of the payment. A refund is an order too, which the shop pays.
CREATE TABLE IF NOT EXISTS orders (
    reference TEXT PRIMARY KEY,
    refund_of TEXT UNIQUE REFERENCES orders (reference),
    what TEXT NOT NULL,
    recipient TEXT NOT NULL,
    amount INTEGER NOT NULL,
    confirmations INTEGER NOT NULL,
    since_height INTEGER NOT NULL,
    payment_uri TEXT NOT NULL,
    checkout_url TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    watch TEXT,
    state TEXT NOT NULL DEFAULT 'unpaid',
    depth INTEGER NOT NULL DEFAULT 0,
    txid TEXT,
    was_paid INTEGER NOT NULL DEFAULT 0,
    expired INTEGER NOT NULL DEFAULT 0,
    shipped_at INTEGER
);
-- Events that have been taken, because each can come more than once.
CREATE TABLE IF NOT EXISTS events (id TEXT PRIMARY KEY);
-- The newest event of each watch, because events can overtake each other.
CREATE TABLE IF NOT EXISTS watches (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL, sequence INTEGER NOT NULL);
-- What a person must look at: transfers that pay no order, and alarms of the node.
CREATE TABLE IF NOT EXISTS notes (id TEXT PRIMARY KEY, reference TEXT, note TEXT NOT NULL);
