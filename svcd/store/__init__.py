"""The SQLite databases; all SQL is here, behind methods named by intention."""
