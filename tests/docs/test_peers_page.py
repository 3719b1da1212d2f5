"""The constants in docs/peers.md are those of the code."""

import pytest

from svcd.p2p import peer, peers, relay
from tests.docs.peers_page import PAGE, page

TEXT = PAGE.read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())


def test_the_constants_are_those_of_the_code() -> None:
    assert page(TEXT) == TEXT


@pytest.mark.parametrize(
    "sentence",
    [
        f"with less work than ours, for {peer.LAG_SECONDS:g} seconds",
        f"at most every {peers.MIN_POLL_SECONDS:g} s, that of inbound ones once a minute",
        f"has sent it a hello within the last {peers.CALLED_SECONDS / 60:g} minutes",
        f"has not been called for {peers.ASK_FOR_CALL_SECONDS / 60:g} minutes",
        f"After {peers.UNREACHABLE_SECONDS / 60:g} minutes with peers and without a call",
        f"A block of up to {relay.SMALL_BLOCK // 1024} KiB is posted whole",
    ],
)
def test_numbers_in_sentences_are_those_of_the_code(sentence: str) -> None:
    assert sentence in PROSE


def test_numbers_in_words_are_those_of_the_code() -> None:
    assert "to all outbound peers and to eight inbound ones" in PROSE
    assert relay.OTHERS == 8
    assert peers.INBOUND_POLL_SECONDS == 60
