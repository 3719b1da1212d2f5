"""Pages looked at in light and dark, on a desk and on the smallest phone."""

from importlib.resources import files

from playwright.sync_api import Page

from tests.browser.watching import overflow

AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
RUN = """
axe.run({ resultTypes: ["violations"] }).then(({ violations }) => violations.map((each) =>
  [each.id, each.impact, ...each.nodes.map(({ html }) => html.slice(0, 120))].join(" ")))
"""
LOOKS = [(scheme, width) for scheme in ("light", "dark") for width in (1280, 320)]


class Eyes:
    """Axe, and whether anything sticks out, in every look."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self.found: list[str] = []

    def look(self, what: str) -> None:
        """Look at what is shown now."""
        # Through the debugger, which the pages' policy does not bind: the policy itself stays as it is.
        self._session.send("Runtime.evaluate", {"expression": AXE})
        for scheme, width in LOOKS:
            self._page.set_viewport_size({"width": width, "height": 800})
            self._page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            answer = self._session.send(
                "Runtime.evaluate", {"expression": RUN, "awaitPromise": True, "returnByValue": True}
            )
            said = answer["result"]["value"]
            if beyond := overflow(self._page):
                said = [*said, f"{beyond} px too wide"]
            self.found += [f"{what} ({scheme}, {width}): {each}" for each in said]
