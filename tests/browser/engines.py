"""One tab in each of the three browser engines, behind one small interface.

Playwright drives Chromium. Of the other two it drives only the newest Firefox and its own build of WebKit, while these
tests use Debian's: Firefox speaks WebDriver BiDi, WebKitGTK has a driver for WebDriver.
"""

import json
import os
import re
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpx
import pytest
import websocket
from playwright.sync_api import Error as PlaywrightError
from playwright.sync_api import Page

from tests.browser.chain import PASSWORD
from tests.process_level.running import ENVIRONMENT, free_port, wait_until
from tests.programs import needs, program

STEP_SECONDS: Final = 60.0
"""Time for one step of a story, on a machine that is busy, too."""
STORY_SECONDS: Final = 300.0
"""Time for all steps of a tab, and for the start of its browser."""
ENTER: Final = "\ue007"
"""The Enter key, as WebDriver writes it."""

# An element that a person can see, and click: it is enabled, and nothing lies above its centre.
_VISIBLE: Final = "const visible = [...document.querySelectorAll(selector)].filter((each) => each.checkVisibility());"
_CLICKABLE: Final = f"""(selector) => {{
  {_VISIBLE}
  const [element] = visible;
  if (element === undefined || element.matches(":disabled")) return null;
  element.scrollIntoView({{ block: "center", behavior: "instant" }});
  const {{ left, top, width, height }} = element.getBoundingClientRect();
  const hit = document.elementFromPoint(left + width / 2, top + height / 2);
  return hit !== null && element.contains(hit) ? element : null;
}}"""
_TEXTS: Final = f"(selector) => {{ {_VISIBLE} return visible.map((each) => each.innerText); }}"
_ATTRIBUTE: Final = "(selector, name) => document.querySelector(selector)?.getAttribute(name) ?? null"


class NotYet(Exception):
    """The browser cannot answer at present, such as while it goes from one page to the next."""


