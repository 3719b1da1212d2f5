-- Blocks, the state after the tip, the indexes over the canonical chain, and what fell out of it.
-- Schemas of lower numbers were never released.
-- 32-byte hashes and 20-byte key hashes are blobs; work is 32 bytes big-endian so that it sorts as a number.

CREATE TABLE block (
    id     INTEGER PRIMARY KEY,
    hash   BLOB NOT NULL UNIQUE,
    parent BLOB NOT NULL,
    height INTEGER NOT NULL,
    slot   INTEGER NOT NULL,
    clock  INTEGER NOT NULL,
    work   BLOB NOT NULL,
    issued INTEGER NOT NULL,
    header BLOB NOT NULL,
    -- Bytes of the canonical JSON of the block.
    size   INTEGER NOT NULL,
    -- Of a block that is not canonical: the most cumulative work of its branch, of which headers may have shown more than
    -- is stored; 0 if the branch leaves the chain below the prune height. The branch with the least is deleted first.
    side_work BLOB
) STRICT;

CREATE INDEX side_block ON block (side_work, id, size) WHERE side_work IS NOT NULL;

-- What builds on a block is forgotten with it.
CREATE INDEX block_by_parent ON block (parent, side_work);

-- One number for block and position: a table with two would have bodies in its inner pages, and of 10^6 transfers seven
-- levels instead of three.
CREATE TABLE block_transaction (
    id       INTEGER PRIMARY KEY,
    -- As packed by svcd/store/packed_transfer.py.
    body     BLOB NOT NULL,
    block    INTEGER NOT NULL AS (id >> 16),
    position INTEGER NOT NULL AS (id & 65535)
) STRICT;

-- The accounts as they were before a canonical block, as packed by svcd/store/undo_records.py.
CREATE TABLE undo (
    block INTEGER PRIMARY KEY,
    data  BLOB NOT NULL
) STRICT;

CREATE TABLE canonical (
    height INTEGER PRIMARY KEY,
    block  INTEGER NOT NULL
) STRICT;

-- The history tree over the canonical chain: perfect subtrees of two blocks and more, packed by svcd/chain/history.py.
-- The subtree of 2^level blocks whose last block is at height. A leaf follows from its block.
CREATE TABLE history (
    height INTEGER NOT NULL,
    level  INTEGER NOT NULL,
    node   BLOB NOT NULL,
    PRIMARY KEY (height, level)
) STRICT, WITHOUT ROWID;

-- The state after the tip, and the index of transfers: sorted runs (svcd/store/sorted_runs.py). A run is of the commits
-- from first to last, or of the blocks at these heights, and rows of other heights are deleted.
CREATE TABLE account_run (
    first  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    -- At most so many.
    rows   INTEGER NOT NULL,
    -- The number of the run into which it is being merged.
    target INTEGER,
    PRIMARY KEY (first, number DESC)
) STRICT, WITHOUT ROWID;

CREATE TABLE account_entry (
    run     INTEGER NOT NULL,
    key     BLOB NOT NULL,
    -- NULL: the account does not exist any more.
    balance INTEGER,
    nonce   INTEGER NOT NULL,
    held    INTEGER,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE transfer_run (
    first  INTEGER NOT NULL,
    number INTEGER NOT NULL,
    last   INTEGER NOT NULL,
    rows   INTEGER NOT NULL,
    target INTEGER,
    PRIMARY KEY (first, number DESC)
) STRICT, WITHOUT ROWID;

-- Keys are signed 64-bit numbers (svcd/store/transfer_index.py); a place is the height of a block times 65536 and a
-- position.
CREATE TABLE transfer_entry (
    run   INTEGER NOT NULL,
    key   INTEGER NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (run, key, place)
) STRICT, WITHOUT ROWID;

-- One row. Every block at this height or above has its transfers and its undo record, and a block below has its header and
-- its history nodes only.
CREATE TABLE prune (
    row         INTEGER PRIMARY KEY CHECK (row = 1),
    height      INTEGER NOT NULL,
    proven_work BLOB NOT NULL
) STRICT;

INSERT INTO prune VALUES (1, 0, x'');

-- A start from a snapshot that is under way, beside the chain. The headers of the chain with the most work from height 1
-- on, each with the nodes of the history tree that its block completes above its leaf, from the lowest.
CREATE TABLE snapshot_header (
    height  INTEGER PRIMARY KEY,
    hash    BLOB NOT NULL,
    parent  BLOB NOT NULL,
    slot    INTEGER NOT NULL,
    clock   INTEGER NOT NULL,
    work    BLOB NOT NULL,
    issued  INTEGER NOT NULL,
    header  BLOB NOT NULL,
    history BLOB NOT NULL
) STRICT;

-- At most one row: the manifest of the snapshot whose chunks are fetched, in canonical JSON.
CREATE TABLE snapshot_progress (
    row      INTEGER PRIMARY KEY CHECK (row = 1),
    manifest BLOB NOT NULL
) STRICT;

-- The chunks of that snapshot whose accounts are in snapshot_account.
CREATE TABLE snapshot_chunk (
    number INTEGER PRIMARY KEY
) STRICT;

-- Becomes the table account_entry when the snapshot is adopted; all of its rows are of run 1.
CREATE TABLE snapshot_account (
    run     INTEGER NOT NULL,
    key     BLOB NOT NULL,
    balance INTEGER,
    nonce   INTEGER NOT NULL,
    held    INTEGER,
    PRIMARY KEY (run, key)
) STRICT, WITHOUT ROWID;

-- At most one row: the hash of the changes of the producers (docs/protocol.md 8a) by which all canonical blocks have been
-- checked.
CREATE TABLE checked_producers (
    row     INTEGER PRIMARY KEY CHECK (row = 1),
    changes BLOB NOT NULL
) STRICT;

-- Transfers of undone blocks, until the mempool's own file has them.
CREATE TABLE disconnected_transfer (
    number INTEGER PRIMARY KEY,
    txid   BLOB NOT NULL UNIQUE,
    body   BLOB NOT NULL
) STRICT;
