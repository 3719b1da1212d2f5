"""The parameters of a network: always passed as arguments, never read from globals (docs/protocol.md 1)."""

from bisect import bisect_right
from functools import cached_property
from hashlib import sha256
from typing import Final

from attrs import Attribute, field, frozen

from .address import decode_address
from .encoding import MAX_INTEGER, canonical, tagged_hash

BASIS_POINTS: Final = 10_000
DEFAULT_UNIT: Final = "SVC"
"""What coins are called on a network that does not say it."""


@frozen(kw_only=True)
class ProducerChange:
    """Another list of producers from a height on (docs/protocol.md 8a)."""

    height: int
    """The first block that the list is for."""
    producers: tuple[str, ...]
    """The addresses that may make blocks from there on."""


def _check_changes(
    params: "NetworkParams", _: "Attribute[tuple[ProducerChange, ...]]", changes: tuple[ProducerChange, ...]
) -> None:
    """Raise ValueError unless the network can have these changes of its producers."""
    if changes and not params.producers:
        raise ValueError("everybody may make blocks on this network, so no change can name who may")
    before = 0
    for change in changes:
        if change.height <= before:
            raise ValueError(f"the height of the next change must be {before + 1} or more, not {change.height}")
        if not change.producers:
            raise ValueError(f"the change at height {change.height} must name at least one producer")
        if len(set(change.producers)) != len(change.producers):
            raise ValueError(f"the change at height {change.height} must name each producer once")
        before = change.height


