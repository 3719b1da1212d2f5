"""How many files may be open, whatever the shell grants at first."""

import resource

import pytest

from svcd.process.descriptors import WANTED, open_many

WITHOUT_END = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("granted", "taken", "may_open"),
    [
        ((1_024, 1_048_576), (WANTED, 1_048_576), WANTED),
        ((1_024, 4_096), (4_096, 4_096), 4_096),
        ((1_024, WITHOUT_END), (WANTED, WITHOUT_END), WANTED),
        ((1_024, 1_024), None, 1_024),
        ((20_000, 30_000), None, 20_000),
        ((WITHOUT_END, WITHOUT_END), None, WANTED),
    ],
)
def test_as_many_as_are_wanted_or_may_be(
    monkeypatch: pytest.MonkeyPatch, granted: tuple[int, int], taken: tuple[int, int] | None, may_open: int
) -> None:
    asked: list[tuple[int, tuple[int, int]]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: granted)
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append((which, limits)))
    assert open_many() == may_open
    assert asked == ([] if taken is None else [(resource.RLIMIT_NOFILE, taken)])
