"""`svc network invite`: what it checks of the node, of the seeds and of the file on the web, and what it prints."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.internet.task import Clock

from svcd.chain.params import NetworkParams, ProducerChange
from svcd.cli.invitation import Invitation, Seed, invitation_text
from svcd.config.network_file import render_network_file
from tests.chains import FESTIVAL, address_of
from tests.cli.terminal import Fixed, Network, Terminal, site_of
from tests.rpc.node import NODE_ID, Node, Settings

INVITE = ("network", "invite", "festival.toml")
URL = "https://festival.example.org"
OTHER = "http://other.example.org:8645"
MEMBERS = tuple(address_of(name, "fest") for name in ("alice", "bob"))


@pytest.fixture
def festival(terminal: Terminal) -> NetworkParams:
    """A network with two producers, in festival.toml."""
    params = evolve(
        FESTIVAL,
        allocations=((MEMBERS[0], 10**10),),
        producers=MEMBERS,
    )
    (terminal.folder / "festival.toml").write_text(render_network_file(params))
    return params


@pytest.fixture
def node(tmp_path: Path, clock: Clock, terminal: Terminal, festival: NetworkParams) -> Iterator[Node]:
    """The founder's node, behind URL and the terminal's data directory."""
    node = open_node(tmp_path / "chain.sqlite", terminal, festival, URL)
    yield node
    node.close()


def open_node(path: Path, terminal: Terminal, params: NetworkParams, endpoint: str) -> Node:
    """A node that names this endpoint as its own."""
    node = Node(path, terminal.clock, Settings(params=params, endpoint=endpoint, peers=True))
    terminal.operator.site = node.operator
    terminal.others[endpoint] = Network(terminal.clock, node.public)
    return node


def tells(terminal: Terminal, url: str, **changed: object) -> None:
    """Let another node answer at ``url``: what the founder's says, but for these members."""
    status = claims(terminal) | {"endpoint": url} | changed
    body = json.dumps({"ok": True, "status": {k: v for k, v in status.items() if v is not None}})
    terminal.others[url] = Network(terminal.clock, site_of(Fixed((200, body.encode())), terminal.clock))


def claims(terminal: Terminal) -> dict[str, Any]:
    """The members of the founder's /p2p/status that svc reads."""
    shown = json.loads(terminal.ok("network", "show", "festival.toml", "--json").out)
    own = {"genesisHash": shown["genesisHash"], "changesHash": shown["changesHash"]}
    return {"chainId": "FESTIVAL", "nodeId": "svcnode_" + "d" * 32, **own}


@pytest.mark.usefixtures("node")
def test_a_node_with_a_public_url_is_the_first_one(terminal: Terminal, festival: NetworkParams) -> None:
    told = terminal.ok(*INVITE)
    invitation = Invitation(params=festival, node_id=NODE_ID, seeds=(Seed(URL, NODE_ID),))
    assert (told.out, told.err) == (invitation_text(invitation), "")
    assert terminal.sockets == ["data/operator.sock"]


@pytest.mark.usefixtures("node")
def test_programs_get_the_parts(terminal: Terminal, festival: NetworkParams) -> None:
    words = ("--repository", "git@git.example.org:svcd.git", "--data-dir", "elsewhere", "--json")
    told = json.loads(terminal.ok(*INVITE, *words).out)
    invitation = Invitation(params=festival, node_id=NODE_ID, seeds=(Seed(URL, NODE_ID),))
    assert told == {
        "network": "festival",
        "genesisHash": festival.genesis_hash.hex(),
        "changesHash": festival.changes_hash.hex(),
        "nodeId": NODE_ID,
        "seeds": [{"url": URL, "nodeId": NODE_ID}],
        "program": "git clone git@git.example.org:svcd.git svcd",
        "rules": invitation.rules,
        "compare": invitation.compare,
        "clone": invitation.clone,
        "debian": invitation.debian,
    }
    assert terminal.sockets == ["elsewhere/operator.sock"]


@pytest.mark.usefixtures("node")
def test_other_nodes_may_be_the_first_ones(terminal: Terminal) -> None:
    tells(terminal, OTHER)
    words = ("--seed", "HTTP://Other.example.org:8645", "--seed", URL, "--seed", f"{URL}:443")
    told = json.loads(terminal.ok(*INVITE, *words, "--json").out)
    assert told["seeds"] == [{"url": OTHER, "nodeId": "svcnode_" + "d" * 32}, {"url": URL, "nodeId": NODE_ID}]
    assert told["nodeId"] == NODE_ID


