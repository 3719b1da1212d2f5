"""The waiting transfers counted by fee rate: what the next block takes, and in how many blocks a fee gets in.

Miners choose by fee per byte (docs/protocol.md 12). A bucket spans a sixteenth of its rates at most, so that the number
of buckets is small whatever the fees are. All answers err on the side of a longer wait: a transfer comes after all
others of its bucket. A transfer behind a cheaper one of its sender, or behind a gap in the nonces, counts by its own
rate.
"""

from typing import Final

from attrs import define, evolve, field, frozen

from svcd.chain.block import HEADER_ROOM
from svcd.chain.params import NetworkParams

RATE_SCALE: Final = 2**20
"""A factor on fees per byte that makes them integers."""
_FRACTION_BITS: Final = 4
_PARTS: Final = 1 << _FRACTION_BITS
"""Buckets from each power of two to the next."""


def fee_for_rate(rate: int, size: int) -> int:
    """The least fee of ``size`` bytes that has at least ``rate``; rates are rounded down."""
    return -(-rate * size // RATE_SCALE)


def block_room(params: NetworkParams) -> int:
    """The bytes of a block that its transfers may take, each with the comma after it."""
    return params.max_block_bytes - HEADER_ROOM


@define
class _Bucket:
    count: int = 0
    size: int = 0
    """Bytes in a block, with commas."""
    fees: int = 0

    def take(self, count: int, size: int, *, empty: bool) -> "_Bucket":
        """Take out what fits into ``count`` transfers and ``size`` bytes; one at least if the block is ``empty``."""
        fits = min(self.count, max(min(count, size * self.count // self.size), int(empty)))
        part = _Bucket(fits, self.size * fits // self.count, self.fees * fits // self.count)
        self.count, self.size, self.fees = self.count - part.count, self.size - part.size, self.fees - part.fees
        return part


@frozen
class ExpectedBlock:
    """What a block is expected to take of the mempool."""

    count: int
    size: int
    """Bytes of the transfers in the block."""
    fees: int
    """Base units."""
    rate: int
    """The fee rate in 2^-20 base units a byte at which the block ends: higher ones get in; 0 if it has room left."""


@frozen
class FeeBand:
    """The waiting transfers of a range of fee rates."""

    rate: int
    """Where the range begins, in 2^-20 base units a byte."""
    count: int


@define
class FeeHistogram:
    """Count, bytes and fees of the waiting transfers by fee rate in 2^-20 base units a byte."""

    _buckets: dict[int, _Bucket] = field(factory=dict, init=False)

    def add(self, rate: int, *, size: int, fee: int) -> None:
        """Count a transfer of ``size`` bytes."""
        bucket = self._buckets.get(index := _index(rate))
        if bucket is None:
            bucket = self._buckets[index] = _Bucket()
        bucket.count += 1
        bucket.size += size + 1
        bucket.fees += fee

    def remove(self, rate: int, *, size: int, fee: int) -> None:
        """Count no more a transfer that was added with the same numbers."""
        bucket = self._buckets[index := _index(rate)]
        bucket.count -= 1
        bucket.size -= size + 1
        bucket.fees -= fee
        if not bucket.count:
            del self._buckets[index]

    def blocks_until(self, rate: int, params: NetworkParams, *, size: int = 0) -> int:
        """In how many blocks a waiting transfer of ``rate`` gets in, or one of ``size`` bytes that is sent now."""
        own = _index(rate)
        ahead = [bucket for index, bucket in self._buckets.items() if index >= own]
        count = sum(bucket.count for bucket in ahead) + (1 if size else 0)
        return _blocks(params, count, sum(bucket.size for bucket in ahead) + size)

    def rate_within(self, blocks: int, params: NetworkParams, *, size: int) -> int:
        """The least fee rate with which a transfer of ``size`` bytes that is sent now gets in within ``blocks``."""
        count, total = 1, size
        for index in sorted(self._buckets, reverse=True):
            bucket = self._buckets[index]
            count, total = count + bucket.count, total + bucket.size
            if _blocks(params, count, total) > blocks:
                return _lower_edge(index + 1)
        return 0

    def expected_blocks(self, params: NetworkParams, *, limit: int) -> list[ExpectedBlock]:
        """The next ``limit`` blocks at most, of which the last has room left unless there are more; one at least.

        If a block takes a part of a bucket, it takes the average transfers of the bucket.
        """
        blocks: list[ExpectedBlock] = []
        count = size = fees = 0
        for index in sorted(self._buckets, reverse=True):
            bucket = evolve(self._buckets[index])
            while bucket.count:
                part = bucket.take(params.max_block_transactions - count, block_room(params) - size, empty=not count)
                count, size, fees = count + part.count, size + part.size, fees + part.fees
                if bucket.count:
                    blocks.append(ExpectedBlock(count, size, fees, _lower_edge(index + 1)))
                    if len(blocks) == limit:
                        return blocks
                    count = size = fees = 0
        return [*blocks, ExpectedBlock(count, size, fees, 0)]

    def bands(self, limit: int) -> list[FeeBand]:
        """All transfers in at most ``limit`` bands of about the same ratio, the lowest rates first."""
        if not self._buckets:
            return []
        lowest, highest = min(self._buckets), max(self._buckets)
        width = -(-(highest + 1 - lowest) // limit)
        counts = dict.fromkeys(range(lowest, highest + 1, width), 0)
        for index, bucket in self._buckets.items():
            counts[index - (index - lowest) % width] += bucket.count
        return [FeeBand(_lower_edge(index), count) for index, count in counts.items()]


def _blocks(params: NetworkParams, count: int, size: int) -> int:
    """The blocks that so many transfers fill."""
    return max(-(-count // params.max_block_transactions), -(-size // block_room(params)), 1)


def _index(rate: int) -> int:
    """The number of the bucket of ``rate``: its binary exponent, and the four bits after its highest one."""
    rate = max(rate, _PARTS)
    shift = rate.bit_length() - _FRACTION_BITS - 1
    return shift * _PARTS + (rate >> shift) - _PARTS


def _lower_edge(index: int) -> int:
    """The least rate of a bucket."""
    shift, part = divmod(index, _PARTS)
    return (_PARTS + part) << shift
