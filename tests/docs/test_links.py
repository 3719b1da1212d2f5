"""Every link of a page to a section of another page leads to a heading, as GitHub names it."""

import re
from functools import cache
from pathlib import Path

import pytest

from tests.process_level.pages import ROOT

PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("tests/*.md"), *ROOT.glob("*/*/README.md")]
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


@cache
def sections(page: Path) -> frozenset[str]:
    """The names of the headings of a page, as links have them."""
    headings = re.findall(r"^#+ (.*)$", _FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    texts = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return frozenset(re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-") for text in texts)


def test_a_heading_has_the_name_that_github_gives_it() -> None:
    assert {"commercewebhooks", "before-the-first-section"} <= sections(ROOT / "docs" / "settings.md")


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_sections_lead_to_a_heading(page: Path) -> None:
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    for target, section in re.findall(r"\]\((?!https?://)([^)#\s]*)#([^)\s]+)\)", text):
        other = (page.parent / target).resolve() if target else page
        assert other.suffix != ".md" or section in sections(other), f"{target}#{section}"


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_has_the_marks_of_a_merge(page: Path) -> None:
    assert not re.search(r"^(<{7}|>{7}) ", page.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_line_of_a_formula_begins_a_list_or_a_quotation(page: Path) -> None:
    """Lists have hyphens, and no page quotes: where a line was broken before a sign, the reader would miss it."""
    text = _FENCED.sub("", page.read_text(encoding="utf-8"))
    assert re.findall(r"^ {0,3}[>+*] .*$", text, re.MULTILINE) == []
