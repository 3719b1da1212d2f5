"""`svc wallet page-check`: whether a node serves the wallet's page of a release."""

import json
import re
from collections import defaultdict
from hashlib import sha256
from pathlib import Path
from typing import Final

import click
from attrs import evolve

from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.http_client import Fetched, NodeClient, public_endpoint
from svcd.cli.secure_files import read_bounded
from svcd.cli.session import Session
from svcd.visible_text import BadText, text_of

PAGE: Final = "/wallet/"
POLICY: Final = "Content-Security-Policy"
_FORBIDDEN: Final = ("Link", "Refresh")
"""Headers by which a response can load or open something that its content does not name."""
_LINE: Final = re.compile("([0-9a-f]{64})  (/[ -~]+)")
_MAX_LIST: Final = 64 * 1024
_MAX_FILE: Final = 1024 * 1024
_OK: Final = 200
_SITE_DATA: Final = re.compile(rb'(<script type="application/json" id="site-data">)([^<]*)(</script>)')
_UNIT: Final = re.compile(rb'(<html lang="[A-Za-z-]{2,20}") data-unit="[A-Za-z]{1,12}">')
_SITE_MEMBERS: Final = {"recipients", "returnHosts", "only", "shopNames", "blockSeconds", "idleSeconds"}


@click.command("page-check")
@click.argument("url", callback=options.validated(options.url))
@click.option(
    "--hashes",
    type=click.Path(path_type=Path),
    metavar="FILE",
    required=True,
    help="The list wallet-page.sha256 of a release.",
)
@options.json_option
@click.pass_obj
def page_check(session: Session, url: str, hashes: Path) -> None:
    """Compare the wallet's page at URL, and its files, with the hashes that a release lists.

    A page that differs may come from another release, or from a node that has changed it, for instance to get at keys.
    The check shows what the node serves to this computer now: it can serve something else to other visitors, or later.

    \b
    Example:
      svc wallet page-check https://node.example.org --hashes wallet-page.sha256
    """
    listed = parse_hashes(read_bounded(hashes, _MAX_LIST), hashes)
    differences = {name: _difference(session, url, name, accepted) for name, accepted in listed.items()}
    differing = [f"{name} {reason}" for name, reason in differences.items() if reason is not None]
    if differing:
        raise CommandError(
            f"{url} does not serve the wallet's page of this release: {'; '.join(differing)}. Enter no"
            " password and no words there"
        )
    value = {"url": url, "same": True, "checked": list(differences)}
    session.print_result(value, f"the wallet's page of {url} is that of the release: {len(listed)} files")


def parse_hashes(data: bytes, path: Path) -> dict[str, frozenset[str]]:
    """The hashes that each name of a list may have; raises CommandError."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    try:
        lines = text_of(data).splitlines()
    except BadText as error:
        raise CommandError(f"{path} {error}") from None
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise CommandError(f"{path} must have a hash of 64 hex digits, two spaces and a path in each line")
        listed[match[2]].add(match[1])
    if not {f"{PAGE} {POLICY}", f"{PAGE} en"} <= listed.keys():
        raise CommandError(f"{path} is not the list wallet-page.sha256 of a release")
    return {name: frozenset(hashes) for name, hashes in listed.items()}


def _difference(session: Session, url: str, name: str, accepted: frozenset[str]) -> str | None:
    """Why what a node serves under a name of the list is not one of the ``accepted``; None if it is."""
    path, _, form = name.partition(" ")
    served = _served(session, url, path, form if form not in ("", POLICY) else "en")
    if served.status != _OK:
        return f"has HTTP status {served.status}"
    loading = [header for header in _FORBIDDEN if header in served.headers]
    if loading:
        return f"has the header {loading[0]}"
    if form == POLICY:
        content = ", ".join(served.headers.get_all(POLICY, [])).encode("latin-1")
    else:
        content = without_data(served.body) if path == PAGE else served.body
    return None if sha256(content).hexdigest() in accepted else "differs"


def _served(session: Session, url: str, path: str, language: str) -> Fetched:
    """What a node serves at a path in a language; raises CommandError."""
    endpoint = evolve(public_endpoint(url), name=f"{url}{path}", hint="is it the URL of a node?")
    node = NodeClient(session.runtime.connect, endpoint, clock=session.runtime.clock)
    return node.fetch("GET", path, headers={"Accept-Language": language}, max_bytes=_MAX_FILE)


def without_data(html: bytes) -> bytes:
    """The page without what the coins are called, and with what it says of the operator's shops and blocks left empty.

    Both are data that no browser runs.
    """

    def emptied(match: "re.Match[bytes]") -> bytes:
        try:
            value = json.loads(match[2])
        except ValueError:
            return match[0]
        known = isinstance(value, dict) and value.keys() == _SITE_MEMBERS
        return match[1] + b"{}" + match[3] if known else match[0]

    return _SITE_DATA.sub(emptied, _UNIT.sub(rb"\1>", html, count=1), count=1)