def test_a_network_where_everybody_makes_blocks_has_no_changes(
    tmp_path: Path, terminal: Terminal, festival: NetworkParams
) -> None:
    params = evolve(festival, producers=())
    (terminal.folder / "festival.toml").write_text(render_network_file(params))
    node = open_node(tmp_path / "chain.sqlite", terminal, params, URL)
    assert NODE_ID in terminal.ok(*INVITE).out
    node.close()


def test_a_node_on_another_network_is_refused(tmp_path: Path, terminal: Terminal, festival: NetworkParams) -> None:
    other = evolve(festival, chain_id="FETE")
    node = open_node(tmp_path / "chain.sqlite", terminal, other, URL)
    assert terminal.failure(*INVITE) == (
        f"the node in data is on FETE with the genesis hash {other.genesis_hash.hex()}, and the file is that of "
        f"FESTIVAL with {festival.genesis_hash.hex()}: name the file with which the node runs"
    )
    node.close()


def test_a_node_without_a_public_url_needs_a_seed(tmp_path: Path, terminal: Terminal, festival: NetworkParams) -> None:
    node = open_node(tmp_path / "chain.sqlite", terminal, festival, "")
    assert terminal.failure(*INVITE) == (
        "this node has no publicUrl: set it in [http] to the URL at which members reach the node, or name another node "
        "with --seed"
    )
    tells(terminal, OTHER)
    assert OTHER in terminal.ok(*INVITE, "--seed", OTHER).out
    node.close()


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"genesisHash": "00" * 32, "chainId": "FETE"}, f"the node at {OTHER} is on FETE with the genesis hash 0000"),
        (
            {"endpoint": "http://10.0.0.7:8645"},
            f"the node at {OTHER} names http://10.0.0.7:8645 as its own, so that other nodes do not take it for a peer "
            "there: set its publicUrl to the URL that members use, and give the same one here",
        ),
        ({"endpoint": ""}, f"the node at {OTHER} names no URL as its own"),
        (
            {"changesHash": "00" * 32},
            f"the node at {OTHER} has other changes of the producers than the file: all nodes need the newest file",
        ),
        ({"changesHash": None}, "the node does not answer as svcd does: status lacks the field changesHash"),
        ({"nodeId": None}, "the node does not answer as svcd does: status lacks the field nodeId"),
    ],
)
def test_a_seed_that_does_not_help_members_is_refused(
    terminal: Terminal, changed: dict[str, object], sentence: str
) -> None:
    tells(terminal, OTHER, **changed)
    assert terminal.failure(*INVITE, "--seed", OTHER).startswith(sentence)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("words", [(), ("--unchecked",), ("--seed", OTHER)])
def test_a_file_with_other_changes_than_the_node_is_refused(
    terminal: Terminal, festival: NetworkParams, words: tuple[str, ...]
) -> None:
    newer = evolve(festival, changes=(ProducerChange(height=9, producers=MEMBERS[:1]),))
    (terminal.folder / "festival.toml").write_text(render_network_file(newer))
    tells(terminal, OTHER)
    assert terminal.failure(*INVITE, *words) == (
        "the node in data has other changes of the producers than the file: all nodes need the newest file"
    )


@pytest.mark.usefixtures("node")
def test_another_node_at_the_url_of_this_one_is_refused(terminal: Terminal) -> None:
    tells(terminal, URL)
    assert terminal.failure(*INVITE) == (
        f"another node, svcnode_{'d' * 32}, answers at {URL}, which this node names as its own: correct its "
        "publicUrl or the way to it"
    )


@pytest.mark.usefixtures("node")
def test_a_url_that_does_not_answer_is_refused(terminal: Terminal) -> None:
    terminal.others[OTHER] = Network(terminal.clock, failure=ConnectionRefusedError(111, "x"))
    refused = f"cannot connect to {OTHER}: connection refused; members could not either"
    assert terminal.failure(*INVITE, "--seed", OTHER) == refused
    terminal.others[URL] = Network(terminal.clock, failure=TimeoutError())
    assert terminal.failure(*INVITE) == (
        f"cannot connect to {URL}: connection timed out; members could not either; if only this computer cannot, as "
        "behind some routers, repeat the command with --unchecked"
    )
    assert f"{URL}\n{NODE_ID}\n" in terminal.ok(*INVITE, "--unchecked").out
    assert terminal.failure(*INVITE, "--unchecked", "--seed", OTHER) == refused


