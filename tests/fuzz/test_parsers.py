"""The laws of the fuzz targets on what they begin with, on what was ever found, and on small changes of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from svcd.chain.errors import RuleViolation
from tests.fuzz import parsers, requests
from tests.fuzz.__main__ import FOUND
from tests.fuzz.parsers import TARGETS

SEEDS = [(name, seed) for name, target in TARGETS.items() for seed in target.seeds]
FILES = [(path.parent.name, path.read_bytes()) for path in sorted(FOUND.rglob("*")) if path.is_file()]
SLOW = {"http", "block"}
"""Targets with fewer examples here: a site is made for each, or a whole block read."""


@pytest.mark.parametrize(("name", "data"), SEEDS + FILES)
def test_the_seeds_and_findings_of_fuzzing(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


EDITS = st.lists(st.tuples(st.integers(0, 4096), st.integers(0, 3), st.binary(max_size=4)), max_size=4)


def edited(data: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """The data with small pieces put in and taken out."""
    for place, removed, added in edits:
        at = place % (len(data) + 1)
        data = data[:at] + added + data[at + removed :]
    return data


@given(st.sampled_from([seed for seed in SEEDS if seed[0] not in SLOW]), EDITS)
def test_small_changes(seed: tuple[str, bytes], edits: list[tuple[int, int, bytes]]) -> None:
    TARGETS[seed[0]].check(edited(seed[1], edits))


@given(st.sampled_from([seed for seed in SEEDS if seed[0] in SLOW]), EDITS)
def test_small_changes_of_what_is_slow(seed: tuple[str, bytes], edits: list[tuple[int, int, bytes]]) -> None:
    TARGETS[seed[0]].check(edited(seed[1], edits))


# Every law can be broken


def _other(*_: object) -> bytes:
    return b"{}"


@pytest.mark.parametrize(
    ("name", "function", "seed"),
    [
        ("json", "canonical", b'{"a":1}'),
        ("address", "encode_address", TARGETS["address"].seeds[0]),
        ("amount", "format_amount", b"25"),
        ("uri", "format_uri", TARGETS["uri"].seeds[0]),
        ("url", "urlsplit", TARGETS["url"].seeds[0]),
        ("transfer", "tagged_hash", TARGETS["transfer"].seeds[0]),
        ("block", "canonical", TARGETS["block"].seeds[0]),
    ],
)
def test_a_broken_law_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, function: str, seed: bytes) -> None:
    TARGETS[name].check(seed)
    monkeypatch.setattr(parsers, function, _other)
    with pytest.raises((AssertionError, AttributeError, TypeError, RuleViolation)):
        TARGETS[name].check(seed)


def test_an_answer_that_is_not_announced_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "ANSWERS", {500})
    with pytest.raises(AssertionError):
        TARGETS["http"].check(TARGETS["http"].seeds[0])
