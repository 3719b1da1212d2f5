-- From here on the bodies of transfers in block_transaction may be packed (svcd/store/packed_transfer.py). No table changes,
-- but a program that knows only older schemas could not read them.
SELECT 1;
