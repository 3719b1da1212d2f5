"""docs/command-line.md names every command as its help does."""

from tests.docs.command_line_page import PAGE, page


def test_the_commands_are_those_of_the_program() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == page(text)
