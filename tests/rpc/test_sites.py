"""Both sites as `svcd.tap` composes them: what holds for every route alike (docs/http.md)."""

import json
from collections.abc import Callable

import pytest
from twisted.internet.task import Clock

from svcd.rpc.sites import PublicSite, SiteFactory
from svcd.web import api
from svcd.web.connections import SiteLimits
from svcd.web.rate_limits import Clients, Rate, RateLimiter
from tests.rpc.conftest import local_client, public_client
from tests.rpc.node import FAUCET, OPERATOR_SOCKET, UNLIMITED, Client, Node
from tests.web.wire import Wire

OpenNode = Callable[..., Node]

TXID = "ab" * 32
READS = [
    "/rpc/status",
    "/rpc/consensus",
    "/rpc/block/0",
    f"/rpc/balance/{FAUCET}",
    f"/rpc/address/{FAUCET}/transactions",
    f"/rpc/transaction/{TXID}",
    "/rpc/openapi.json",
]
EVERY = [*READS, "/rpc/broadcast"]


# HEAD, OPTIONS, methods


@pytest.mark.parametrize("target", READS)
def test_head_is_get_without_the_body(still: Client, target: str) -> None:
    head, get = still.send("HEAD", target), still.get(target)
    assert (head.status, head.headers, head.body) == (get.status, get.headers, b"")
    assert int(head.headers["content-length"]) == len(get.body) > 0


@pytest.mark.parametrize("target", [*EVERY, "/rpc/nothing", "/rpc"])
def test_options_is_answered_for_pages_of_every_origin(still: Client, target: str) -> None:
    response = still.send("OPTIONS", target, headers={"Origin": "https://shop.example"})
    assert response.status == 204
    assert response.headers["access-control-allow-origin"] == "*"
    assert response.headers["access-control-allow-methods"] == "GET, HEAD, POST, OPTIONS"
    assert response.headers["access-control-allow-headers"] == "Content-Type"
    assert response.headers["access-control-max-age"] == "86400"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "TRACE"])
@pytest.mark.parametrize("target", READS)
def test_read_answers_no_other_method(still: Client, method: str, target: str) -> None:
    response = still.send(method, target)
    assert (response.status, response.headers["allow"]) == (405, "GET, HEAD, OPTIONS")
    assert response.error == "this path answers GET, HEAD, OPTIONS only"


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_broadcast_answers_post_only(still: Client, method: str) -> None:
    response = still.send(method, "/rpc/broadcast")
    assert (response.status, response.headers["allow"]) == (405, "OPTIONS, POST")


@pytest.mark.parametrize(
    "target",
    [
        "/rpc",
        "/rpc/",
        "/rpc/status/",
        "/rpc//status",
        "/rpc/Status",
        "/rpc/block",
        "/rpc/block/",
        "/rpc/block/1/transactions",
        "/rpc/address/x",
        "/rpc/balance/",
        "/rpc/%73tatus/x",
        "/rpc/commerce",
    ],
)
def test_path_that_does_not_exist(still: Client, target: str) -> None:
    assert still.refusal(target, status=404) == (
        "there is no such path here; paths are case-sensitive and have no slash at the end"
    )


def test_query_of_a_route_without_one_is_ignored(still: Client) -> None:
    assert "commerce" in still.ok("/rpc/commerce/info?a=1&a=2&%FF&minHeight=9")


# CORS


@pytest.mark.parametrize(
    ("method", "target", "body", "status"),
    [
        ("GET", "/rpc/status", b"", 200),
        ("GET", "/rpc/block/x", b"", 400),
        ("GET", "/rpc/block/1", b"", 404),
        ("GET", "/rpc/none", b"", 404),
        ("PUT", "/rpc/status", b"", 405),
        ("POST", "/rpc/broadcast", b"x" * 16_385, 413),
        ("POST", "/rpc/broadcast", b"x", 400),
        ("GET", "/rpc/%FF", b"", 400),
    ],
)
def test_every_answer_can_be_read_by_pages(still: Client, method: str, target: str, body: bytes, status: int) -> None:
    response = still.send(method, target, body, {"Origin": "https://shop.example"})
    assert (response.status, response.headers["access-control-allow-origin"]) == (status, "*")


def test_answer_to_what_is_no_request_can_be_read_too(node: Node) -> None:
    wire = Wire(node.public).send(b"GET /rpc/status HTTP/1.1\r\nno header\r\n\r\n")
    assert wire.response().headers["access-control-allow-origin"] == "*"


def test_operator_s_answers_cannot_be_read_by_pages(operator: Client) -> None:
    for method in ("GET", "OPTIONS", "POST"):
        response = operator.send(method, "/health", headers={"Origin": "https://shop.example"})
        assert not [name for name in response.headers if name.startswith("access-control")]


# Sizes


def test_body_at_its_cap_is_read_and_one_byte_more_is_not(still: Client) -> None:
    assert still.refusal("/rpc/broadcast", b" " * 16_384).startswith("not JSON")
    response = still.send("POST", "/rpc/broadcast", b" " * 16_385)
    assert (response.status, response.headers["connection"]) == (413, "close")
    assert response.error == "the body is too large; at most 16384 bytes are accepted here"


# Rates


