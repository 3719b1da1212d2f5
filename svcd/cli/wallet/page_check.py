"""`svc wallet page-check`: whether a node serves the wallet's page of a release."""

# Twisted's web client is not annotated.
# mypy: allow-untyped-calls

import json
import re
from collections import defaultdict
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import click
from attrs import frozen
from treq import collect
from treq.client import HTTPClient
from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectError, ConnectionClosed, DNSLookupError
from twisted.python.failure import Failure
from twisted.web.client import RequestTransmissionFailed, ResponseFailed

from svcd.cli import options
from svcd.cli.errors import CommandError
from svcd.cli.http_client import TIMEOUT, public_endpoint
from svcd.cli.secure_files import read_bounded
from svcd.cli.session import Session
from svcd.interfaces import Clock

PAGE: Final = "/wallet/"
POLICY: Final = "Content-Security-Policy"
_FORBIDDEN: Final = ("Link", "Refresh")
"""Headers by which a response can load or open something that its content does not name."""
_LINE: Final = re.compile("([0-9a-f]{64})  (/[ -~]+)")
_MAX_LIST: Final = 64 * 1024
_MAX_FILE: Final = 1024 * 1024
_OK: Final = 200
_POLICY_DATA: Final = re.compile(rb'(<script type="application/json" id="link-policy">)([^<]*)(</script>)')
_POLICY_MEMBERS: Final = {"recipients", "returnHosts", "only"}


@frozen
class Served:
    """A response of the node."""

    status: int
    headers: Mapping[str, str]
    body: bytes


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
    endpoint = public_endpoint(url)

    async def work(reactor: Any) -> dict[str, str | None]:
        site = _Site(session.runtime.agent(reactor), endpoint.base_url, reactor)
        return {name: await _difference(site, name, accepted) for name, accepted in listed.items()}

    differences = session.runtime.run(work)
    differing = [f"{name} {reason}" for name, reason in differences.items() if reason is not None]
    if differing:
        raise CommandError(
            f"{endpoint.base_url} does not serve the wallet's page of this release: {'; '.join(differing)}. Enter no"
            " password and no words there"
        )
    value = {"url": endpoint.base_url, "same": True, "checked": list(differences)}
    session.print_result(value, f"the wallet's page of {endpoint.base_url} is that of the release: {len(listed)} files")


def parse_hashes(data: bytes, path: Path) -> dict[str, frozenset[str]]:
    """The hashes that each name of a list may have; raises CommandError."""
    listed: defaultdict[str, set[str]] = defaultdict(set)
    for line in data.decode("utf-8", "replace").splitlines():
        match = _LINE.fullmatch(line)
        if match is None:
            raise CommandError(f"{path} must have a hash of 64 hex digits, two blanks and a path in each line")
        listed[match[2]].add(match[1])
    if not {f"{PAGE} {POLICY}", f"{PAGE} en"} <= listed.keys():
        raise CommandError(f"{path} is not the list wallet-page.sha256 of a release")
    return {name: frozenset(hashes) for name, hashes in listed.items()}


@frozen
class _Site:
    agent: Any
    base_url: str
    clock: Clock

    async def get(self, path: str, language: str) -> Served:
        """The response to GET; raises CommandError."""

        def timed_out(result: Served | Failure, seconds: float) -> Served | Failure:
            late = CommandError(f"{self.base_url}{path} was not received within {seconds:g} s")
            return Failure(late) if isinstance(result, Failure) else result

        clock: Any = self.clock
        return await Deferred.fromCoroutine(self._get(path, language)).addTimeout(TIMEOUT, clock, timed_out)

    async def _get(self, path: str, language: str) -> Served:
        received = bytearray()

        def receive(chunk: bytes) -> None:
            received.extend(chunk)
            if len(received) > _MAX_FILE:
                raise CommandError(f"{self.base_url}{path} has more than {_MAX_FILE} bytes")

        headers: dict[bytes | str, bytes | str] = {"Accept-Language": language}
        clock: Any = self.clock
        try:
            response = await HTTPClient(self.agent).get(
                self.base_url + path, headers=headers, allow_redirects=False, unbuffered=True, reactor=clock
            )
            await collect(response, receive)
        except (ConnectError, DNSLookupError, ConnectionClosed, RequestTransmissionFailed, ResponseFailed) as error:
            raise CommandError(f"{self.base_url}{path} cannot be loaded: {error}") from None
        raw = response.headers.getAllRawHeaders()
        found = {name.decode("latin-1"): b", ".join(values).decode("latin-1") for name, values in raw}
        return Served(response.code, found, bytes(received))


async def _difference(site: _Site, name: str, accepted: frozenset[str]) -> str | None:
    """Why what a site serves under a name of the list is not one of the ``accepted``; None if it is."""
    path, _, form = name.partition(" ")
    served = await site.get(path, form if form not in ("", POLICY) else "en")
    if served.status != _OK:
        return f"has HTTP status {served.status}"
    loading = [header for header in _FORBIDDEN if header in served.headers]
    if loading:
        return f"has the header {loading[0]}"
    if form == POLICY:
        content = served.headers.get(POLICY, "").encode("latin-1")
    else:
        content = without_links(served.body) if path == PAGE else served.body
    return None if sha256(content).hexdigest() in accepted else "differs"


def without_links(html: bytes) -> bytes:
    """The page with the list of an operator's shops left empty, which is data that no browser runs."""

    def emptied(match: "re.Match[bytes]") -> bytes:
        try:
            value = json.loads(match[2])
        except ValueError:
            return match[0]
        known = isinstance(value, dict) and value.keys() == _POLICY_MEMBERS
        return match[1] + b"{}" + match[3] if known else match[0]

    return _POLICY_DATA.sub(emptied, html, count=1)
