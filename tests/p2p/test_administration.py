"""What the operator sees of other nodes and orders, over the real HTTP stack, and that it outlives a restart."""

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from attrs import evolve
from twisted.logger import LogLevel, capturedLogs, formatEvent

from svcd.node.threads import InlineWorker
from svcd.p2p.address_book import AddressBook
from svcd.p2p.administration import MAX_SHOWN, PeerAdministration
from svcd.p2p.bans import MAX_OWN, Ban, posts_name
from svcd.p2p.handshake import NodeKey
from svcd.p2p.service import FORMAT, PeersFile, PeersService, read_peers_file, write_peers_file
from svcd.rpc.operator_routes import PeerAdminRoutes
from svcd.rpc.sites import SiteFactory
from svcd.web.connections import SiteLimits
from tests.chains import key_of
from tests.node.bench import Stepped
from tests.p2p.bench import OURS, Node, place
from tests.p2p.conftest import Grow, MakeNode
from tests.p2p.remote_node import RemoteNode, silent
from tests.rpc.conftest import description_of
from tests.rpc.description import Asked
from tests.rpc.node import OPERATOR_SOCKET, TOKEN
from tests.support import result_of
from tests.web.wire import Response, Wire

HOUR = 3_600
HELLO = "/p2p/hello"


class Operator:
    """Asks the operator's site of a node on a bench; each answer is held to its description."""

    def __init__(self, node: Node, path: Path, token: str | None = None) -> None:
        self.node = node
        self.path = path
        self.service = PeersService(self.node.network, self.path, [], InlineWorker())
        routes = PeerAdminRoutes(PeerAdministration(self.node.peers, self.service.save), token=token)
        errors = count(1)
        self.site = SiteFactory(self.node.clock, lambda: f"e{next(errors)}").operator([routes], SiteLimits())
        self.description = description_of([routes])
        self.service.startService()

    def send(self, path: str, body: dict[str, object] | None, seconds: float = 0.5) -> Response:
        data = b"" if body is None else json.dumps(body).encode()
        method = "GET" if body is None else "POST"
        head = f"{method} {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {len(data)}\r\n\r\n"
        wire = Wire(self.site, OPERATOR_SOCKET).send(head.encode() + data)
        self.node.run(seconds)
        response = wire.response()
        wire.close()
        self.description.check(Asked(method, path, data), response)
        return response

    def ok(self, path: str, body: dict[str, object] | None = None, seconds: float = 0.5) -> Any:
        response = self.send(f"/operator/peers{path}", body, seconds)
        assert response.status == 200, response.body
        answer = response.json
        assert answer.pop("ok") is True
        return answer

    def refusal(self, path: str, body: dict[str, object], status: int = 400) -> str:
        response = self.send(f"/operator/peers{path}", body)
        assert response.status == status, response.body
        return response.error

    def bans(self) -> list[tuple[str, str, bool]]:
        return [(ban["kind"], ban["name"], ban["own"]) for ban in self.ok("")["bans"]]


@pytest.fixture
def operator(node: Node, tmp_path: Path) -> Operator:
    return Operator(node, tmp_path / "peers.json")


# Who is talked to


def test_at_first_there_is_nobody(operator: Operator) -> None:
    assert operator.ok("") == {"peers": [], "bans": []}


def test_peers_are_shown(operator: Operator, grow: Grow) -> None:
    node = operator.node
    node.take(*grow(3))
    chosen, caller = operator.node.remote(1, blocks=grow(3)), operator.node.remote(2)
    node.peers.settings = evolve(node.peers.settings, outbound=1)
    node.transport.addresses[chosen.endpoint] = "198.51.100.7"
    node.meet(chosen)
    node.meet(caller, outbound=False)
    seen = node.peer(chosen).last_seen
    assert operator.ok("")["peers"] == [
        {
            "nodeId": chosen.key.node_id,
            "endpoint": chosen.endpoint,
            "address": "198.51.100.7",
            "direction": "outbound",
            "height": "3",
            "work": str(chosen.tip.work),
            "otherChanges": None,
            "lastSeen": str(int(seen * 1000)),
            "failures": 0,
        },
        {
            "nodeId": caller.key.node_id,
            "endpoint": caller.endpoint,
            "address": "60.3.7.1",
            "direction": "inbound",
            "height": "0",
            "work": str(caller.tip.work),
            "otherChanges": None,
            "lastSeen": str(int(node.peer(caller).last_seen * 1000)),
            "failures": 0,
        },
    ]


