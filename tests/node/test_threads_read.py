"""What threads read of the objects that belong to the reactor (docs/architecture.md "Threads")."""

import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import pytest
from twisted.internet.defer import Deferred, execute

from svcd.node.block_template import by_fee_rate
from svcd.node.mempool import Mempool
from svcd.node.miner import Miner, MinerSettings
from svcd.node.transaction_pool import TransactionPool
from tests.chains import ChainBuilder, key_of
from tests.node.bench import Node
from tests.node.conftest import MakeNode
from tests.support import result_of

P = ParamSpec("P")
T = TypeVar("T")

FOR_ANY_THREAD = {"Mempool.transfer"}
"""The methods of the mempool that threads call. What `lines` returns is read there, too; the reactor calls it."""


class RealThread:
    """A worker that does each job at once in a thread of its own; the reactor's thread waits."""

    def __init__(self) -> None:
        self.jobs = 0

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Deferred[T]:
        done: list[Deferred[T]] = []
        thread = threading.Thread(target=lambda: done.append(execute(function, *args, **kwargs)))
        thread.start()
        thread.join()
        self.jobs += 1
        return done[0]


@pytest.fixture
def called_in_threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The methods of the mempool and of the transaction pool that any thread but this one calls from now on."""
    called: set[str] = set()
    reactor = threading.get_ident()

    def watched(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != reactor:
                called.add(name)
            return method(*args, **kwargs)

        return call

    for kind in (Mempool, TransactionPool):
        for name, member in vars(kind).items():
            if inspect.isfunction(member) and name != "__init__":
                monkeypatch.setattr(kind, name, watched(f"{kind.__name__}.{name}", member))
            elif isinstance(member, property) and member.fget is not None:
                monkeypatch.setattr(kind, name, property(watched(f"{kind.__name__}.{name}", member.fget)))
    return called


def test_threads_call_nothing_of_the_mempool_but_what_is_for_any_thread(
    make_node: MakeNode, chain: ChainBuilder, called_in_threads: set[str]
) -> None:
    checker, writer = RealThread(), RealThread()
    node = make_node(checker=checker, writer=writer)
    transfers = [chain.transfer("alice", "bob", 5) for _ in range(3)]
    assert [node.send(transfer) for transfer in transfers] == ["accepted"] * 3
    context: Any = node
    miner = Miner(context, MinerSettings(key_of("p").seed, checker, 1, random=bytes, may_produce=lambda: True))
    template = result_of(Deferred.fromCoroutine(miner._new_template()))
    assert template is not None
    assert [transfer.txid for transfer in template.transfers] == [transfer.txid for transfer in transfers]
    node.submit(chain.block(transfers=transfers))
    assert len(node.mempool) == 0

    assert checker.jobs
    assert writer.jobs
    assert called_in_threads == FOR_ANY_THREAD


@pytest.fixture
def switching() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("switching")
def test_a_thread_reads_one_state_while_the_reactor_changes_the_mempool(node: Node, chain: ChainBuilder) -> None:
    transfers = [chain.transfer(name, "dave", 5) for _ in range(16) for name in ("alice", "bob")]
    before, after = transfers[:16], transfers[16:]
    assert [node.send(transfer) for transfer in before] == ["accepted"] * 16
    expected = [transfer.txid for transfer in by_fee_rate(node.mempool.lines())]
    lines, read, failures = node.mempool.lines(), list[bytes](), list[BaseException]()
    begun, changed = threading.Event(), threading.Event()

    def job() -> None:
        try:
            while not changed.is_set():
                for transfer in transfers:
                    assert node.mempool.transfer(transfer.txid) in (None, transfer)
                begun.set()
            read.extend(transfer.txid for transfer in by_fee_rate(lines))
        except BaseException as error:
            failures.append(error)
            begun.set()

    thread = threading.Thread(target=job)
    thread.start()
    begun.wait()
    outcomes = [node.send(transfer) for transfer in after]
    node.submit(chain.block(transfers=before))
    changed.set()
    thread.join()

    assert outcomes == ["accepted"] * 16
    assert failures == []
    assert read == expected, "the snapshot has changed"
    assert len(node.mempool) == 16


def test_they_are_written_down() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    section = text.partition("\n## Threads\n")[2].partition("\n## ")[0]

    assert section, 'docs/architecture.md has no section "Threads"'
    for name in (*FOR_ANY_THREAD, "Mempool.lines", "ChainManager.busy", "WebhookService.running"):
        assert name in section, name