def test_reads_have_one_rate_and_broadcasts_another(open_node: OpenNode, clock: Clock) -> None:
    node = open_node(rates={**UNLIMITED, "read": Rate(2, 2), "broadcast": Rate(1, 1)})
    client = public_client(node)
    client.ok("/rpc/status")
    client.refusal("/rpc/block/1", status=404)
    response = client.get("/rpc/consensus")
    assert (response.status, response.headers["retry-after"]) == (429, "1")
    assert response.error == "too many requests; try again in 1 s"
    client.refusal("/rpc/broadcast", {}, status=400)
    assert client.post("/rpc/broadcast", {}).status == 429
    public_client(node, "203.0.113.10").ok("/rpc/consensus")
    clock.advance(0.5)
    client.ok("/rpc/consensus")


def test_a_list_costs_two_reads(open_node: OpenNode) -> None:
    client = public_client(open_node(rates={**UNLIMITED, "read": Rate(0.5, 3), "broadcast": Rate(1, 1)}))
    client.ok(f"/rpc/address/{FAUCET}/transactions")
    response = client.get(f"/rpc/address/{FAUCET}/transactions")
    assert (response.status, response.headers["retry-after"]) == (429, "2")
    client.ok("/rpc/status")


def test_large_block_costs_more_than_a_small_one(open_node: OpenNode, monkeypatch: pytest.MonkeyPatch) -> None:
    client = public_client(open_node(rates={**UNLIMITED, "read": Rate(1, 10), "broadcast": Rate(1, 1)}))
    size = len(client.get("/rpc/block/0").body)
    monkeypatch.setattr(api, "BYTES_PER_TOKEN", size / 12)
    client.ok("/rpc/block/0")
    response = client.get("/rpc/status")
    assert (response.status, response.headers["retry-after"]) == (429, "4")


def test_rate_is_drawn_before_anything_is_read(open_node: OpenNode) -> None:
    client = public_client(open_node(rates={**UNLIMITED, "read": Rate(1, 1), "broadcast": Rate(1, 1)}))
    assert client.post("/rpc/broadcast", b"junk").status == 400
    assert client.post("/rpc/broadcast", b"junk").status == 429


def test_operator_has_no_rate(open_node: OpenNode) -> None:
    operator = local_client(open_node(rates={**UNLIMITED, "read": Rate(1, 1), "broadcast": Rate(1, 1)}))
    assert all(operator.ok("/health") == {} for _ in range(50))


def test_operator_s_site_counts_no_ignored_forwarding_headers(node: Node) -> None:
    site = node.sites.operator(node.operator_routes, SiteLimits())
    for target in ("/health", "/none"):
        for named in ("198.51.100.7", "198.51.100.8"):
            head = f"GET {target} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-For: {named}\r\n\r\n"
            assert Wire(site, "10.0.0.1").send(head.encode()).response().status in (200, 404)
    assert site.clients.proxies.ignored == 0
    assert not site.clients.proxies.forwards("10.0.0.1", node.clock.seconds())


def test_limits_are_those_that_are_set(open_node: OpenNode) -> None:
    node = open_node(limits=SiteLimits(connections_per_client=2))
    assert [Wire(node.public).open for _ in range(3)] == [True, True, False]
    assert all(Wire(node.operator, OPERATOR_SOCKET).open for _ in range(100))


# Names


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:8646", 200),
        ("[::1]:8646", 200),
        ("evil.example", 421),
        ("localhost.evil.example", 421),
        ("127.0.0.1", 421),
        ("", 421),
    ],
)
@pytest.mark.parametrize(
    ("target", "here"), [("/health", 200), ("/none", 404), ("//health", 404), ("/%FF", 400), ("/a%2Fb", 400)]
)
def test_operator_at_a_port_answers_under_its_names_only(
    node: Node, target: str, here: int, host: str, status: int
) -> None:
    site = node.sites.operator(node.operator_routes, SiteLimits(), hosts={"localhost", "[::1]"})
    wire = Wire(site).send(f"GET {target} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert wire.response().status == (here if status == 200 else status)


def test_operator_at_a_socket_answers_under_every_name(node: Node) -> None:
    for host in ("localhost", "evil.example"):
        wire = Wire(node.operator, OPERATOR_SOCKET).send(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        assert wire.response().status == 200


# A failure of ours


def test_failure_tells_an_id_and_nothing_else(
    node: Node, client: Client, monkeypatch: pytest.MonkeyPatch, expected_errors: Callable[..., list[object]]
) -> None:
    def fail() -> object:
        raise OSError("/var/lib/svcd/chain.sqlite: disk I/O error")

    monkeypatch.setattr(node.status, "node_status", fail)
    sentence = client.refusal("/rpc/status", status=500)
    assert sentence == "the node failed to answer; its log has the details under e1"
    assert len(expected_errors(OSError)) == 1


def test_connection_is_kept_after_an_error(node: Node) -> None:
    wire = Wire(node.public)
    for target in ("/rpc/block/x", "/rpc/block/9", "/rpc/none", "/rpc/status"):
        wire.send(f"GET {target} HTTP/1.1\r\nHost: h\r\n\r\n".encode())
    assert [response.status for response in wire.responses()] == [400, 404, 404, 200]
    assert json.loads(wire.responses()[3].body)["ok"] is True


def test_all_sites_of_a_node_share_the_bound_of_unread_answers() -> None:
    factory = SiteFactory(Clock(), lambda: "e1")
    public = PublicSite(SiteLimits(), RateLimiter(Clients(), UNLIMITED, factory.clock))
    sites = [factory.public([], public), factory.between_nodes([], public), factory.operator([], SiteLimits())]
    assert all(site.unread is factory.unread for site in sites)
