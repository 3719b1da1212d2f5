"""The pages of wallet and till: scripts and HTML agree, and tests/wallet-page.md with those of the wallet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "svcd" / "pages" / "static"
PAGE = (ROOT / "tests" / "wallet-page.md").read_text("utf-8")
IMPORTED = re.compile(r'from "\./([a-z0-9-]+\.mjs)"')


def modules(entry: str) -> dict[str, str]:
    """The scripts of a page by name: its own and everything that imports."""
    found: dict[str, str] = {}
    waiting = [entry]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (STATIC / name).read_text("utf-8")
            waiting += IMPORTED.findall(found[name])
    return found


HTML = {name: (ROOT / "svcd" / "pages" / f"{name}.html").read_text("utf-8") for name in ("wallet", "till")}
MODULES = {name: modules(f"{name}.mjs") for name in HTML}
SCRIPTS = {name: "\n".join(found.values()) for name, found in MODULES.items()}
IDS = {name: re.findall(r' id="([^"]+)"', html) for name, html in HTML.items()}
VIEWS = {name: set(re.findall(r'<section data-view="([^"]+)"', html)) for name, html in HTML.items()}
both_pages = pytest.mark.parametrize("page", HTML)


def rows(heading: str) -> list[list[str]]:
    """The rows of the table in tests/wallet-page.md whose header begins with ``heading``."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]


@both_pages
def test_ids_are_unique(page: str) -> None:
    assert len(IDS[page]) == len(set(IDS[page]))


@both_pages
def test_elements_that_scripts_look_up_exist(page: str) -> None:
    asked = set(re.findall(r'(?:byId|field)\("([^"]+)"[,)]', SCRIPTS[page]))
    assert len(asked) > 40
    assert asked <= set(IDS[page])


@both_pages
def test_every_view_is_used(page: str) -> None:
    shown = set(re.findall(r'\bshow\("([^"]+)"\)', SCRIPTS[page]))
    assert shown | {"loading"} == VIEWS[page]


def test_every_view_of_the_wallet_is_documented() -> None:
    assert {row[0].strip("`") for row in rows("view")} == VIEWS["wallet"]


def test_every_documented_hook_exists() -> None:
    told = set(re.findall("`([a-z0-9-]+)`", " ".join(row[-1] for row in rows("view"))))
    assert {hook for hook in told if not hook.startswith("data-")} <= set(IDS["wallet"])


@both_pages
def test_every_label_and_description_resolves(page: str) -> None:
    led = " ".join(re.findall(r' (?:for|aria-describedby|aria-labelledby)="([^"]+)"', HTML[page])).split()
    assert set(led) <= set(IDS[page])


def test_every_qr_text_a_fault_is_told_of_and_no_other() -> None:
    made = set(re.findall(r'new Problem\(\s*"([a-z0-9-]+)"', SCRIPTS["wallet"]))
    made |= {code for _, code in re.findall(r'(?<!function )\bmust\((?s:(.*?)),\s*"([a-z0-9-]+)",', SCRIPTS["wallet"])}
    made |= {"internal", "node-unreachable", "damaged-keyfile"}
    told = set(re.findall("`([a-z0-9-]+)`", " ".join(row[0] for row in rows("code"))))
    assert told == made


@both_pages
def test_scripts_neither_parse_html_nor_leave_the_origin(page: str) -> None:
    for name, script in MODULES[page].items():
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"):
            assert forbidden not in script, name
        assert not re.search(r"https?://(?!localhost)", script), name


@both_pages
def test_the_page_has_nothing_inline(page: str) -> None:
    data = '<script type="application/json" id="site-data">'
    assert re.findall("<script[^>]*>", HTML[page]) == [f'<script type="module" src="/static/{page}.mjs">', data]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|https?://", HTML[page])


@both_pages
def test_no_module_is_longer_than_400_lines(page: str) -> None:
    assert all(script.count("\n") <= 400 for script in MODULES[page].values())