def test_a_node_that_nobody_reaches_says_so(node: Node, terminal: Terminal) -> None:
    sentence = f"no node has called {URL} for 12 minutes: check that"
    node.peers.around = evolve(node.peers.around, unreachable=sentence)
    assert terminal.failure(*INVITE) == terminal.failure(*INVITE, "--unchecked") == sentence
    tells(terminal, OTHER)
    terminal.ok(*INVITE, "--seed", OTHER)


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("url", "problem", "within"),
    [
        ("http://127.0.0.1:8645", "127.0.0.1 is this machine itself", "on the computer itself"),
        ("http://[::1]:8645", "::1 is this machine itself", "on the computer itself"),
        ("http://localhost:8645", "localhost is not a public name", "on the computer itself"),
        ("http://10.0.0.7:8645", "10.0.0.7 is an address of a private network", "in its local network"),
        ("http://anna.local", "anna.local is not a public name", "in its local network"),
        ("http://anna", "anna is not a public name", "in its local network"),
    ],
)
def test_an_address_at_home_needs_a_word(terminal: Terminal, url: str, problem: str, within: str) -> None:
    tells(terminal, url)
    assert terminal.failure(*INVITE, "--seed", url) == (
        f"members elsewhere cannot reach {url}, because {problem}: give a public URL, or --allow-private if all nodes "
        "are on this computer or in its local network"
    )
    told = terminal.ok(*INVITE, "--seed", url, "--allow-private").out
    assert f"{url}\nsvcnode_{'d' * 32}\n(This address leads to it only {within}.)\n" in told
    assert "--set=p2p.allowPrivate=true" in told


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("url", ["http://192.0.2.1:8645", "http://169.254.169.254", "http://0.0.0.0:8645"])
def test_an_address_that_no_node_calls_is_refused_always(terminal: Terminal, url: str) -> None:
    assert terminal.failure(*INVITE, "--seed", url, "--allow-private").startswith(f"no other node calls {url}, because")


def on_the_web(terminal: Terminal, body: str, status: int = 200) -> str:
    """The URL of a file with this content."""
    terminal.others["https://web.example.org"] = Network(
        terminal.clock, site_of(Fixed((status, body.encode())), terminal.clock)
    )
    return "https://web.example.org/f.toml"


@pytest.mark.usefixtures("node")
def test_the_file_may_be_on_the_web(terminal: Terminal, festival: NetworkParams) -> None:
    url = on_the_web(terminal, (terminal.folder / "festival.toml").read_text())
    told = terminal.ok(*INVITE, "--file-url", url).out
    assert f"curl -fsS -o festival.toml \\\n{url}\n```" in told
    assert "slotSeconds" not in told
    for wrong, sentence in {
        render_network_file(evolve(festival, slot_seconds=festival.slot_seconds + 1)): f"{url} has another file: its ",
        render_network_file(
            evolve(festival, changes=(ProducerChange(height=9, producers=MEMBERS[:1]),))
        ): f"{url} has other changes of the producers than the file: put the newest file there",
        "<html>": f"{url}, line 1: is not valid TOML: ",
    }.items():
        on_the_web(terminal, wrong)
        assert terminal.failure(*INVITE, "--file-url", url).startswith(sentence)
    on_the_web(terminal, "", 404)
    assert terminal.failure(*INVITE, "--file-url", url) == f"{url} answers with HTTP status 404 instead of the file"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("network", "invite", "mainnet"), "mainnet is built into svcd: name the file of a network of your own"),
        ((*INVITE, "--seed", "other.example.org"), "Invalid value for '--seed': endpoint must begin with http:// or "),
        ((*INVITE, "--seed", f"{URL}/"), "Invalid value for '--seed': endpoint must end after the host or port"),
        (
            (*INVITE, "--repository", "--upload-pack=x"),
            "must be a URL that git can clone, such as https://git.example.org/",
        ),
        ((*INVITE, "--repository", "a b"), "must be a URL that git can clone, such as https://git.example.org/svcd"),
        ((*INVITE, "--file-url", "f.toml"), "Invalid value for '--file-url': the URL must begin with http:// or "),
    ],
)
@pytest.mark.usefixtures("festival")
def test_incorrect_calls(terminal: Terminal, words: tuple[str, ...], sentence: str) -> None:
    assert sentence in terminal.misuse(*words)


@pytest.mark.usefixtures("festival")
def test_it_needs_a_node(terminal: Terminal) -> None:
    terminal.operator.failure = FileNotFoundError(2, "x")
    assert terminal.failure(*INVITE).startswith("cannot connect to data/operator.sock: no such file or directory; is ")
