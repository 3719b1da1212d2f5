"""The law of Svc-Tip: an answer is that of a node whose chain ends at this block (docs/http.md "The tip")."""

from collections import deque
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from twisted.internet.defer import Deferred

from svcd.chain.block import Block
from svcd.commerce.feed import NOTHING, WHOLE, FeedCursor, Place
from svcd.node.open_chain import LongReads
from svcd.store.chain_store import locator_heights
from tests.rpc.conftest import CLIENT, present, public_client
from tests.rpc.node import PARAMS, Node, Settings
from tests.support import result_of
from tests.web.wire import Response, Wire

# Both branches have all transfers, so that none of an undone block waits in the mempool.
CHAINS = """
genesis: b[1..4]
b1: c[2..6]
b1 pays 5000 from alice to bob for order-1
b1 pays 7 from bob to alice
"""


@define
class Stepwise:
    """A worker whose work is done, and whose callers hear of it, when a test says so; at once until it is held."""

    held: bool = False
    asked: deque[tuple[Callable[[], Any], "Deferred[Any]"]] = field(factory=deque)
    done: deque[tuple[Any, "Deferred[Any]"]] = field(factory=deque)

    def run(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> "Deferred[Any]":
        told: Deferred[Any] = Deferred()
        self.asked.append((lambda: function(*args, **kwargs), told))
        if not self.held:
            self.work()
            self.tell()
        return told

    def work(self) -> None:
        """Do the next piece of work."""
        if self.asked:
            function, told = self.asked.popleft()
            self.done.append((function(), told))

    def tell(self) -> None:
        """Tell the caller of the first work that is done."""
        if self.done:
            result, told = self.done.popleft()
            told.callback(result)

    def end(self) -> None:
        """Do and tell everything."""
        self.held = False
        while self.asked or self.done:
            self.work()
            self.tell()


class Chains:
    """The blocks, and the answers of a node to every target at every tip."""

    def __init__(self, folder: Path) -> None:
        builder = Node(folder / "builder.sqlite", present(), Settings())
        self.blocks = builder.builder.chain(CHAINS)
        address, bob = builder.address("p"), builder.address("bob")
        order = f"recipient={bob}&amountBaseUnits=5000"
        self.targets = [
            "/rpc/status",
            "/rpc/consensus",
            "/rpc/fees",
            "/rpc/block/1",
            "/rpc/block/2",
            "/rpc/block/5",
            f"/rpc/balance/{address}",
            f"/rpc/address/{bob}/transactions",
            f"/rpc/address/{address}/statement",
            f"/rpc/mempool/{bob}",
            f"/rpc/transaction/{self.blocks['b1'].transfers[0].txid.hex()}",
            f"/rpc/commerce/payment/order-1?{order}",
            f"/rpc/commerce/payment/order-1/proof?{order}",
            f"/rpc/commerce/payments?recipient={bob}",
            f"/rpc/commerce/feed/{bob}",
            *[f"/rpc/commerce/feed/{bob}?after={self._cursor(name)}" for name in ("b1", "b2", "c3")],
        ]
        builder.close()
        self.answers: dict[tuple[str, str], tuple[int, bytes]] = {}
        for number, name in enumerate(["genesis", *self.blocks]):
            node = Node(folder / f"{number}.sqlite", present(), Settings())
            node.take(*self._branch(name))
            for target in self.targets:
                response = public_client(node).get(target)
                tip = node.node_context.chain_manager.tip
                assert response.headers["svc-tip"] == f"{tip.height}:{tip.hash.hex()}"
                self.answers[response.headers["svc-tip"], target] = response.status, response.body
            node.close()

    def _cursor(self, name: str) -> FeedCursor:
        """The cursor of a feed that has told everything up to the block ``name``."""
        parts = [PARAMS.genesis_hash[:16], *[block.header.hash[:16] for block in self._branch(name)]]
        height = len(parts) - 1
        return FeedCursor(Place(height, WHOLE, tuple(parts[each] for each in locator_heights(height))), NOTHING)

    def _branch(self, name: str) -> list[Block]:
        """The blocks up to ``name``."""
        if name == "genesis":
            return []
        before = [f"b{height}" for height in range(1, 2 if name[0] == "c" else int(name[1:]))]
        before += [f"c{height}" for height in range(2, int(name[1:]))] if name[0] == "c" else []
        return [self.blocks[each] for each in (*before, name)]


@pytest.fixture(scope="module")
def chains(tmp_path_factory: pytest.TempPathFactory) -> Chains:
    return Chains(tmp_path_factory.mktemp("chains"))


class Asking:
    """A node whose writer and reader are moved by hand, and clients with requests of which some are not answered."""

    def __init__(self, folder: Path, chains: Chains) -> None:
        self._chains, self.writer, self.reader = chains, Stepwise(), Stepwise()
        self.node = Node(folder / "chain.sqlite", present(), Settings(), self.writer)
        manager = self.node.node_context.chain_manager
        self._reading: Any = manager.long_reads
        manager.long_reads = LongReads(self.reader, self._reading._connection, lambda _: None)
        self.writer.held = self.reader.held = True
        self._blocks, self._taking = iter(chains.blocks.values()), list[Deferred[Any]]()
        self._open: list[tuple[str, int, Wire]] = []

    def do(self, event: tuple[str, int]) -> None:
        """Something happens."""
        what, number = event
        if what == "block" and (block := next(self._blocks, None)) is not None:
            self._taking.append(self.node.node_context.chain_manager.submit_blocks([block.wire()]))
        elif what in ("commit", "read"):
            (self.writer if what == "commit" else self.reader).work()
        elif what in ("announce", "answer"):
            (self.writer if what == "announce" else self.reader).tell()
        elif what == "ask":
            self.ask(number)
        self.check()

    def ask(self, min_height: int) -> None:
        """Ask for everything, in turn by the fast and by the slow path."""
        for number, target in enumerate(self._chains.targets):
            query = f"{'&' if '?' in target else '?'}minHeight={min_height}" if min_height else ""
            authority = "http://h" if number % 2 else ""
            wire = Wire(self.node.public, CLIENT).send(
                f"GET {authority}{target}{query} HTTP/1.1\r\nHost: h\r\n\r\n".encode("ascii")
            )
            self._open.append((target, min_height, wire))

    def check(self) -> None:
        """Whatever has been answered is true of the tip that it names."""
        self.node.clock.advance(0)
        for asked in [asked for asked in self._open if asked[2].received]:
            self._open.remove(asked)
            target, min_height, wire = asked
            self._is_true(wire.response(), target, min_height)
            wire.close()

    def _is_true(self, response: Response, target: str, min_height: int) -> None:
        tip = response.headers["svc-tip"]
        height = int(tip.partition(":")[0])
        assert (response.status == 503) == (height < min_height), (target, response)
        if response.status == 503:
            assert response.headers["retry-after"] == "1"
        else:
            assert (response.status, response.body) == self._chains.answers[tip, target], target

    def end(self) -> None:
        """Everything is answered, and the node closed."""
        self.writer.end()
        self.reader.end()
        self.node.clock.advance(0)
        self.reader.end()
        self.check()
        assert not self._open
        for taking in self._taking:
            result_of(taking)
        self.node.close()


EVENTS = st.tuples(
    st.sampled_from(["block", "block", "commit", "commit", "announce", "ask", "ask", "read", "answer"]),
    st.sampled_from([0, 0, 0, 1, 2, 4, 6, 7]),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(events=st.lists(EVENTS, max_size=30))
def test_an_answer_is_that_of_the_tip_it_names(chains: Chains, events: list[tuple[str, int]]) -> None:
    with TemporaryDirectory() as folder:
        asking = Asking(Path(folder), chains)
        for event in [*events, ("block", 0), ("commit", 0), ("ask", 0), ("read", 0)]:
            asking.do(event)
        asking.end()
