"""The wallet's page as a person uses it, by the names of tests/wallet-page.md."""

from pathlib import Path

from attrs import define
from playwright.sync_api import Page

from tests.browser.chain import PASSWORD, wallet_path
from tests.browser.watching import Watched, wait_for_true

_CHECKED = "/^Checked against the chain: [0-5] seconds? ago/.test(document.getElementById('home-checked').textContent)"


@define
class WalletPage:
    """One tab with the wallet."""

    watched: Watched
    page: Page

    @classmethod
    def opened(cls, watched: Watched, path: str = "/wallet/") -> "WalletPage":
        """A new tab."""
        return cls(watched, watched.go(path))

    def go(self, path: str) -> None:
        """Open a path in this tab, as somebody does who follows a link."""
        self.watched.go(path, self.page)

    def follow(self, uri: str) -> None:
        """Open a payment link, and unlock."""
        self.go(wallet_path(uri))
        self.unlock()

    def view(self, name: str) -> None:
        """Wait for a view."""
        self.page.wait_for_selector(f"body[data-view={name}]")

    def tell(self, selector: str) -> str:
        """The text of an element."""
        return self.page.inner_text(selector).replace("\N{NO-BREAK SPACE}", " ")

    def shown(self, selector: str) -> str:
        """An amount, without its unit."""
        return str(self.page.get_attribute(selector, "data-shown"))

    def error(self, code: str) -> str:
        """Wait for an error to be seen; its sentence."""
        sentence = self.page.wait_for_selector(f"[data-error={code}]").inner_text().replace("\N{NO-BREAK SPACE}", " ")
        assert sentence.endswith((".", "”.")), sentence
        return sentence

    def state(self, state: str, **data: object) -> None:
        """Wait for a payment to have come so far."""
        more = "".join(f'[data-{name}="{value}"]' for name, value in data.items())
        self.page.wait_for_selector(f"#payment-state[data-state={state}]{more}")

    def may_sign(self) -> None:
        """Wait until the review is done and the button can be pressed."""
        self.view("review")
        self.page.wait_for_selector("#sign:not([disabled])")

    def navigate(self, name: str) -> None:
        """Go to a view by the navigation."""
        self.page.click(f"#navigation >> text={name}")
        self.view({"Wallet": "home"}.get(name, name.lower()))

    def unlock(self, password: str = PASSWORD) -> None:
        """Type the password."""
        self.view("unlock")
        self.page.fill("#unlock-password", password)
        self.page.press("#unlock-password", "Enter")

    def choose_password(self) -> None:
        """Type a new one, twice."""
        self.view("password")
        self.page.fill("#new-password", PASSWORD)
        self.page.fill("#new-password-again", PASSWORD)
        self.page.press("#new-password-again", "Enter")
        self.view("keyfile")

    def answer_quiz(self, words: list[str]) -> None:
        """Type the words that are asked for."""
        self.view("quiz")
        for number in (1, 2, 3):
            place = int(self.page.get_attribute(f"#quiz-{number}", "data-place") or 0)
            self.page.fill(f"#quiz-{number}", words[place - 1])
        self.page.click("#quiz-done")

    def words(self) -> list[str]:
        """The words that are shown."""
        self.view("words")
        return self.page.locator("#words li").all_inner_texts()

    def download(self, button: str, to: Path) -> bytes:
        """Press a button that downloads; what came."""
        with self.page.expect_download() as download:
            self.page.click(button)
        download.value.save_as(to)
        return to.read_bytes()

    def checked(self) -> None:
        """Wait until the balance was checked in the last seconds: for some more, the worker asks nothing."""
        wait_for_true(self.page, _CHECKED)

    def bring(self, keyfile: Path) -> None:
        """Open a keyfile."""
        if self.page.evaluate("document.body.dataset.view") != "import":
            self.view("welcome")
            self.page.click("#import-start")
        self.view("import")
        self.page.set_input_files("#import-file", keyfile)
        self.page.fill("#import-password", PASSWORD)
        self.page.click("#import-file-done")