class Tab(ABC):
    """A tab of somebody who was never here. Selectors are those of CSS, and mean what is visible."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.forgiven: list[str] = []
        """Patterns of complaints that are no reason to fail."""
        self._ends_at = time.monotonic() + STORY_SECONDS

    @abstractmethod
    def open(self, url: str) -> None:
        """Load a page, and wait until it is loaded."""

    @abstractmethod
    def reload(self) -> None:
        """Load the same page again, and wait until it is loaded."""

    @abstractmethod
    def evaluate(self, function: str, *arguments: str) -> Any:
        """What a JavaScript function gives in the page; raises NotYet."""

    @abstractmethod
    def press(self, selector: str) -> None:
        """Press the main mouse button on an element that can be clicked; raises NotYet."""

    @abstractmethod
    def keys(self, text: str) -> None:
        """Press the keys of a text, wherever the focus is."""

    def go(self, path: str) -> None:
        """Open a path of the node."""
        self.open(self.origin + path)

    def see(self, selector: str) -> None:
        """Wait until an element is visible."""
        self.until(lambda: self.texts(selector), f"{selector} is visible")

    def click(self, selector: str) -> None:
        """Click an element, once that is possible."""

        def clicked() -> bool:
            if not self.evaluate(f"(selector) => ({_CLICKABLE})(selector) !== null", selector):
                return False
            self.press(selector)
            return True

        self.until(clicked, f"{selector} can be clicked")

    def type(self, selector: str, text: str, *, enter: bool = False) -> None:
        """Click an empty field, and type."""
        self.click(selector)
        self.keys(text + ENTER * enter)

    def text(self, selector: str) -> str:
        """The text of an element, once it is visible and has one."""
        found: list[str] = []

        def has_text() -> bool:
            found[:] = [each for each in self.texts(selector) if each]
            return bool(found)

        self.until(has_text, f"{selector} has a text")
        return found[0]

    def texts(self, selector: str) -> list[str]:
        """The texts of the elements that are visible now; raises NotYet."""
        return list(self.evaluate(_TEXTS, selector))

    def attribute(self, selector: str, name: str) -> str:
        """An attribute of an element."""
        return str(self.evaluate(_ATTRIBUTE, selector, name))

    def complaints(self) -> list[str]:
        """Errors and warnings of the pages, and requests to other hosts, as far as the engine tells them."""
        return []

    def until(self, condition: Callable[[], object], what: str) -> None:
        """Wait until a condition holds; while it raises NotYet, it does not."""
        last = "nothing"

        def holds() -> bool:
            nonlocal last
            try:
                return bool(condition())
            except NotYet as reason:
                last = str(reason)
                return False

        try:
            wait_until(holds, what, seconds=min(STEP_SECONDS, self._ends_at - time.monotonic()))
        except AssertionError as late:
            raise AssertionError(f"{late}; the last error was {last}; {self._page()}") from None

    def _page(self) -> str:
        try:
            return str(self.evaluate("() => `the page is ${location.href}: ${document.body.innerText}`"))
        except NotYet as reason:
            return f"no page can be told: {reason}"


CHROMIUM: Final = pytest.param("chromium", marks=needs("chromium"))
in_one_engine = pytest.mark.parametrize("tab", [CHROMIUM], indirect=True)
"""For what does not depend on the engine: which proofs convince, and what a wallet says of the others."""
CHECKED: Final = re.compile(r"Checked against the chain: (\d+) (?:second|minute)s? ago\.")


def unlock(tab: Tab) -> None:
    """Type the password."""
    tab.type("#unlock-password", PASSWORD, enter=True)


def make_wallet(tab: Tab) -> str:
    """Make a wallet from words; its address."""
    tab.go("/wallet/")
    tab.click("#create-start")
    tab.see("#words li:nth-child(24)")
    words = tab.texts("#words li")
    tab.click("#words-done")
    for number in (1, 2, 3):
        tab.see(f"#quiz-{number}")
        place = int(tab.attribute(f"#quiz-{number}", "data-place"))
        tab.type(f"#quiz-{number}", words[place - 1])
    tab.click("#quiz-done")
    tab.type("#new-password", PASSWORD)
    tab.type("#new-password-again", PASSWORD, enter=True)
    tab.click("#keyfile-done")
    tab.click('#navigation a[href="#receive"]')
    return tab.text("#receive-address")


def checked(tab: Tab) -> None:
    """Wait until the wallet says that it has checked the balance."""
    tab.until(lambda: any(CHECKED.fullmatch(each) for each in tab.texts("#home-checked")), "the balance is checked")
    assert tab.texts("#home-unproved") == []


class ChromiumTab(Tab):
    """A tab of Chromium, driven by Playwright over the Chrome DevTools Protocol."""

    def __init__(self, page: Page, origin: str) -> None:
        super().__init__(origin)
        self._tab = page

    def open(self, url: str) -> None:
        self._tab.goto(url)

    def reload(self) -> None:
        self._tab.reload()

    def evaluate(self, function: str, *arguments: str) -> Any:
        try:
            return self._tab.evaluate(f"(given) => ({function})(...given)", list(arguments))
        except PlaywrightError as error:
            raise NotYet(str(error)) from error

    def press(self, selector: str) -> None:
        # The click returns once the next page has begun to load: after a shorter timeout it would be repeated there.
        self._tab.locator(selector).filter(visible=True).first.click(timeout=STEP_SECONDS * 1_000)

    def keys(self, text: str) -> None:
        self._tab.keyboard.type(text.removesuffix(ENTER))
        if text.endswith(ENTER):
            self._tab.keyboard.press("Enter")


class FirefoxTab(Tab):
    """A tab of Firefox, driven over WebDriver BiDi (W3C)."""

    def __init__(self, connection: websocket.WebSocket, origin: str) -> None:
        super().__init__(origin)
        self._connection = connection
        self._sent = 0
        self._complaints: list[str] = []
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded", "network.beforeRequestSent"])
        self._context = self._ask("browsingContext.create", type="tab")["context"]
        self._ask("browsingContext.setViewport", context=self._context, viewport={"width": 1280, "height": 900})

    def open(self, url: str) -> None:
        self._ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def reload(self) -> None:
        self._ask("browsingContext.reload", context=self._context, wait="complete")

    def evaluate(self, function: str, *arguments: str) -> Any:
        # As JSON, which is easier to read than the values of BiDi.
        return json.loads(self._call(f"(...given) => JSON.stringify(({function})(...given))", *arguments)["value"])

    def press(self, selector: str) -> None:
        element = self._call(_CLICKABLE, selector)
        if "sharedId" not in element:
            raise NotYet(f"{selector} cannot be clicked any more")
        origin = {"type": "element", "element": {"sharedId": element["sharedId"]}}
        moves = [
            {"type": "pointerMove", "x": 0, "y": 0, "origin": origin},
            {"type": "pointerDown", "button": 0},
            {"type": "pointerUp", "button": 0},
        ]
        self._perform({"type": "pointer", "id": "mouse", "actions": moves})

    def keys(self, text: str) -> None:
        strokes = [{"type": kind, "value": key} for key in text for kind in ("keyDown", "keyUp")]
        self._perform({"type": "key", "id": "keyboard", "actions": strokes})

    def complaints(self) -> list[str]:
        # Everything before the answer has arrived then.
        self._ask("session.status")
        return self._complaints

    def _perform(self, actions: dict[str, Any]) -> None:
        self._ask("input.performActions", context=self._context, actions=[actions])

    def _call(self, function: str, *arguments: str) -> Any:
        """The value of a function, as BiDi writes it."""
        answer = self._ask(
            "script.callFunction",
            functionDeclaration=function,
            arguments=[{"type": "string", "value": each} for each in arguments],
            target={"context": self._context},
            awaitPromise=False,
        )
        if answer["type"] == "exception":
            raise NotYet(answer["exceptionDetails"]["text"])
        return answer["result"]

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._sent += 1
        self._connection.send(json.dumps({"id": self._sent, "method": method, "params": parameters}))
        while True:
            message = json.loads(self._connection.recv())
            if message.get("id") == self._sent:
                break
            if message["type"] == "event":
                self._note(message["method"], message["params"])
        if message["type"] == "error":
            raise NotYet(f"{method}: {message['error']}: {message['message']}")
        return message["result"]

    def _note(self, event: str, about: Any) -> None:
        if event == "log.entryAdded" and about["level"] in ("error", "warn"):
            self._complaints.append(f"{about['level']}: {about['text']}")
        if event == "network.beforeRequestSent" and about["context"] == self._context:
            url = urlsplit(about["request"]["url"])
            if url.scheme in ("http", "https") and f"{url.scheme}://{url.netloc}" != self.origin:
                self._complaints.append(f"something was asked elsewhere: {url.geturl()}")


class WebKitTab(Tab):
    """A tab of WebKitGTK, driven over WebDriver (W3C), which tells nothing of errors in a page."""

    def __init__(self, driver: httpx.Client, origin: str) -> None:
        super().__init__(origin)
        self._driver = driver
        self._session = ""
        self._session = f"/session/{self._ask('/session', capabilities={})['sessionId']}"
        self._ask("/window/rect", width=1280, height=900)

    def open(self, url: str) -> None:
        self._ask("/url", url=url)

    def reload(self) -> None:
        self._ask("/refresh")

    def evaluate(self, function: str, *arguments: str) -> Any:
        return self._ask("/execute/sync", script=f"return ({function})(...arguments)", args=arguments)

    def press(self, selector: str) -> None:
        self._ask(f"/element/{self._element(_CLICKABLE, selector)}/click")

    def keys(self, text: str) -> None:
        focused = self._element("() => document.activeElement")
        self._ask(f"/element/{focused}/value", text=text)

    def end(self) -> None:
        """Close the browser."""
        self._driver.delete(self._session)

    def _element(self, function: str, *arguments: str) -> str:
        """The id of the element that a function gives."""
        found = self.evaluate(function, *arguments)
        if found is None:
            raise NotYet(f"there is no such element: {arguments}")
        (identity,) = found.values()
        return str(identity)

    def _ask(self, path: str, **parameters: Any) -> Any:
        value = self._driver.post(self._session + path, json=parameters).json()["value"]
        if isinstance(value, dict) and "error" in value:
            raise NotYet(f"{path}: {value['error']}: {value['message']}")
        return value


# Firefox reads them from `user.js` in its profile: nothing of it calls its makers.
_PREFERENCES: Final = {
    "app.normandy.enabled": False,
    "app.update.disabledForTesting": True,
    "browser.safebrowsing.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "datareporting.policy.dataSubmissionEnabled": False,
    "network.captive-portal-service.enabled": False,
    "network.connectivity-service.enabled": False,
    "network.proxy.type": 0,
    "services.settings.server": "data:,",
    "toolkit.telemetry.server": "",
}


@contextmanager
def firefox(folder: Path, origin: str) -> Iterator[FirefoxTab]:
    """Debian's Firefox, with a profile in `folder`."""
    preferences = [f"user_pref({json.dumps(name)}, {json.dumps(value)});\n" for name, value in _PREFERENCES.items()]
    (folder / "user.js").write_text("".join(preferences), encoding="utf-8")
    options = ("--headless", "--no-remote", "--remote-debugging-port=0", "--profile", folder)
    command = [program("firefox-esr"), *options]
    listens = folder / "WebDriverBiDiServer.json"
    with ExitStack() as stack:
        process = stack.enter_context(_running(command, folder, MOZ_CRASHREPORTER_DISABLE="1"))

        def ready() -> bool:
            assert process.poll() is None, "Firefox has ended: " + (folder / "firefox-esr.log").read_text()
            return listens.exists() and listens.read_text().endswith("}")

        wait_until(ready, "Firefox listens")
        port = json.loads(listens.read_text())["ws_port"]
        url = f"ws://127.0.0.1:{port}/session"
        connection = websocket.create_connection(url, timeout=STEP_SECONDS, suppress_origin=True)
        yield FirefoxTab(stack.enter_context(closing(connection)), origin)


