"""The holding multiplier: seniority of a minimum balance eases the target (docs/protocol.md 8)."""

from svcd.chain.accounts import Account
from svcd.chain.params import BASIS_POINTS, NetworkParams


def multiplier(params: NetworkParams, account: Account | None, slot: int) -> int:
    """The basis points that a producer with ``account`` in the parent's state has earned at ``slot``."""
    if account is None or account.held_since is None:
        return BASIS_POINTS
    age = slot - account.held_since
    return max((points for held, points in params.multiplier_schedule if age >= held), default=BASIS_POINTS)
