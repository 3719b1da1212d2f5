"""Helpers for tests of the chainstate: blocks given straight to the writer's thread, and forks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count

from svcd.chain.block import Block
from svcd.chain.errors import Refusal, Wait
from svcd.chain.forkchoice import tie_winner
from svcd.node.changes import BlockStatus, ChainChange, CheckedBlock, ConnectResult
from svcd.node.pending_change import PendingChange
from tests.chains import ChainBuilder
from tests.node.bench import Node, code_of
from tests.store.statements import trace

CONNECTED, SIDE, KNOWN = BlockStatus.CONNECTED, BlockStatus.SIDE, BlockStatus.KNOWN


class _TakeBack(Exception):
    """Ends what is not to be kept."""


def connect(node: Node, chain: ChainBuilder, *blocks: Block) -> ConnectResult:
    """What the writer's thread makes of blocks that have passed every check but those of the state."""
    return node.chainstate.connect([CheckedBlock(block, chain.head_after(block)) for block in blocks])


def connect_all(node: Node, chain: ChainBuilder, *blocks: Block) -> ChainChange:
    """The one change that comes of valid blocks of which the last becomes the tip."""
    connected = connect(node, chain, *blocks)
    assert connected.invalid == {}
    assert connected.outcomes[-1] is CONNECTED
    assert connected.change is not None
    assert connected.change.tip == node.chainstate.tip == node.store.tip() == chain.point_after(blocks[-1])
    sound(node, chain, blocks[-1])
    return connected.change


def codes(connected: ConnectResult) -> list[BlockStatus | Refusal | Wait]:
    return list(map(code_of, connected.outcomes))


def sound(node: Node, chain: ChainBuilder, tip: Block | None) -> None:
    """Memory, disk and the maker of the blocks agree on every account."""
    assert node.accounts() == chain.accounts_after(tip)
    assert node.store.tip() == node.chainstate.tip == chain.point_after(tip)
    if tip is not None:
        assert node.root == tip.header.state_root


def hashes(blocks: list[Block]) -> list[bytes]:
    return [block.header.hash for block in blocks]


@contextmanager
def commits(node: Node) -> Iterator[list[str]]:
    """The beginnings and ends of database transactions while the block lasts."""
    seen: list[str] = []
    trace(node.connections[0], lambda text: seen.append(text) if text.startswith(("BEGIN", "COMMIT")) else None)
    yield seen
    trace(node.connections[0], None)


@contextmanager
def undoing(node: Node) -> Iterator[Callable[[], bytes]]:
    """Lets the newest block be undone as in a reorganisation, again and again; all is taken back in the end."""
    chainstate = node.chainstate
    pending = chainstate._pending = PendingChange(chainstate.head, chainstate.view().state)

    def undo() -> bytes:
        chainstate._disconnect_tip()
        node.store.write_accounts(pending.state.changed)
        return pending.state.root

    with suppress(_TakeBack), node.store.commit():
        yield undo
        raise _TakeBack


def branch(chain: ChainBuilder, parent: Block | None, length: int, name: str) -> list[Block]:
    """Blocks that each pay somebody new, spend from one account, and carry a reference."""
    blocks: list[Block] = []
    for _ in range(length):
        nonce, height = chain.account_after(parent, "alice").nonce, chain.point_after(parent).height + 1
        payment = chain.transfer("alice", f"{name}{height}", height, nonce=nonce, reference=f"{name}-{height}")
        parent = chain.block(parent, producer=name, transfers=[payment])
        blocks.append(parent)
    return blocks


def fork(chain: ChainBuilder, depth: int) -> tuple[list[Block], list[Block], list[Block]]:
    """A trunk of two blocks, ``depth`` blocks on it, and as many others that lose the tie, and one more on those."""
    trunk = branch(chain, None, 2, "t")
    old = branch(chain, trunk[-1], depth, "b")
    new = branch(chain, trunk[-1], depth - 1, "c")
    parent = new[-1] if new else trunk[-1]
    rivals = (chain.block(parent, producer=f"c{number}") for number in count())
    last = old[-1].header.hash
    new.append(next(rival for rival in rivals if tie_winner(rival.header.hash, last) == last))
    return trunk, old, [*new, *branch(chain, new[-1], 1, "c")]
