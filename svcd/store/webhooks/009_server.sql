-- What tells the PostgreSQL database that the nodes use from its copies; '' before the first node has noted it.
ALTER TABLE lease ADD COLUMN server TEXT NOT NULL DEFAULT '';

-- A digest of what all nodes should have in common in their configuration; NULL if the node tells none.
ALTER TABLE node_report ADD COLUMN settings BLOB;