@frozen(kw_only=True)
class NetworkParams:
    """All properties of a network. Times are Unix milliseconds, money is base units."""

    name: str
    network_id: int
    chain_id: str
    address_prefix: str
    genesis_time: int
    slot_seconds: int
    slots_per_block: int
    half_life_slots: int
    gap_cap_slots: int
    drift_slots: int
    """How many slots a block may lie ahead of the local clock; a local rule, so no part of the rules hash."""
    memory_kib: int
    initial_target: int
    max_target: int
    min_target: int
    initial_reward: int
    halving_blocks: int
    """0: the reward never halves, and ends before the supply would exceed 2^53 - 1 base units."""
    minimum_fee: int
    account_minimum: int
    """Base units that sender and recipient must keep after each transfer."""
    holding_minimum: int
    multiplier_schedule: tuple[tuple[int, int], ...]
    """Pairs (held slots, basis points), ascending; the first is for a balance that was not held."""
    max_block_transactions: int
    max_block_bytes: int
    transaction_past_seconds: int
    transaction_future_seconds: int
    producers: tuple[str, ...]
    """The addresses that may make blocks; empty if everybody may."""
    allocations: tuple[tuple[str, int], ...]
    """Pairs (address, base units) that exist from the beginning."""
    unit: str = DEFAULT_UNIT
    """What its coins are called, as in "12.5 SVC": 1 to 12 letters; like the name it is no rule, and in no hash."""
    changes: tuple[ProducerChange, ...] = field(default=(), validator=_check_changes)
    """Later lists of producers, by ascending height; no rules, but all nodes of a network must have the same."""

    def slot_time(self, slot: int) -> int:
        """The Unix time in milliseconds at which ``slot`` begins."""
        return self.genesis_time + slot * self.slot_seconds * 1000

    def slot_at(self, now: int) -> int:
        """The slot that the Unix time ``now`` in milliseconds lies in; negative before the genesis."""
        return (now - self.genesis_time) // (self.slot_seconds * 1000)

    def reward(self, height: int) -> int:
        """The base units that the block at ``height`` ≥ 1 creates."""
        if not self.halving_blocks:
            return self.initial_reward if height <= self._rewarded_blocks else 0
        return self.initial_reward >> ((height - 1) // self.halving_blocks)

    def issued_after(self, height: int) -> int:
        """The base units that exist after the block at ``height``: the allocations and the rewards so far."""
        total = self.allocated
        if not self.halving_blocks:
            return total + self.initial_reward * min(height, self._rewarded_blocks)
        reward, left = self.initial_reward, height
        while left > 0 and reward:
            total += reward * min(left, self.halving_blocks)
            reward >>= 1
            left -= self.halving_blocks
        return total

    @cached_property
    def _change_heights(self) -> tuple[int, ...]:
        return tuple(change.height for change in self.changes)

    @cached_property
    def _lists(self) -> tuple[tuple[str, ...], ...]:
        """The producers before the first change, and after each one."""
        return (self.producers, *(change.producers for change in self.changes))

    @cached_property
    def _list_keys(self) -> tuple[frozenset[bytes], ...]:
        return tuple(
            frozenset(decode_address(address, self.address_prefix) for address in producers)
            for producers in self._lists
        )

    def producers_at(self, height: int) -> tuple[str, ...]:
        """The addresses that may make the block at ``height``; empty if everybody may."""
        return self._lists[bisect_right(self._change_heights, height)]

    def producer_keys_at(self, height: int) -> frozenset[bytes]:
        """The 20-byte key hashes of :meth:`producers_at`."""
        return self._list_keys[bisect_right(self._change_heights, height)]

    def blocks_between_at(self, height: int) -> int:
        """How many blocks just before ``height`` its producer must not have made."""
        return len(self.producers_at(height)) // 2

    def undone_by(self, tip: int) -> tuple[int, int]:
        """How many producers together can undo any payment, and of how many; (0, 0) where computing decides that.

        They are those who may make the block after the tip, which is at the height ``tip``.
        """
        listed = len(self.producers_at(tip + 1))
        return (listed // 2 + 1, listed) if listed else (0, 0)

    @cached_property
    def most_blocks_between(self) -> int:
        """The largest :meth:`blocks_between_at` of all heights."""
        return max(len(producers) for producers in self._lists) // 2

    @cached_property
    def supply_limit(self) -> int:
        """The base units that will exist in the end."""
        return self.issued_after(self.halving_blocks * self.initial_reward.bit_length() or MAX_INTEGER)

    @cached_property
    def allocated(self) -> int:
        """The base units that exist from the beginning."""
        return sum(units for _, units in self.allocations)

    @cached_property
    def _rewarded_blocks(self) -> int:
        """Without halving, the height of the last block with a reward."""
        return (MAX_INTEGER - self.allocated) // self.initial_reward if self.initial_reward else 0

    @cached_property
    def rules(self) -> dict[str, object]:
        """The rules of the network as the JSON object that :attr:`rules_hash` commits to (docs/protocol.md 5)."""
        return {
            "chainId": self.chain_id,
            "networkId": self.network_id,
            "addressPrefix": self.address_prefix,
            "genesisTime": str(self.genesis_time),
            "slotSeconds": self.slot_seconds,
            "slotsPerBlock": self.slots_per_block,
            "halfLifeSlots": self.half_life_slots,
            "gapCapSlots": self.gap_cap_slots,
            "memoryKiB": self.memory_kib,
            "initialTarget": f"{self.initial_target:064x}",
            "maxTarget": f"{self.max_target:064x}",
            "minTarget": f"{self.min_target:064x}",
            "initialReward": str(self.initial_reward),
            "halvingBlocks": self.halving_blocks,
            "minimumFee": str(self.minimum_fee),
            "accountMinimum": str(self.account_minimum),
            "holdingMinimum": str(self.holding_minimum),
            "multiplierSchedule": [[held, points] for held, points in self.multiplier_schedule],
            "maxBlockTransactions": self.max_block_transactions,
            "maxBlockBytes": self.max_block_bytes,
            "transactionPastSeconds": self.transaction_past_seconds,
            "transactionFutureSeconds": self.transaction_future_seconds,
            "producers": list(self.producers),
            "allocations": [[address, str(units)] for address, units in self.allocations],
        }

    @cached_property
    def rules_hash(self) -> bytes:
        """32 bytes that commit to every rule of the network."""
        return tagged_hash("svc/rules/v1", canonical(self.rules))

    @property
    def listed_changes(self) -> list[dict[str, object]]:
        """The changes of the producers as JSON, beside :attr:`rules`."""
        return [{"height": str(each.height), "producers": list(each.producers)} for each in self.changes]

    @cached_property
    def changes_hash(self) -> bytes:
        """32 bytes that commit to :attr:`changes`; the order within a list does not count (docs/protocol.md 8a)."""
        changes = [{"height": str(each.height), "producers": sorted(each.producers)} for each in self.changes]
        return tagged_hash("svc/changes/v1", canonical(changes))

    @cached_property
    def genesis_hash(self) -> bytes:
        """The 32-byte id of the block at height 0."""
        return tagged_hash("svc/block-id/v4", tagged_hash("svc/genesis/v1", self.rules_hash) + bytes(8))


MAINNET: Final = NetworkParams(
    name="mainnet",
    network_id=1,
    chain_id="SVC-MAINNET",
    address_prefix="svc",
    genesis_time=1_793_491_200_000,
    slot_seconds=10,
    slots_per_block=6,
    half_life_slots=720,
    gap_cap_slots=120,
    drift_slots=2,
    memory_kib=8192,
    initial_target=2**242,
    max_target=2**244,
    min_target=2**160,
    initial_reward=2_000_000_000,
    halving_blocks=2_100_000,
    minimum_fee=10_000,
    account_minimum=1_000_000,
    holding_minimum=100_000_000_000,
    multiplier_schedule=((0, 10_000), (8_640, 10_200), (60_480, 10_400), (259_200, 10_700), (777_600, 11_000)),
    max_block_transactions=2000,
    max_block_bytes=1_310_720,
    transaction_past_seconds=86_400,
    transaction_future_seconds=600,
    producers=(),
    allocations=(),
)

FAUCET_SEED: Final = sha256(b"svc devnet faucet").digest()
"""The public seed of devnet's faucet; anybody may spend its coins."""
FAUCET: Final = "svcd1qkkdc74lsmkrzphngq8gkl3pygr82umndcxleht"
"""The address of its key."""

DEVNET: Final = NetworkParams(
    name="devnet",
    network_id=2,
    chain_id="SVC-DEVNET",
    address_prefix="svcd",
    genesis_time=1_793_491_200_000,
    slot_seconds=1,
    slots_per_block=2,
    half_life_slots=60,
    gap_cap_slots=10,
    drift_slots=5,
    memory_kib=1024,
    initial_target=2**252,
    max_target=2**254,
    min_target=2**160,
    initial_reward=2_000_000_000,
    halving_blocks=10_000,
    minimum_fee=10_000,
    account_minimum=1_000_000,
    holding_minimum=1_000_000_000,
    multiplier_schedule=((0, 10_000), (60, 10_200), (120, 10_400), (300, 10_700), (600, 11_000)),
    max_block_transactions=2000,
    max_block_bytes=1_310_720,
    transaction_past_seconds=86_400,
    transaction_future_seconds=315_360_000,
    producers=(),
    allocations=((FAUCET, 100_000_000_000_000),),
)

NETWORKS: Final = {params.name: params for params in (MAINNET, DEVNET)}


def known_networks(own: NetworkParams | None) -> tuple[NetworkParams, ...]:
    """The built-in networks and ``own``, once if it is one of them."""
    return (*NETWORKS.values(), *([] if own is None or own in NETWORKS.values() else [own]))
