"""Loading authorities; how certificates are checked is tested in test_pinned.py."""

from collections.abc import Callable
from pathlib import Path

import pytest
from twisted.internet import reactor

from svcd.net.addresses import AddressPolicy
from svcd.net.calls import CallFailed
from svcd.net.http_client import PinnedClient
from svcd.net.trust import Trust, TrustError, load_trust
from tests.net.certificates import Signed, make_authority, sign
from tests.net.conftest import HOST, LIMITS, Answers, target_of
from tests.net.servers import Server, answer, saying

Serve = Callable[..., Server]


def caller_with(trust: Trust) -> PinnedClient:
    policy = AddressPolicy(allow_private=True)
    return PinnedClient(reactor, resolver=Answers(["127.0.0.1"]), policy=policy, trust=trust)


@pytest.mark.socket
async def test_the_operators_authority_is_believed_beside_the_systems(
    serve: Serve, authority: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems, unknown = make_authority("The system's authority"), make_authority("Nobody")
    (tmp_path / "system.pem").write_bytes(systems.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    (tmp_path / "extra.pem").write_bytes(make_authority("Another").pem + authority.pem)
    caller = caller_with(load_trust(tmp_path / "extra.pem"))
    for signer in (systems, authority):
        server = serve(saying(answer()), sign(HOST, by=signer))
        assert (await caller.call("GET", target_of(server, scheme="https"), limits=LIMITS)).status == 200
    server = serve(saying(answer()), sign(HOST, by=unknown))
    with pytest.raises(CallFailed, match="certificate verify failed"):
        await caller.call("GET", target_of(server, scheme="https"), limits=LIMITS)


@pytest.mark.socket
async def test_without_a_file_only_the_systems_authorities_are_believed(
    serve: Serve, authority: Signed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    systems = make_authority("The system's authority")
    (tmp_path / "system.pem").write_bytes(systems.pem)
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "system.pem"))
    caller = caller_with(load_trust())
    server = serve(saying(answer()), sign(HOST, by=systems))
    assert (await caller.call("GET", target_of(server, scheme="https"), limits=LIMITS)).status == 200
    server = serve(saying(answer()), sign(HOST, by=authority))
    with pytest.raises(CallFailed, match="certificate verify failed"):
        await caller.call("GET", target_of(server, scheme="https"), limits=LIMITS)


def test_a_file_without_a_certificate_is_named(tmp_path: Path) -> None:
    path = tmp_path / "authority.pem"
    path.write_text("-----BEGIN NOTHING-----\n")
    with pytest.raises(TrustError, match=r"authority\.pem must contain certificates in PEM form"):
        load_trust(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match=r"authority\.pem must be a file that the node can read: No such file"):
        load_trust(tmp_path / "authority.pem")


def test_a_name_that_breaks_the_rules_of_idna_has_no_connection() -> None:
    trust = load_trust()
    trust.creatorForNetloc(b"xn--bcher-kva.example", 443)
    for name in (b"ab--c.example", b"xn--a-ecp.example"):
        with pytest.raises(ValueError, match=r"."):
            trust.creatorForNetloc(name, 443)
