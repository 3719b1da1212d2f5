"""How the API reference is served; tests/browser/test_reference.py looks at it in browsers."""

import re

import pytest

from svcd.pages.routes import sandbox
from svcd.pages.static_files import SANDBOXED
from tests.pages.conftest import Shown
from tests.process_level.pages import ROOT

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src {asks}; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "sandbox allow-scripts allow-popups allow-popups-to-escape-sandbox allow-downloads"
)


def test_the_page_is_in_a_sandbox(still: Shown) -> None:
    response = still.ask("/reference/", Accept_Language="de")
    headers = response.headers
    assert (response.status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    named = "'self' http://localhost https://localhost"
    assert headers["content-security-policy"] == POLICY.format(asks=named)
    # Browsers may refuse a sandbox with another one.
    assert headers["cross-origin-opener-policy"] == "unsafe-none"
    assert headers["cross-origin-embedder-policy"] == "require-corp"
    assert (headers["x-frame-options"], headers["referrer-policy"]) == ("DENY", "no-referrer")
    assert (headers["cache-control"], headers["vary"]) == ("no-cache", "Accept-Encoding")
    again = still.ask("/reference/", If_None_Match=headers["etag"])
    assert (again.status, again.body) == (304, b"")


@pytest.mark.parametrize("host", ["a.example;script-src *", "[::1]:8645", "a.example, b.example"])
def test_a_host_that_a_policy_cannot_name_is_not_in_it(host: str) -> None:
    assert sandbox(host.encode()) == (b"Content-Security-Policy", POLICY.format(asks="'self'").encode())


def test_a_sandbox_may_load_its_files_alone(still: Shown) -> None:
    loaded = {re.sub(r"\.[0-9a-f]{16}\.", ".", each) for each in still.see("/reference/").loads}
    assert loaded == {f"/static/{name}" for name in SANDBOXED}
    for name in SANDBOXED:
        assert still.ask(f"/static/{name}").headers["cross-origin-resource-policy"] == "cross-origin"
    assert still.ask("/static/wallet.mjs").headers["cross-origin-resource-policy"] == "same-origin"


def test_the_licences_of_the_renderer_are_where_its_first_line_says(still: Shown) -> None:
    first = still.ask("/static/swagger-ui-bundle.js").body.split(b"\n")[0].decode()
    text = still.ask(f"/static/{first.split()[-2]}").body.decode()
    assert "Apache License" in text
    assert "MIT License" in text
    assert "swagger-ui-dist 5.35.0" in text


def test_paths_beside_it_keep_their_status(still: Shown) -> None:
    assert "Payments under a reference" in still.see("/reference/order-1").title
    for target in ("/reference//", "/reference/order-1/", "/reference/a/b", "/Reference/"):
        assert still.ask(target).status == 404, target
    assert still.ask("/reference/%2F").status == 400


@pytest.mark.parametrize("page", ["README.md", "docs/http.md", "docs/pages.md"])
def test_documentation_links_to_it(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    assert "`/reference/`" in text
    assert re.search(r"\]\((docs/)?(pages\.md)?#api-reference\)", text)


def test_explorer_pages_link_to_it(still: Shown) -> None:
    assert "/reference/" in still.see("/").links
    assert "/reference/" not in still.see("/pay/", 400).links