def test_a_silent_peer_shows_since_when(operator: Operator) -> None:
    remote = operator.node.remote(scripts={"/p2p/status": silent})
    operator.node.meet(remote)
    met = operator.node.local.now()
    operator.node.run(6)
    (peer,) = operator.ok("")["peers"]
    assert (peer["height"], peer["work"], peer["failures"]) == (None, None, 1)
    assert int(peer["lastSeen"]) <= met * 1000


@pytest.mark.parametrize("path", ["", "/add", "/ban", "/unban"])
def test_a_configured_token_is_required(node: Node, tmp_path: Path, path: str) -> None:
    guarded = Operator(node, tmp_path / "peers.json", token=TOKEN)
    body: dict[str, object] | None = {"address": "192.0.2.7"} if path else None
    assert guarded.send(f"/operator/peers{path}", body).status == 401
    assert node.peers.bans.listed(node.local.now()) == []


# Adding


def test_an_endpoint_that_is_added_is_greeted_at_once(operator: Operator) -> None:
    remote = operator.node.remote()
    added = operator.ok("/add", {"endpoint": remote.endpoint})
    assert (added["peer"]["nodeId"], added["peer"]["direction"]) == (remote.key.node_id, "outbound")
    assert added["why"] is None
    assert operator.node.knows(remote)


def test_however_often_it_failed_before(operator: Operator) -> None:
    node = operator.node
    node.peers.hint(place(1), source="x")
    node.run(HOUR)
    remote = operator.node.remote()
    entry = node.book.get(place(1))
    assert entry is not None
    entry.next_try = node.local.now() + 1_000
    operator.ok("/add", {"endpoint": remote.endpoint})
    assert node.knows(remote)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"scripts": {HELLO: silent}}, "in memory: timeout"),
        ({"names": "http://elsewhere.example"}, "it names as its endpoint http://elsewhere.example"),
        ({"names": ""}, "it names as its endpoint nothing: it has no publicUrl"),
        ({"key": NodeKey(key_of("ourselves").seed, place(1))}, "it is this node itself"),
    ],
)
def test_the_operator_is_told_why_it_is_no_peer(operator: Operator, changes: dict[str, Any], why: str) -> None:
    operator.node.remote(1, **changes)
    assert operator.ok("/add", {"endpoint": place(1)}, seconds=6) == {"peer": None, "why": why}


def test_an_unreachable_endpoint_is_tried_again_later(operator: Operator) -> None:
    assert operator.ok("/add", {"endpoint": place(1)}) == {"peer": None, "why": "in memory: unreachable"}
    remote = operator.node.remote(1)
    operator.node.run(10)
    assert operator.node.knows(remote)


def test_a_peer_without_room_is_noted_in_the_address_book(operator: Operator) -> None:
    operator.node.peers.settings = evolve(operator.node.peers.settings, outbound=0, max_inbound=0)
    remote = operator.node.remote()
    assert operator.ok("/add", {"endpoint": remote.endpoint}) == {
        "peer": None,
        "why": "it answers and is in the address book, but there is no room for another peer",
    }
    entry = operator.node.book.get(remote.endpoint)
    assert entry is not None
    assert entry.verified


def test_without_a_free_outbound_slot_the_peer_is_an_acquaintance(operator: Operator) -> None:
    operator.node.peers.settings = evolve(operator.node.peers.settings, outbound=0)
    assert operator.ok("/add", {"endpoint": operator.node.remote().endpoint})["peer"]["direction"] == "inbound"


def test_a_peer_that_is_added_again_stays_what_it_is(operator: Operator) -> None:
    operator.node.peers.settings = evolve(operator.node.peers.settings, outbound=1)
    remote = operator.node.remote()
    operator.node.meet(remote)
    assert operator.ok("/add", {"endpoint": remote.endpoint})["peer"]["direction"] == "outbound"


SUCH_AS = ", such as http://192.0.2.1:8645"
SCHEME = f"endpoint must begin with http:// or https://{SUCH_AS}"
SLASH = f"endpoint must end after the host or port, without a slash, path or query{SUCH_AS}"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ({}, "endpoint is missing: The base address of a node, such as http://192.0.2.1:8645."),
        ({"endpoint": 5}, "endpoint: must be a string"),
        ({"endpoint": "node.example"}, SCHEME),
        ({"endpoint": "http://node.example/"}, SLASH),
        ({"endpoint": ""}, SCHEME),
        ({"endpoint": OURS}, f"{OURS} is this node itself"),
        ({"endpoint": OURS.replace("http", "HTTP")}, f"{OURS} is this node itself"),
    ],
)
def test_endpoints_that_cannot_be_added(operator: Operator, body: dict[str, object], sentence: str) -> None:
    assert operator.refusal("/add", body) == sentence


