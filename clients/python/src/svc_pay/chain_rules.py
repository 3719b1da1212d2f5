"""What the rules of a network say about headers (docs/protocol.md 1 and 5 to 9), for clients that check proofs."""

from dataclasses import dataclass
from typing import Final

WORK_LIMIT: Final = 2**256
"""Above every target and all work."""

_RADIX: Final = 65_536
_MAX_SUPPLY: Final = 2**53 - 1
"""Base units."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRules:
    """The rules of a network as far as clients need them, and the changes of its producers."""

    rules_hash: bytes
    genesis_state_root: bytes
    genesis_time: int
    """When slot 0 begins, in Unix milliseconds."""
    slot_seconds: int
    slots_per_block: int
    half_life_slots: int
    gap_cap_slots: int
    memory_kib: int
    """Of one evaluation of Argon2id."""
    initial_target: int
    max_target: int
    min_target: int
    initial_reward: int
    """Base units."""
    halving_blocks: int
    """0: the reward never halves, and ends before more base units would exist than 2^53 - 1."""
    allocated: int
    """Base units that exist from the beginning."""
    minimum_fee: int
    """Of a transfer, in base units."""
    multipliers: tuple[int, ...]
    """Of the schedule, in basis points."""
    max_block_transactions: int
    past_seconds: int
    """How much older than its block a transfer may be."""
    future_seconds: int
    """How much newer than its block a transfer may be."""
    producers: tuple[str, ...] = ()
    """The addresses that may make blocks; everybody may where there are none."""
    changes: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Later lists of producers: pairs of the first height and the addresses, by ascending height."""

    def producers_at(self, height: int) -> tuple[str, ...]:
        """The addresses that may make the block at ``height``; none if everybody may (section 8a)."""
        later = [producers for first, producers in self.changes if first <= height]
        return later[-1] if later else self.producers

    def slot_time(self, slot: int) -> int:
        """The Unix time in milliseconds at which a slot begins."""
        return self.genesis_time + 1000 * slot * self.slot_seconds

    def target_at(self, lag: int) -> int:
        """The base target of a block whose parent is ``lag`` slots behind the schedule (section 7)."""
        # Rounded toward zero, as the rule does; Python's division rounds down.
        scaled = abs(lag) * _RADIX // self.half_life_slots
        if scaled >= 256 * _RADIX:
            return self.max_target if lag > 0 else self.min_target
        exponent = scaled if lag >= 0 else -scaled
        part, shift = exponent % _RADIX, exponent // _RADIX - 16
        cubic = 195_766_423_245_049 * part + 971_821_376 * part**2 + 5_127 * part**3 + 2**47
        target = self.initial_target * (_RADIX + (cubic >> 48))
        return min(max(target << shift if shift >= 0 else target >> -shift, self.min_target), self.max_target)

    def next_target(self, height: int, clock: int) -> int:
        """The base target of the block at ``height`` from 1 on, whose parent has the difficulty clock ``clock``."""
        return self.initial_target if height == 1 else self.target_at(clock - self.slots_per_block * (height - 2))

    def issued_after(self, height: int) -> int:
        """The base units that exist after the block at a height."""
        issued, reward, left = self.allocated, self.initial_reward, height
        if not self.halving_blocks:
            return issued + reward * min(left, (_MAX_SUPPLY - issued) // reward) if reward else issued
        while left > 0 and reward:
            issued += reward * min(left, self.halving_blocks)
            reward, left = reward // 2, left - self.halving_blocks
        return issued


MAINNET_RULES: Final = ChainRules(
    rules_hash=bytes.fromhex("c0ab3a203897968413099c4fa07afaf3054e5b98dd622765be52d4d7cb7f51ba"),
    genesis_state_root=bytes(32),
    genesis_time=1_793_491_200_000,
    slot_seconds=10,
    slots_per_block=6,
    half_life_slots=720,
    gap_cap_slots=120,
    memory_kib=8_192,
    initial_target=2**242,
    max_target=2**244,
    min_target=2**160,
    initial_reward=2_000_000_000,
    halving_blocks=2_100_000,
    allocated=0,
    minimum_fee=10_000,
    multipliers=(10_000, 10_200, 10_400, 10_700, 11_000),
    max_block_transactions=2_000,
    past_seconds=86_400,
    future_seconds=600,
)
DEVNET_RULES: Final = ChainRules(
    rules_hash=bytes.fromhex("6daf3cce2ccf26b409502e7ae6397add69b9828d4c2c8cfcc5495e9ea639c599"),
    genesis_state_root=bytes.fromhex("12a2b68ea36fb0777a06cce1443e55f845e1770aaffa9cdbdc0fa91c6e938e70"),
    genesis_time=1_793_491_200_000,
    slot_seconds=1,
    slots_per_block=2,
    half_life_slots=60,
    gap_cap_slots=10,
    memory_kib=1_024,
    initial_target=2**252,
    max_target=2**254,
    min_target=2**160,
    initial_reward=2_000_000_000,
    halving_blocks=10_000,
    allocated=100_000_000_000_000,
    minimum_fee=10_000,
    multipliers=(10_000, 10_200, 10_400, 10_700, 11_000),
    max_block_transactions=2_000,
    past_seconds=86_400,
    future_seconds=315_360_000,
)


def block_work(base_target: int) -> int:
    """The work that a block adds to its chain; its multiplier does not count."""
    return WORK_LIMIT // base_target


def effective_target(base_target: int, multiplier: int) -> int:
    """The bound of work values of a header with this multiplier in basis points (section 6)."""
    return min(base_target * multiplier // 10_000, WORK_LIMIT - 1)
