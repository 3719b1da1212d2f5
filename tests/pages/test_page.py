"""docs/pages.md lists the pages, headers and limits of the code."""

import re
from pathlib import Path

from svcd.config.loader import load
from svcd.pages import (
    checkout,
    explorer,
    mempool_page,
    overview,
    proof_page,
    qr,
    recent_blocks,
    reference,
    search,
    static_files,
    tables,
)
from svcd.pages.routes import SECURITY_HEADERS
from svcd.web.routes import routes_of
from tests.pages.conftest import Shown
from tests.process_level.pages import blocks_in

PAGE = (Path(__file__).parents[2] / "docs" / "pages.md").read_text(encoding="utf-8")
PROSE = " ".join(PAGE.split())
ROWS = re.findall(r"^\| `([^`]+)`(?:, `([^`]+)`)*", PAGE, re.MULTILINE)


def test_the_table_names_every_page(still: Shown) -> None:
    named = {re.sub(r"\?.*|\{.*", "", row[0]) for row in ROWS if row[0].startswith("/")}
    declared = {
        route.path
        for module in (checkout, explorer, mempool_page, overview, proof_page, qr, reference, search, static_files)
        for each in vars(module).values()
        if isinstance(each, type) and each.__module__ == module.__name__
        for route, _ in routes_of(object.__new__(each))
    }
    assert named == {re.sub(r"\{.*", "", path) for path in declared}


def test_the_table_names_every_header_and_its_value() -> None:
    section = " ".join(PAGE.partition("### Headers")[2].partition("### ")[0].split())
    for name, value in SECURITY_HEADERS:
        described = name in (b"Content-Security-Policy", b"Permissions-Policy")
        assert f"`{name.decode()}`" in section if described else f"`{name.decode()}: {value.decode()}`" in section


def test_the_example_of_a_site_that_knows_its_links_is_a_configuration(tmp_path: Path) -> None:
    (example,) = (block.text for block in blocks_in(PAGE, "toml"))
    (tmp_path / "svcd.toml").write_text(example, encoding="utf-8")
    policy = load(tmp_path / "svcd.toml").pages
    assert (len(policy.recipients), len(policy.return_hosts), policy.only) == (1, 1, False)


def test_the_numbers_match_the_code() -> None:
    assert f"No list is longer than {tables.PAGE_SIZE} rows" in PROSE
    assert tables.PAGE_SIZE == reference.PAYMENTS
    assert f"more than {recent_blocks.SHOWN} blocks" in PROSE
    assert f"more than {qr.MAX_CHARACTERS} characters" in PROSE
    assert f"every {checkout.REFRESH_SECONDS} seconds" in PROSE
