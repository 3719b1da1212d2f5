"""What tests of synchronisation ask of a node and of the peers whose chains it follows."""

import json
from collections.abc import Sequence
from typing import Any

from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from tests.p2p.bench import Node
from tests.p2p.memory_transport import Called
from tests.p2p.remote_node import RemoteNode, Script

HEADERS = "/p2p/headers"
BLOCKS = "/p2p/blocks"


def make_peers(node: Node, count: int = 2, *, settle: float = 0.0, **changes: Any) -> list[RemoteNode]:
    """Outbound peers that have ``settle`` seconds to show their chains."""
    remotes = [node.remote(number, **changes) for number in range(count)]
    node.meet(*remotes)
    node.run(settle)
    return remotes


def boaster(node: Node, number: int, script: Script, **changes: Any) -> RemoteNode:
    """A remote that claims far more work than there is, and answers requests about it by a script."""
    claim = {"work": 2**255, "height": 2**53 - 1} | changes
    return node.remote(number, scripts={HEADERS: script, BLOCKS: script}, **claim)


def followed(node: Node, blocks: Sequence[Block], within: float = 10.0) -> bool:
    """Whether the node comes to the end of a chain in so many seconds."""
    return node.until(lambda: node.tip.hash == blocks[-1].header.hash, within=within)


def is_clean(node: Node, *remotes: RemoteNode) -> bool:
    """Whether peers are neither banned, doubted nor left."""
    return all(
        node.knows(remote)
        and not node.peer(remote).unproven_claims
        and not node.peer(remote).failures
        and not node.peers.is_banned(remote.key.node_id)
        for remote in remotes
    )


def meet(node: Node, *remotes: RemoteNode) -> None:
    """Meet others and hear of all their chains before any claim is looked into; how slow they are shows later."""
    latency, node.transport.latency = node.transport.latency, {}
    sync = node.network.sync
    check_claims, sync.check_claims = sync.check_claims, lambda: None  # type: ignore[method-assign]
    on_status, node.peers.on_status = node.peers.on_status, lambda: None
    for start in range(0, len(remotes), 8):
        group = remotes[start : start + 8]
        for remote in group:
            node.begin(node.peers.connect(remote.endpoint, outbound=True))
        assert node.until(lambda group=group: all(node.knows(each) and node.peer(each).status for each in group))
    node.transport.latency = latency
    sync.check_claims, node.peers.on_status = check_claims, on_status  # type: ignore[method-assign]
    sync.check_claims()


def body(called: Called) -> Any:
    """What a request asks for."""
    return json.loads(called.request.body or b"{}")


def asked_for(node: Node, remote: RemoteNode) -> list[list[str]]:
    """The hashes of the blocks that a remote was asked for, a list for each question."""
    calls = node.transport.calls_to(remote.endpoint, BLOCKS)
    return [body(called)["hashes"] for called in calls if called.request.body is not None]


def questions(node: Node, remote: RemoteNode) -> list[Called]:
    """The questions for headers; one for a single header looks for the last common block, to hand in blocks above."""
    return [called for called in node.transport.calls_to(remote.endpoint, HEADERS) if body(called)["limit"] > 1]


def hashes_of(blocks: Sequence[Block]) -> list[str]:
    return [block.header.hash.hex() for block in blocks]


def later(node: Node, seconds: float, remote: RemoteNode) -> Script:
    """An honest answer that takes its time."""

    def answer(called: Called) -> Any:
        reply: Deferred[Any] = Deferred()
        node.clock.callLater(seconds, reply.callback, remote.honest(called))
        return reply

    return answer
