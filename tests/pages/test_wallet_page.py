"""The wallet page: its scripts, its HTML and tests/wallet-page.md agree."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
STATIC = ROOT / "svcd" / "pages" / "static"
HTML = (ROOT / "svcd" / "pages" / "wallet.html").read_text("utf-8")
PAGE = (ROOT / "tests" / "wallet-page.md").read_text("utf-8")
IMPORTED = re.compile(r'from "\./([a-z0-9-]+\.mjs)"')


def modules() -> dict[str, str]:
    """The wallet's scripts by name: wallet.mjs and everything it imports."""
    found: dict[str, str] = {}
    waiting = ["wallet.mjs"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (STATIC / name).read_text("utf-8")
            waiting += IMPORTED.findall(found[name])
    return found


SCRIPTS = "\n".join(modules().values())
IDS = re.findall(r' id="([^"]+)"', HTML)
VIEWS = set(re.findall(r'<section data-view="([^"]+)"', HTML))


def rows(heading: str) -> list[list[str]]:
    """The rows of the table in tests/wallet-page.md whose header begins with ``heading``."""
    table = PAGE.split(f"| {heading} |", 1)[1].split("\n\n", 1)[0]
    return [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| `")]


def test_ids_are_unique() -> None:
    assert len(IDS) == len(set(IDS))


def test_elements_that_scripts_look_up_exist() -> None:
    asked = set(re.findall(r'byId\("([^"]+)"[,)]', SCRIPTS))
    assert len(asked) > 50
    assert asked <= set(IDS)


def test_every_view_is_used_and_documented() -> None:
    shown = set(re.findall(r'\bshow\("([^"]+)"\)', SCRIPTS))
    assert shown | {"loading"} == VIEWS
    assert {row[0].strip("`") for row in rows("view")} == VIEWS


def test_every_documented_hook_exists() -> None:
    told = set(re.findall("`([a-z0-9-]+)`", " ".join(row[-1] for row in rows("view"))))
    assert {hook for hook in told if not hook.startswith("data-")} <= set(IDS)


def test_every_label_and_description_resolves() -> None:
    led = " ".join(re.findall(r' (?:for|aria-describedby|aria-labelledby)="([^"]+)"', HTML)).split()
    assert set(led) <= set(IDS)


def test_every_qr_text_a_fault_is_told_of_and_no_other() -> None:
    made = set(re.findall(r'new Problem\(\s*"([a-z0-9-]+)"', SCRIPTS))
    made |= {code for _, code in re.findall(r'(?<!function )\bmust\((?s:(.*?)),\s*"([a-z0-9-]+)",', SCRIPTS)}
    made |= {"internal", "node-unreachable", "damaged-keyfile"}
    told = set(re.findall("`([a-z0-9-]+)`", " ".join(row[0] for row in rows("code"))))
    assert told == made


def test_scripts_neither_parse_html_nor_leave_the_origin() -> None:
    for name, script in modules().items():
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage"):
            assert forbidden not in script, name
        assert not re.search(r"https?://(?!localhost)", script), name


def test_the_page_has_nothing_inline() -> None:
    data = '<script type="application/json" id="link-policy">'
    assert re.findall("<script[^>]*>", HTML) == ['<script type="module" src="/static/wallet.mjs">', data]
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|https?://", HTML)


def test_no_module_is_longer_than_400_lines() -> None:
    assert all(script.count("\n") <= 400 for script in modules().values())
