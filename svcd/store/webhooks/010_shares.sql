-- The watches that a block affects are evaluated in shares, with a transaction for each.

-- The height of the tip at the last evaluation that changed the watch; NULL before the first.
ALTER TABLE watch ADD COLUMN evaluated_height INTEGER;

-- For the highest followed block: the height up to which all watches have been evaluated, while some of those that the
-- blocks above it affect have not; NULL if none is left.
ALTER TABLE trail ADD COLUMN evaluated INTEGER;
