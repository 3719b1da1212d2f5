"""Participation work: Argon2id under a target (docs/protocol.md 6, RFC 9106)."""

from typing import Final

from .block import Header
from .errors import Refusal, RuleViolation
from .params import BASIS_POINTS, NetworkParams

SALT: Final = b"svc/work/v4/salt"
TIME_COST: Final = 1
PARALLELISM: Final = 1
HASH_LENGTH: Final = 32
VERSION: Final = 0x13
_LARGEST: Final = 2**256 - 1


def work_value(core_hash: bytes, work_nonce: bytes, memory_kib: int) -> int:
    """The 256-bit work value of a header's core and a work nonce; takes milliseconds, without the GIL.

    Raises ImportError if argon2-cffi is not installed, which programs that check no work do not need.
    """
    from argon2.low_level import Type, hash_secret_raw

    value = hash_secret_raw(
        core_hash + work_nonce,
        SALT,
        time_cost=TIME_COST,
        memory_cost=memory_kib,
        parallelism=PARALLELISM,
        hash_len=HASH_LENGTH,
        type=Type.ID,
        version=VERSION,
    )
    return int.from_bytes(value, "big")


def effective_target(base_target: int, multiplier: int) -> int:
    """The bound of work values: the base target times the multiplier in basis points, at most 2^256 − 1."""
    return min(base_target * multiplier // BASIS_POINTS, _LARGEST)


def block_work(base_target: int) -> int:
    """The work that a block adds to its chain; the multiplier does not count."""
    return 2**256 // base_target


def check_work(header: Header, params: NetworkParams) -> None:
    """Raise RuleViolation(WORK) unless the header's work value is below its effective target."""
    value = work_value(header.core_hash, header.work_nonce, params.memory_kib)
    if value >= effective_target(header.base_target, header.multiplier):
        raise RuleViolation(Refusal.WORK, f"the work of block {header.hash.hex()} does not reach its target")