def test_a_banned_endpoint_cannot_be_added(operator: Operator) -> None:
    operator.ok("/ban", {"endpoint": place(1)})
    assert operator.refusal("/add", {"endpoint": place(1)}) == f"{place(1)} is banned here; lift the ban first"


def test_a_full_book_has_no_room(operator: Operator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("svcd.p2p.address_book.BUCKET_SIZE", 0)
    monkeypatch.setattr(AddressBook, "_make_room", lambda *_, **__: False)
    assert operator.refusal("/add", {"endpoint": place(1)}).startswith(f"the address book has no room for {place(1)}")


# Banning


@pytest.mark.parametrize(
    ("banned", "tried"),
    [("http://LOCALHOST:8645", "http://localhost:8645"), ("HTTP://localhost:8645", "http://LocalHost:8645")],
)
def test_a_ban_of_one_spelling_is_a_ban_of_all(operator: Operator, banned: str, tried: str) -> None:
    node, place_of_all = operator.node, "http://localhost:8645"
    remote = operator.node.remote(endpoint=place_of_all)
    operator.ok("/ban", {"endpoint": banned})
    assert operator.bans() == [("endpoint", place_of_all, True)]
    assert operator.refusal("/add", {"endpoint": tried}) == f"{place_of_all} is banned here; lift the ban first"
    remote.names = tried
    for other in (operator.node.remote(5, acquaintances=[tried]), operator.node.remote(6, names=tried)):
        node.begin(node.peers.connect(other.endpoint, outbound=True))
    node.peers.hello_received(remote.hello(), "198.51.100.7")
    node.run(HOUR)
    assert node.transport.calls_to(place_of_all) == []
    operator.ok("/unban", {"endpoint": tried})
    assert operator.bans() == []
    assert operator.ok("/add", {"endpoint": tried})["peer"]["endpoint"] == place_of_all


def by_endpoint(remote: RemoteNode) -> dict[str, object]:
    return {"endpoint": remote.endpoint}


def by_node(remote: RemoteNode) -> dict[str, object]:
    return {"nodeId": remote.key.node_id}


def by_address(_: RemoteNode) -> dict[str, object]:
    return {"address": "60.2.7.1"}


each_way = pytest.mark.parametrize("way", [by_endpoint, by_node, by_address])


@each_way
def test_a_banned_peer_is_dropped_at_once(operator: Operator, way: Callable[[RemoteNode], dict[str, object]]) -> None:
    node, remote, other = operator.node, operator.node.remote(1), operator.node.remote(2)
    node.meet(remote, other)
    answer = operator.ok("/ban", way(remote), seconds=0)
    assert answer["dropped"] == [remote.endpoint]
    assert answer["ban"] == {
        "kind": {"endpoint": "endpoint", "nodeId": "node", "address": "address"}[next(iter(way(remote)))],
        "name": next(iter(way(remote).values())),
        "until": None,
        "reason": None,
        "own": True,
    }
    assert not node.knows(remote)
    node.run(HOUR)
    assert not node.knows(remote)
    assert node.knows(other)


@each_way
def test_an_unbanned_peer_is_met_again(operator: Operator, way: Callable[[RemoteNode], dict[str, object]]) -> None:
    node, remote = operator.node, operator.node.remote(1)
    node.meet(remote)
    operator.ok("/ban", way(remote))
    node.run(HOUR)
    assert operator.ok("/unban", way(remote)) == {}
    assert operator.bans() == []
    node.run(2)
    assert node.knows(remote)


def test_a_ban_may_have_an_end(operator: Operator) -> None:
    node, remote = operator.node, operator.node.remote()
    node.meet(remote)
    now = node.local.now()
    ban = operator.ok("/ban", {"nodeId": remote.key.node_id, "seconds": 600}, seconds=0)["ban"]
    assert ban["until"] == str(int((now + 600) * 1000))
    node.run(500)
    assert operator.bans() == [("node", remote.key.node_id, True)]
    node.run(200)
    assert operator.bans() == []
    assert node.knows(remote)


def test_a_name_that_leads_to_a_banned_address(operator: Operator) -> None:
    node, remote = operator.node, operator.node.remote(endpoint="http://node.example:8645")
    node.transport.addresses[remote.endpoint] = "2001:db8:1:2::9"
    node.meet(remote)
    answer = operator.ok("/ban", {"address": "2001:db8:1:2::1"})
    assert (answer["ban"]["name"], answer["dropped"]) == ("2001:db8:1:2::/64", [remote.endpoint])
    node.run(60)
    assert not node.knows(remote)
    operator.ok("/unban", {"address": "2001:db8:1:2::/64"})
    node.run(2)
    assert node.knows(remote)


def test_the_price_of_a_post_is_shown_and_can_be_lifted(operator: Operator) -> None:
    bans, now = operator.node.peers.bans, operator.node.local.now()
    bans.ban(posts_name("192.0.2.7"), seconds=600, now=now, why="it posted: nonsense")
    (ban,) = operator.ok("", seconds=0)["bans"]
    assert ban == {
        "kind": "posts",
        "name": "192.0.2.7",
        "until": str(int((now + 600) * 1000)),
        "reason": "it posted: nonsense",
        "own": False,
    }
    operator.ok("/unban", {"address": "192.0.2.7"})
    assert not bans.is_banned(posts_name("192.0.2.7"), operator.node.local.now())


def test_so_many_bans_are_shown(operator: Operator) -> None:
    bans, now = operator.node.peers.bans, operator.node.local.now()
    for number in range(MAX_SHOWN):
        bans.ban(f"node:{number}", seconds=HOUR, now=now)
    operator.ok("/ban", {"address": "192.0.2.7"})
    assert len(operator.bans()) == MAX_SHOWN
    assert operator.bans()[0] == ("address", "192.0.2.7", True)


ONE = "give exactly one of endpoint, nodeId and address"
ADDRESS = "address must be an IP address, such as 192.0.2.1, or a /64 of IPv6"
SECONDS = "seconds: must be a whole number from 1 to 315360000"


@pytest.mark.parametrize(
    ("path", "body", "sentence"),
    [
        ("/ban", {}, ONE),
        ("/ban", {"endpoint": place(1), "address": "192.0.2.7"}, ONE),
        ("/ban", {"endpoint": "node.example"}, SCHEME),
        ("/ban", {"nodeId": "svcnode_AB"}, "nodeId must be svcnode_ and 32 hex characters"),
        ("/ban", {"address": "node.example"}, ADDRESS),
        ("/ban", {"address": "192.0.2.0/24"}, ADDRESS),
        ("/ban", {"address": ""}, ADDRESS),
        ("/ban", {"address": 5}, "address: must be a string"),
        ("/ban", {"address": "192.0.2.7", "seconds": 0}, SECONDS),
        ("/ban", {"address": "192.0.2.7", "seconds": "60"}, SECONDS),
        ("/ban", {"address": "192.0.2.7", "seconds": 315_360_001}, SECONDS),
        ("/ban", {"endpoint": OURS}, "that is this node itself"),
        ("/ban", {"nodeId": NodeKey(key_of("ourselves").seed, "").node_id}, "that is this node itself"),
        ("/unban", {}, ONE),
        ("/unban", {"address": "node.example"}, ADDRESS),
        (
            "/unban",
            {"address": "192.0.2.7", "seconds": 5},
            "unknown field 'seconds' in the body; the known ones are endpoint, nodeId, address",
        ),
    ],
)
def test_orders_that_are_wrong(operator: Operator, path: str, body: dict[str, object], sentence: str) -> None:
    assert operator.refusal(path, body) == sentence
    assert operator.bans() == []


def test_only_banned_peers_can_be_unbanned(operator: Operator) -> None:
    assert operator.refusal("/unban", {"address": "192.0.2.7"}, status=404) == "192.0.2.7 is not banned"


def test_too_many_bans_of_ones_own(operator: Operator) -> None:
    for number in range(MAX_OWN):
        operator.node.peers.bans.ban_by_operator(f"node:{number}", seconds=None, now=operator.node.local.now())
    sentence = operator.refusal("/ban", {"address": "192.0.2.7"})
    assert sentence == "you have 1000 bans already; lift some first"


# Restarts


def test_the_operator_s_bans_are_on_disk_when_the_answer_comes(operator: Operator, make_node: MakeNode) -> None:
    """A process that is killed a moment later has not forgotten them."""
    operator.ok("/ban", {"address": "192.0.2.7"})
    operator.ok("/ban", {"nodeId": "svcnode_" + "ab" * 16, "seconds": HOUR})
    again = Operator(make_node("again", name="again", endpoint="http://192.0.2.2:8645"), operator.path)
    assert again.bans() == [("address", "192.0.2.7", True), ("node", "svcnode_" + "ab" * 16, True)]
    again.ok("/unban", {"address": "192.0.2.7"})
    notes = read_peers_file(operator.path)
    assert notes is not None
    assert [ban.name for ban in notes.bans] == ["node:svcnode_" + "ab" * 16]


def test_a_ban_that_the_disk_does_not_take_holds_and_is_said_to(operator: Operator) -> None:
    operator.path.with_name(f"{operator.path.name}.new").mkdir()
    sentence = "done, but it cannot be saved to disk (Is a directory): a restart undoes it"
    assert operator.refusal("/ban", {"address": "192.0.2.7"}, 503) == sentence
    assert operator.bans() == [("address", "192.0.2.7", True)]
    assert operator.refusal("/unban", {"address": "192.0.2.7"}, 503) == sentence
    assert operator.bans() == []


def test_an_order_before_the_notes_are_read_does_not_write_over_them(node: Node, tmp_path: Path) -> None:
    """The operator's socket opens before the notes are taken up."""
    path = tmp_path / "peers.json"
    write_peers_file(path, PeersFile(FORMAT, "5e" * 32, [], [], [Ban("address:192.0.2.7", None, "", own=True)]))
    service = PeersService(node.network, path, [], InlineWorker())
    orders = PeerAdministration(node.peers, service.save)
    result_of(node.begin(orders.ban(endpoint=None, node_id=None, address="192.0.2.8", seconds=None)))
    service.startService()
    service.save()
    assert [ban["name"] for ban in orders.bans()] == ["192.0.2.7", "192.0.2.8"]
    notes = read_peers_file(path)
    assert notes is not None
    assert len(notes.bans) == 2


def test_an_order_is_carried_out_when_its_ban_is_on_disk(
    node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writing takes tens of milliseconds, so a thread does it; what is written is the state when it was asked for."""
    path, writer = tmp_path / "peers.json", Stepped()
    record, made = PeersFile.record, list[PeersFile]()
    monkeypatch.setattr(PeersFile, "record", lambda notes: (made.append(notes), record(notes))[1])
    service = PeersService(node.network, path, [], writer)
    service.startService()
    node.peers.hint(place(1), source="operator")
    order = PeerAdministration(node.peers, service.save).ban(
        endpoint=None, node_id=None, address="192.0.2.8", seconds=None
    )
    done = node.begin(order)
    node.run(1)
    assert not done.called
    assert read_peers_file(path) is None
    assert not made, "10,000 bans take as long as the writing"
    writer.finish()
    assert done.called
    notes = read_peers_file(path)
    assert notes is not None
    assert [ban.name for ban in notes.bans] == ["address:192.0.2.8"]
    assert [(entry.endpoint, entry.failures) for entry in notes.entries] == [(place(1), 0)]


def test_of_two_notes_the_later_ones_are_on_disk_in_the_end(node: Node, tmp_path: Path) -> None:
    """Though a pool of several threads writes them, and the first may take long."""
    path, files = tmp_path / "peers.json", Stepped()
    service = PeersService(node.network, path, [], files)
    service.startService()
    for number in (7, 8):
        node.begin(
            PeerAdministration(node.peers, service.save).ban(
                endpoint=None, node_id=None, address=f"192.0.2.{number}", seconds=None
            )
        )
    while len(files):
        files.step(-1)
    notes = read_peers_file(path)
    assert notes is not None
    assert [ban.name for ban in notes.bans] == ["address:192.0.2.7", "address:192.0.2.8"]


def test_notes_that_the_disk_does_not_take_are_one_line(operator: Operator) -> None:
    """When the node stops as well, which it does to the end."""
    operator.path.with_name(f"{operator.path.name}.new").mkdir()
    with capturedLogs() as events:
        result_of(operator.service.stopService())
    assert [(event["log_level"], formatEvent(event), "log_failure" in event) for event in events] == [
        (
            LogLevel.error,
            f"{operator.path} cannot be written: Is a directory. Until it can, a restart loses known peers and bans",
            False,
        )
    ]
