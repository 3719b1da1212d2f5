"""Prepared databases: devnet with any number of accounts, and blocks made for them in advance.

The accounts are inserted into the database together with a genesis block whose header has their state root. Faucet
transfers would lead to the same rows and the same tree, in minutes instead of a second.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Final

from attrs import frozen

from svcd.chain.accounts import Account
from svcd.chain.address import encode_address, key_hash
from svcd.chain.block import Block, genesis_header
from svcd.chain.history import History
from svcd.chain.params import DEVNET, NetworkParams
from svcd.chain.signature import public_key_of
from svcd.chain.state_tree import StateTree
from svcd.chain.transaction import Draft, Transfer, sign_transfer
from svcd.chain.transition import consensus_root, genesis_head, head_after
from svcd.node.block_template import create_template
from svcd.node.chain_view import ChainView
from svcd.node.chainstate import Chainstate
from svcd.node.changes import BlockStatus, CheckedBlock
from svcd.node.work_search import WorkSearch
from svcd.store.chain_store import ChainWriter
from svcd.store.database import open_writer

FORTUNE = 10**10
"""What each account has at the beginning, in base units."""
_GAP: Final = 2 * DEVNET.slots_per_block
"""Slots between two blocks: so late that the work sinks to the least that devnet demands, a quarter of the usual."""


@frozen
class Signer:
    """The owner of a key; the same number gives the same key in every run."""

    number: int

    @property
    def seed(self) -> bytes:
        """The 32-byte seed of the key."""
        return sha256(b"svcd benchmark: person %d" % self.number).digest()

    @property
    def key(self) -> bytes:
        """The 20-byte key hash."""
        return key_hash(public_key_of(self.seed))

    def pays(self, recipient: bytes, *, amount: int, timestamp: int, reference: str | None = None) -> Transfer:
        """The signer's first transfer, signed; ``timestamp`` in Unix milliseconds."""
        draft = Draft(
            recipient=encode_address(recipient, DEVNET.address_prefix),
            amount=amount,
            fee=DEVNET.minimum_fee,
            nonce=0,
            timestamp=timestamp,
            reference=reference,
        )
        return sign_transfer(draft, seed=self.seed, params=DEVNET)


def unowned_key(number: int) -> bytes:
    """The key hash of an account whose key nobody has."""
    return sha256(b"svcd benchmark: nobody %d" % number).digest()[:20]


def create_chain(path: Path, keys: Iterable[bytes], *, params: NetworkParams = DEVNET) -> None:
    """Create a database at ``path`` in whose genesis each of ``keys`` has FORTUNE."""
    connection = open_writer(path)
    store = ChainWriter(connection)
    commitment = StateTree(store.account_rows)
    head = genesis_head(params)
    accounts: Mapping[bytes, Account] = dict.fromkeys(sorted(keys), Account(FORTUNE))
    with store.commit():
        store.write_accounts(accounts)
        commitment.load(store.every_account(), len(accounts))
        root = consensus_root(params, head.point, History().root)
        header = genesis_header(params, state_root=commitment.root, consensus_root=root)
        stored = store.add_block(Block(header, ()), head.point)
        store.connect_block(stored, (), undo={}, history=head.history.mountains)
    connection.close()


def draft_blocks(path: Path, bodies: Iterable[Iterable[Transfer]], *, params: NetworkParams = DEVNET) -> list[bytes]:
    """Blocks in canonical JSON on the tip of the database at ``path``, one on the other; none is connected there.

    Raises RuntimeError if a transfer does not fit.
    """
    connection = open_writer(path)
    chainstate = Chainstate(params, ChainWriter(connection))
    chainstate.load()
    seed, view, blocks = Signer(-1).seed, chainstate.view(), []
    for body in bodies:
        block = _next_block(view, tuple(body), seed=seed, gap=_GAP)
        view.head = head_after(params, view.head, block.header)
        blocks.append(block.wire())
    connection.close()
    return blocks


def build_blocks(
    path: Path,
    bodies: Iterable[Iterable[Transfer]],
    *,
    gap: int = _GAP,
    params: NetworkParams = DEVNET,
) -> list[bytes]:
    """Blocks in canonical JSON on the tip of the database at ``path``, ``gap`` slots apart; they are connected there.

    Raises RuntimeError if a transfer does not fit or a block is refused.
    """
    connection = open_writer(path)
    # What is prepared need not survive a power loss, and thousands of blocks would wait for the disk.
    connection.execute("PRAGMA synchronous = OFF")
    connector = Chainstate(params, ChainWriter(connection))
    connector.load()
    seed = Signer(-1).seed
    blocks = []
    for body in bodies:
        block = _next_block(connector.view(), tuple(body), seed=seed, gap=gap)
        candidate = CheckedBlock(block, head_after(params, connector.head, block.header))
        if connector.connect([candidate]).outcomes != [BlockStatus.CONNECTED]:
            raise RuntimeError(f"block {block.header.height} was not connected")
        blocks.append(block.wire())
    connection.close()
    return blocks


def _next_block(view: ChainView, transfers: tuple[Transfer, ...], *, seed: bytes, gap: int) -> Block:
    """The block of all ``transfers``, ``gap`` slots after the tip of ``view``, to which it is applied."""
    proposal = create_template(view, seed=seed, slot=view.head.point.slot + gap, transfers=transfers)
    work_nonce = WorkSearch(proposal.header, view.params.memory_kib, 0).run()
    if work_nonce is None or len(proposal.transfers) != len(transfers):
        raise RuntimeError(f"only {len(proposal.transfers)} of {len(transfers)} transfers fit into a block")
    return proposal.sealed(work_nonce, seed)
