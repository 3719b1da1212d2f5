"""docs/limits.md is that of the code."""

from tests.docs.limits_page import PAGE, page


def test_the_page_is_as_the_code_makes_it() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
