"""pretix's own settings for tests, with a database that has several connections, because the node posts its events while a
test works: SQLite in a file, or PostgreSQL if PRETIX_DATABASE_BACKEND and its companions say so."""

import os

from pretix.testutils.settings import *  # NOQA
from pretix.testutils.settings import DATA_DIR, DATABASES

if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": os.path.join(DATA_DIR, "test.sqlite3")}
    DATABASES["default"]["OPTIONS"] = {
        "timeout": 60, "transaction_mode": "IMMEDIATE", "init_command": "PRAGMA journal_mode=WAL",
    }
ALLOW_HTTP_TO_PRIVATE_NETWORKS = True  # NOQA: the node is on this computer.