@contextmanager
def webkit(folder: Path, origin: str) -> Iterator[WebKitTab]:
    """Debian's WebKitGTK, on a screen of its own."""
    server, driver = program("Xvfb"), program("WebKitWebDriver")
    with ExitStack() as stack:
        read, write = os.pipe()
        screen = stack.enter_context(open(read, encoding="ascii"))
        command = [server, "-displayfd", str(write), "-screen", "0", "1280x1024x24", "-nolisten", "tcp"]
        try:
            stack.enter_context(_running(command, folder, pass_fds=(write,)))
        finally:
            os.close(write)
        display = screen.readline().strip()
        assert display, "Xvfb has ended: " + (folder / "Xvfb.log").read_text()
        port = free_port()
        stack.enter_context(_running([driver, f"--port={port}"], folder, DISPLAY=f":{display}"))
        url = f"http://127.0.0.1:{port}"
        client = stack.enter_context(httpx.Client(base_url=url, timeout=STEP_SECONDS, trust_env=False))

        def ready() -> bool:
            try:
                return client.get("/status").is_success
            except httpx.TransportError:
                return False

        wait_until(ready, "WebKitWebDriver answers")
        tab = WebKitTab(client, origin)
        stack.callback(tab.end)
        yield tab


@contextmanager
def _running(
    command: Sequence[str | Path], home: Path, pass_fds: tuple[int, ...] = (), **environment: str
) -> "Iterator[subprocess.Popen[bytes]]":
    """A program that is ended afterwards; what it writes goes into a log in `home`."""
    with (home / f"{Path(command[0]).name}.log").open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=home,
            env=ENVIRONMENT | {"HOME": str(home), "XDG_RUNTIME_DIR": str(home)} | environment,
            pass_fds=pass_fds,
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
