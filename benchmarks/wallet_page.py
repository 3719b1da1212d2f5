"""How long a browser needs on a slow line until a person can use the wallet, and what it loads for that."""

import shutil
import time
from pathlib import Path
from typing import Any, Final

from attrs import define, field, frozen
from playwright.sync_api import BrowserContext, sync_playwright

from benchmarks.figures import Goal, Rounds, Row
from benchmarks.processes import node
from benchmarks.program import main

ROUND_TRIP: Final = 300.0
"""Milliseconds."""
BITS_PER_SECOND: Final = 400_000
GOAL: Final = 2.5
"""Seconds."""
_USABLE: Final = "body:not([data-view=loading])"
_FULL: Final = 5
_QUICK: Final = 1
_ARGUMENTS: Final = ("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking")


@frozen
class Visit:
    """What one visit of the wallet took."""

    seconds: float
    """Until something other than the loading view was shown."""
    requests: list[str]
    """The paths that the node was asked for."""
    bytes: int
    """What came over the line, with the headers."""


# Playwright notes its own things in objects whose methods it calls.
@define(slots=False)
class _Traffic:
    """What the browser's developer tools tell of the requests of a page."""

    paths: dict[str, str] = field(factory=dict)
    sizes: dict[str, int] = field(factory=dict)

    def begun(self, told: dict[str, Any]) -> None:
        self.paths[told["requestId"]] = told["request"]["url"]

    def received(self, told: dict[str, Any]) -> None:
        if told["response"].get("fromDiskCache"):
            self.from_cache(told)

    def from_cache(self, told: dict[str, Any]) -> None:
        self.paths.pop(told["requestId"], None)

    def finished(self, told: dict[str, Any]) -> None:
        self.sizes[told["requestId"]] = told["encodedDataLength"]


def visit(context: BrowserContext, url: str, *, path: str = "/wallet/", slow: bool = False) -> Visit:
    """Open wallet or till of the node at ``url`` in a new tab, on a ``slow`` line or without a limit, and close it."""
    page, traffic = context.new_page(), _Traffic()
    tools = context.new_cdp_session(page)
    tools.on("Network.requestWillBeSent", traffic.begun)
    tools.on("Network.requestServedFromCache", traffic.from_cache)
    tools.on("Network.responseReceived", traffic.received)
    tools.on("Network.loadingFinished", traffic.finished)
    tools.send("Network.enable")
    if slow:
        rate = BITS_PER_SECOND / 8
        limits = {"latency": ROUND_TRIP, "downloadThroughput": rate, "uploadThroughput": rate}
        tools.send("Network.emulateNetworkConditions", {"offline": False, **limits})
    began = time.perf_counter()
    page.goto(f"{url}{path}", wait_until="commit")
    page.wait_for_selector(_USABLE)
    seconds = time.perf_counter() - began
    page.wait_for_load_state("networkidle")
    page.close()
    size = sum(traffic.sizes.get(request, 0) for request in traffic.paths)
    return Visit(seconds, [each.removeprefix(url) for each in traffic.paths.values()], size)


def measure(folder: Path, quick: bool) -> list[Row]:
    """The first and a later visit at 400 kbit/s with a round trip of 300 ms, against a line without limits."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("this benchmark needs Chromium: apt install chromium")
    first, later = Rounds(), Rounds()
    with node(folder) as served, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=_ARGUMENTS, timeout=180_000)
        for _ in range(_QUICK if quick else _FULL):
            # A browser context begins with an empty cache.
            with browser.new_context() as slow, browser.new_context() as fast:
                visits = [(visit(slow, served.url, slow=True), visit(fast, served.url)) for _ in range(2)]
            for rounds, (limited, unlimited) in zip((first, later), visits, strict=True):
                rounds.add(limited.seconds, unlimited.seconds)
        browser.close()
    goal = Goal("figure", "<=", GOAL)
    loads = [(name, one) for name, (one, _) in zip(("first", "second"), visits, strict=True)]
    return [
        first.row("first visit of the wallet", unit="s", baseline_is="s, no slow line", goal=goal),
        later.row("second visit of the wallet", unit="s", baseline_is="s, no slow line", goal=goal),
        *(
            Row(
                name=f"load of the {name} visit of the wallet",
                figure=one.bytes,
                unit="bytes",
                baseline=len(one.requests),
                baseline_is="requests",
            )
            for name, one in loads
        ),
    ]


if __name__ == "__main__":
    main(measure)
