"""The alarm that nodes of a network have different changes of its producers (docs/protocol.md 8a).

A pure function of what peers say and show. It says who and how many they are, because any single one may lie.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from svcd.chain.params import NetworkParams
from svcd.p2p.peer import Peer

_MAX_NAMED: Final = 3


def changes_alarm(params: NetworkParams, height: int, peers: Iterable[Peer]) -> str:
    """A sentence about those of ``peers`` that have other changes than ``params``; "" if none says so.

    ``height`` is that of the tip here.
    """
    telling = [peer for peer in peers if peer.changes_hash]
    others = [peer for peer in telling if peer.changes_hash != params.changes_hash]
    if not others:
        return ""
    have = "has" if len(others) == 1 else "have"
    who = f"{len(others)} of {_count(len(telling))} ({_names(others)})"
    said = f"{who} {have} other changes of the producers than this node"
    refused = [peer for peer in others if peer.disputed]
    if refused:
        return (
            f"{said}, and the chain of {_names(refused)} is not followed: {refused[-1].disputed}. If the others are "
            "right, get the network's newest file and restart this node with it"
        )
    coming = next((change.height for change in params.changes if change.height > height), None)
    when = "" if coming is None else f" before height {coming}, the next change here"
    return f"{said}: compare the files of the network, all nodes need the newest one{when}"


def _count(peers: int) -> str:
    return "1 peer" if peers == 1 else f"{peers} peers"


def _names(peers: Sequence[Peer]) -> str:
    named = [peer.endpoint for peer in peers[:_MAX_NAMED]]
    more = len(peers) - len(named)
    return ", ".join(named) + (f" and {more} more" if more else "")
