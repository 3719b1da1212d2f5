"""Whom to call next: anchors and seeds first, familiar nodes before hints, no two in the same part of the network."""

from collections.abc import Collection, Iterable, Sequence

from svcd.p2p.book import Book
from svcd.p2p.peer import Peer


def choose(
    book: Book, count: int, *, now: float, busy: Collection[str], groups: set[str] | None, first: Sequence[str]
) -> list[str]:
    """At most ``count`` endpoints to greet as peers of our choice.

    ``busy`` are those that are peers or being greeted; ``groups`` the parts of the network that we have a peer in,
    which is added to, or None if that does not matter; ``first`` those that come before all others of their kind.
    """
    chosen: list[str] = []
    for tried in (True, False):
        candidates = book.candidates(now, exclude=busy, tried=tried)
        for entry in sorted(candidates, key=lambda entry: (entry.endpoint not in first, book.random())):
            if len(chosen) < count and is_welcome(entry.part(), groups):
                chosen.append(entry.endpoint)
    return chosen


def is_welcome(group: str, groups: set[str] | None) -> bool:
    """Whether no peer is in this part of the network yet; if so, one is from now on."""
    if groups is None:
        return True
    if group in groups:
        return False
    groups.add(group)
    return True


def pick_to_try(book: Book, *, now: float, busy: Collection[str]) -> str | None:
    """One endpoint that is a hint only, by chance, or one whose place another wants; None if none is due.

    Each gets half of the calls where there are both, for strangers can bring about either.
    """
    contested = book.contested(now, exclude=busy)
    if contested is not None and book.random() < 0.5:
        return contested
    hints = book.candidates(now, exclude=busy, tried=False)
    return hints[int(book.random() * len(hints)) % len(hints)].endpoint if hints else contested


def promote(peers: Iterable[Peer], count: int, groups: set[str] | None) -> None:
    """Make at most ``count`` acquaintances peers of our choice: for when nobody else is left to choose from.

    While others are known, who called us must not fill the places of those whom we would call (docs/threats.md).
    """
    for peer in peers:
        if count > 0 and not peer.outbound and is_welcome(peer.group(), groups):
            peer.outbound = True
            count -= 1
