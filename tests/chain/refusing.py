"""How a test says that something breaks a rule."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from svcd.chain.errors import Refusal, RuleViolation


@contextmanager
def refuses(code: Refusal, *words: str) -> Iterator[None]:
    """The block below breaks the rule ``code``, and the sentence that says so holds ``words``."""
    with pytest.raises(RuleViolation) as caught:
        yield
    assert caught.value.code is code, f"{caught.value.code}: {caught.value}"
    for word in words:
        assert word in caught.value.detail
