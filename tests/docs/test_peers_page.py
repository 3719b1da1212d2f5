"""The constants in docs/peers.md are those of the code."""

from tests.docs.peers_page import PAGE, page


def test_the_constants_are_those_of_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text)
