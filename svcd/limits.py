"""Limits as data, for `/operator/limits` and docs/limits.md: a constant that limits something is one :func:`limit`."""

from typing import Final, TypeVar

from attrs import frozen

N = TypeVar("N", int, float)

# Attacks that the limits of several modules stop.
TOO_MANY_REQUESTS: Final = "More requests than the node can answer"
IDLE_CONNECTIONS: Final = "Idle connections, to use up sockets"
LARGE_BODY: Final = "A body larger than memory or disk"
MEMPOOL_FLOOD: Final = "Filling the mempool"
FUTURE_BLOCKS: Final = "Blocks of the future, to fill memory or to get ahead"
SIDE_BLOCKS: Final = "Filling the disk with blocks of little work, forked off far below the tip"
ORPHANS: Final = (
    "Blocks without parents, to make the node do memory-hard work, fill its memory or ask its peers without end"
)
MALFORMED_POSTS: Final = "Endless malformed posts, to have them read"
USED_NONCES: Final = "Endless transfers with used nonces, to have each looked up on disk"
STALLING_PEER: Final = "A peer that stalls"
UNREAD_ANSWERS: Final = (
    "Requesting megabytes on many connections without reading them, to fill memory or occupy all connections"
)
ENDLESS_ANSWER: Final = "An endless answer, or one that never comes or trickles"
DEAD_RECEIVER: Final = "A receiver that never works, to keep the node retrying without end"
STALLING_RECEIVER: Final = "A receiver that stalls, answers without end or sends a gzip bomb"
LONG_LISTS: Final = "Asking for the payments or the statement of a busy address, to make the node read without end"
LOOK_ALIKES: Final = (
    "Sending thousands of transfers between addresses that look like others, or under a merchant's reference, to make "
    "lists and verifications slow"
)
ENDLESS_LOG: Final = (
    "Control characters, to forge log lines or control a terminal, or endless log lines, to fill the disk"
)
WRONG_PAYMENTS: Final = "Endless wrong payments, to make a node send as many events"
MANY_WATCHES: Final = "More watches than the node can follow"


@frozen
class Limit:
    """One limit in force."""

    name: str
    value: float
    """0 = no limit."""
    unit: str
    """What the value is a number of: "bytes", "seconds", "requests/s", or the plural of what is counted."""
    stops: str
    """The attack, as docs/threats.md names it."""
    setting: str | None = None
    """The configuration key that changes it, such as "limits.connections"; None for a constant of the code."""


_constants: Final[list[Limit]] = []


def limit(value: N, name: str, unit: str, stops: str) -> N:
    """Add a constant to the limits, as the module that enforces it is imported; returns ``value``.

    The rules of the chain know no limits of a node: their constants are added by the modules that apply them.
    """
    _constants.append(Limit(name, value, unit, stops))
    return value


def constant_limits() -> list[Limit]:
    """The limits of all modules imported so far, by the attack that they stop."""
    return sorted(_constants, key=lambda constant: (constant.stops, constant.name))
