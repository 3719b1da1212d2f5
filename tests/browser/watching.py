"""A browser that is watched: where it asks, what it complains of, and whether something on a page comes alive."""

import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from attrs import define, field
from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Page, Request, WebError

from tests.process_level.running import wait_until

DEADLINE = 90_000.0
"""Milliseconds after which something that a test waits for on a page will not come any more."""

# A transfer that no block holds is 404 (tests/wallet-page.md), and Chromium notes every 404 in the console.
_NOT_YET = re.compile(r"/rpc/transaction/[0-9a-f]{64}$")
_MISSING = "Failed to load resource: the server responded with a status of 404 (Not Found)"


# Playwright notes its own things in objects whose methods it calls.
@define(slots=False)
class Watched:
    """One person's browser on one node."""

    context: BrowserContext
    origin: str
    """Where the node is, and nothing else may be asked."""
    others: set[str] = field(factory=set)
    """Origins that a test itself leads the browser to."""
    elsewhere: list[str] = field(factory=list)
    complaints: list[str] = field(factory=list)
    forgiven: list[str] = field(factory=list)
    """Patterns of complaints that are no reason to fail."""
    alive: list[str] = field(factory=list)
    asked: list[str] = field(factory=list)
    """Method and path of every request."""

    def __attrs_post_init__(self) -> None:
        self.context.set_default_timeout(DEADLINE)
        self.context.on("request", self._request)
        self.context.on("console", self._console)
        self.context.on("weberror", self._error)
        self.context.on("dialog", self._dialog)

    def page(self) -> Page:
        """A new tab."""
        return self.context.new_page()

    def go(self, path: str, page: Page | None = None) -> Page:
        """Open a path of the node in a tab, a new one where none is given."""
        page = page or self.page()
        page.goto(self.origin + path)
        return page

    def forgive(self, pattern: str) -> None:
        """Complaints of the browser like this one are no reason to fail; there must be one by now, or soon be.

        What causes one complaint may cause more, and those may come later.
        """
        wait_until(lambda: self._complains(pattern), f"something to forgive for {pattern!r} in {self.complaints}")
        self.forgiven.append(pattern)

    def _complains(self, pattern: str) -> bool:
        """Whether the browser has complained of something like this by now."""
        # Playwright hears of it only while it waits for something of its own.
        self.context.pages[-1].wait_for_timeout(1)
        return any(re.search(pattern, each) for each in self.complaints)

    def answers(self, pattern: str, change: Callable[[Any], None]) -> None:
        """From now on the node's answers to paths like this one arrive changed."""

        def changed(route: Any) -> None:
            response = route.fetch()
            body = response.json()
            change(body)
            route.fulfill(response=response, json=body)

        self.context.route(pattern, changed)

    def close(self) -> None:
        """End it, and fail for whatever it was seen to do that it must not."""
        self.context.unroute_all(behavior="ignoreErrors")
        self.context.close()
        assert self.elsewhere == [], f"something was asked elsewhere: {self.elsewhere}"
        assert self.alive == [], f"something on a page came alive: {self.alive}"
        complaints = [each for each in self.complaints if not any(re.search(one, each) for one in self.forgiven)]
        assert complaints == [], f"the browser complained: {complaints}"

    def _request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme in ("data", "blob"):
            return
        origin = f"{url.scheme}://{url.netloc}"
        self.asked.append(f"{request.method} {url.path}")
        if origin != self.origin and origin not in self.others:
            self.elsewhere.append(request.url)

    def _console(self, message: ConsoleMessage) -> None:
        where = urlsplit(message.location["url"]).path
        if message.type not in ("error", "warning"):
            return
        if message.text == _MISSING and _NOT_YET.search(where):
            return
        self.complaints.append(f"{message.type}: {message.text} ({where})")

    def _error(self, error: WebError) -> None:
        self.complaints.append(f"error: {error.error}")

    def _dialog(self, dialog: Dialog) -> None:
        self.alive.append(f"{dialog.type}: {dialog.message}")
        dialog.dismiss()


def wait_for_true(page: Page, expression: str, arg: object = None) -> None:
    """Wait until a JavaScript expression is true on the page.

    `Page.wait_for_function` polls inside the page with `eval`, which the Content-Security-Policy of our pages forbids:
    it works only if the expression is true at the first look.
    """
    # `wait_for_timeout`, not `sleep`: the page's events reach the test only while Playwright waits.
    wait_until(lambda: page.evaluate(expression, arg) or page.wait_for_timeout(20) is not None, expression)


def overflow(page: Page) -> int:
    """By how many pixels the page is wider than its window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))
