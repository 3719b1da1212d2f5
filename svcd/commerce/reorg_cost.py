"""What it costs to undo a payment: the hashes that an attacker's chain must have (docs/payments.md "Confirmations").

Depth says nothing about cost: twelve blocks of a young network take minutes on one computer.
"""

from functools import lru_cache
from itertools import pairwise
from statistics import median_low
from typing import Final

from attrs import frozen

from svcd.chain.params import BASIS_POINTS, NetworkParams
from svcd.chain.units import BASE_UNITS_PER_COIN
from svcd.chain.work import block_work
from svcd.commerce.payment import HASHES_PER_CORE_HOUR, ChainTip, PaymentWork
from svcd.commerce.payment_request import DEFAULT_CONFIRMATIONS, MAX_CONFIRMATIONS
from svcd.store.chain_store import ChainReader

WINDOW: Final = 1_440
"""Blocks, about a day, whose median is the work of a block today."""
DEFAULT_COIN_PRICE: Final = BASE_UNITS_PER_COIN
"""One unit of the currency, in hundred-millionths of it."""
DEFAULT_HASH_PRICE: Final = BASE_UNITS_PER_COIN // 100
"""What an hour of one core costs to rent, in hundred-millionths of a currency such as euro or dollar."""
_CACHED: Final = 1_024


@frozen
class RecentWork:
    """The work of the newest blocks."""

    hashes_per_block: int
    """The median of the expected hashes of a block, at least 1."""
    hashes_per_second: int
    """The expected hashes of all of them, by the time that they took."""
    blocks: int
    """How many they are, at most WINDOW; with none, the figures are those of a block at the first target."""


class ReorgCosts:
    """Measures the work on the chain that ``reader`` sees; for the thread that owns it."""

    def __init__(self, params: NetworkParams, reader: ChainReader) -> None:
        self._params = params
        self._reader = reader
        self._work_up_to = lru_cache(_CACHED)(self._read_work)
        self._work_before = lru_cache(_CACHED)(self._read_work_before)
        self._of = lru_cache(_CACHED)(self._measure)
        # Read in a millisecond, and asked for by each payment that is evaluated at the same tip.
        self.recent = lru_cache(2)(self._read_recent)

    def of(self, block_hash: bytes, tip: ChainTip) -> PaymentWork | None:
        """The work from the block of a payment up to a tip above it; None if the node has dropped either of them."""
        return self._of(block_hash, tip)

    def _measure(self, block_hash: bytes, tip: ChainTip) -> PaymentWork | None:
        before, up_to = self._work_before(block_hash), self._work_up_to(tip.hash)
        if before is None or up_to is None:
            return None
        return PaymentWork(expected_hashes(self._params, up_to - before), self.recent(tip).hashes_per_block)

    def _read_work(self, block_hash: bytes) -> int | None:
        point = self._reader.point(block_hash)
        return None if point is None else point.work

    def _read_work_before(self, block_hash: bytes) -> int | None:
        block = self._reader.stored(block_hash)
        return None if block is None else self._read_work(block.parent)

    def _read_recent(self, tip: ChainTip) -> RecentWork:
        """The work of the newest canonical blocks up to the height of ``tip``."""
        params, points = self._params, self._reader.work_and_slots(tip.height, limit=WINDOW + 1)
        if len(points) < 2:
            hashes = max(expected_hashes(params, block_work(params.initial_target)), 1)
            return RecentWork(hashes, hashes // (params.slots_per_block * params.slot_seconds), 0)
        (first, began), (last, ended) = points[0], points[-1]
        works = [after - before for (before, _), (after, _) in pairwise(points)]
        median = max(expected_hashes(params, median_low(works)), 1)
        seconds = max((ended - began) * params.slot_seconds, 1)
        return RecentWork(median, expected_hashes(params, last - first) // seconds, len(works))


def expected_hashes(params: NetworkParams, work: int) -> int:
    """The hashes that so much work of a chain takes an attacker with the highest holding multiplier, rounded down."""
    highest = max(points for _, points in params.multiplier_schedule)
    return work * BASIS_POINTS // highest


@frozen
class Advice:
    """How many confirmations a payment should have."""

    confirmations: int
    capped: bool
    """Whether even so many cost less to undo than the payment is worth."""
    cost: int
    """What it costs to undo so many, in hundred-millionths of the currency, rounded down."""


def advised_confirmations(amount: int, coin_price: int, hash_price: int, hashes_per_block: int) -> Advice:
    """The confirmations that make undoing cost more than ``amount`` base units, within the default and the maximum.

    The prices of a coin and of an hour of one core are in hundred-millionths of one currency.
    """
    # Both sides are multiplied by the hashes of an hour, so that nothing is rounded.
    value, per_block = amount * coin_price * HASHES_PER_CORE_HOUR, hashes_per_block * hash_price * BASE_UNITS_PER_COIN
    wanted = value // per_block + 1
    confirmations = min(max(wanted, DEFAULT_CONFIRMATIONS), MAX_CONFIRMATIONS)
    cost = confirmations * hashes_per_block * hash_price // HASHES_PER_CORE_HOUR
    return Advice(confirmations, wanted > MAX_CONFIRMATIONS, cost)
