"""The disk: SQLite with one writer thread; every SQL statement of the chain stands in chain_store.py."""
