"""The next target, aserti3-2d on a slot clock with capped gaps, and the holding multiplier (docs/protocol.md 7, 8)."""

from typing import Final

from .accounts import Account
from .params import BASIS_POINTS, NetworkParams

_RADIX: Final = 65536


def asert(initial: int, offset: int, half_life: int) -> int | None:
    """``initial`` doubled for every ``half_life`` in ``offset``, by which the chain is behind its schedule.

    Both have the same unit; a chain ahead of its schedule has a negative offset, which halves. None if the exponent is
    beyond ±256: a large offset must not make the shift arbitrarily large.
    """
    scaled = abs(offset) * _RADIX // half_life
    exponent = scaled if offset >= 0 else -scaled
    if abs(exponent) >= 256 * _RADIX:
        return None
    whole, part = exponent >> 16, exponent & 0xFFFF
    cubic = 195_766_423_245_049 * part + 971_821_376 * part**2 + 5_127 * part**3 + 2**47
    target = initial * (_RADIX + (cubic >> 48))
    shift = whole - 16
    return target << shift if shift >= 0 else target >> -shift


def target_at(params: NetworkParams, lag: int) -> int:
    """The base target of a block whose parent is ``lag`` slots of the difficulty clock behind the schedule."""
    target = asert(params.initial_target, lag, params.half_life_slots)
    if target is None:
        return params.max_target if lag > 0 else params.min_target
    return min(max(target, params.min_target), params.max_target)


def next_target(params: NetworkParams, *, height: int, clock: int) -> int:
    """The base target of the block at ``height`` ≥ 1, whose parent has ``clock``."""
    return params.initial_target if height == 1 else target_at(params, clock - params.slots_per_block * (height - 2))


def next_clock(params: NetworkParams, *, parent_height: int, parent_clock: int, gap: int) -> int:
    """The clock of a block ``gap`` slots after its parent; it starts with block 1, and counts a gap up to the cap."""
    return parent_clock + min(gap, params.gap_cap_slots) if parent_height else 0


def multiplier(params: NetworkParams, account: Account | None, slot: int) -> int:
    """The basis points that a producer with ``account`` in the parent's state has earned at ``slot``."""
    if account is None or account.held_since is None:
        return BASIS_POINTS
    age = slot - account.held_since
    return max((points for held, points in params.multiplier_schedule if age >= held), default=BASIS_POINTS)
