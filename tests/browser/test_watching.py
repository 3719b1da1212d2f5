"""Those who watch see what they are there for."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Browser

from tests.browser.looks import Eyes
from tests.browser.watching import Watched
from tests.process_level.running import RunningNode

pytestmark = [pytest.mark.socket, pytest.mark.slow]


def complain(watched: Watched) -> None:
    watched.go("/").evaluate("console.error('hm')")


def come_alive(watched: Watched) -> None:
    watched.go("/").evaluate("alert(1)")


def ask_elsewhere(watched: Watched) -> None:
    watched.context.route("http://evil.example/", lambda route: route.fulfill(body="hm"))
    watched.page().goto("http://evil.example/")


def fail(watched: Watched) -> None:
    page = watched.go("/")
    with page.expect_event("pageerror"):
        page.evaluate("setTimeout(() => { throw new Error('hm'); })")


@pytest.mark.parametrize(
    ("deed", "noticed"),
    [
        (complain, "complained: .*hm"),
        (come_alive, "alive: .*alert"),
        (ask_elsewhere, "elsewhere: .*evil"),
        (fail, "complained: .*hm"),
    ],
)
def test_violations_by_a_page_are_detected(
    browser: Browser, node: RunningNode, deed: Callable[[Watched], None], noticed: str
) -> None:
    watched = Watched(browser.new_context(), node.url)
    deed(watched)
    with pytest.raises(AssertionError, match=noticed):
        watched.close()


def test_axe_sees_what_people_cannot_read(watched: Watched) -> None:
    page = watched.go("/")
    eyes = Eyes(page)
    eyes.look("as it is")
    assert eyes.found == []
    page.evaluate("""() => {
      const dim = document.createElement("p");
      dim.textContent = "hardly there";
      dim.style.color = "rgb(128 128 128 / 20%)";
      dim.style.width = "1500px";
      document.querySelector("main").append(dim, document.createElement("input"));
    }""")
    eyes.look("spoilt")
    for scheme, width in (("light", 1280), ("dark", 320)):
        found = [each for each in eyes.found if f"({scheme}, {width})" in each]
        assert {each.split(": ")[1].split()[0] for each in found} >= {"color-contrast", "label"}, found
    assert any("px too wide" in each for each in eyes.found)
