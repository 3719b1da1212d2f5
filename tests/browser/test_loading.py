"""What a browser loads for the wallet: few requests and bytes at first, next to nothing later.

On a line of 400 kbit/s with a round trip of 300 ms, ``python -m benchmarks.wallet_page`` measures the time.
"""

import re

import pytest
from playwright.sync_api import Browser

from benchmarks.wallet_page import visit
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]

MAX_BYTES = 60_000
"""Of the first visit, with all headers: 1.2 of the 2.5 seconds that it may take."""
FIRST = [
    "/wallet/",
    "/static/style.css",
    "/static/wallet.css",
    "/static/icon.svg",
    "/static/wallet.mjs",
    "/rpc/status",
    "/rpc/consensus",
]
LATER = ["/wallet/", "/rpc/status", "/rpc/consensus"]


def test_the_wallet_loads_in_few_requests(browser: Browser, node: RunningNode) -> None:
    with browser.new_context() as context:
        first, later = visit(context, node.url), visit(context, node.url)
    assert sorted(re.sub(r"\.[0-9a-f]{16}\.", ".", path) for path in first.requests) == sorted(FIRST)
    assert first.bytes <= MAX_BYTES
    assert sorted(later.requests) == sorted(LATER)
    assert 0 < later.bytes <= first.bytes / 4
